"""One member of a group as a process: `python -m tests.compat.groups.member SPEC`, where SPEC is JSON.

It polls, commits what it was handed (if its spec says so) before it polls again, and prints an `Event` as a
line of JSON for whatever happens to it. Lines of JSON on its input are commands: `{"do": "seek", ...}`; each
is answered by an event of its own. When its input ends, so does it.

**Invariant:** everything that a poll returned is told before anything of it is committed.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.compat.client import Refused
from tests.compat.groups.drivers import Consumed, Driver
from tests.compat.groups.spec import Event, Partition, Place, Spec

Command = dict[str, Any]


def client_of(spec: Spec) -> Driver:
    """Imports only the client that is asked for: a process of ten starts the sooner."""
    if spec.client == "confluent":
        from tests.compat.groups.confluent_driver import ConfluentMember

        return ConfluentMember(spec)
    if spec.client == "aiokafka":
        from tests.compat.groups.aio_driver import AioMember

        return AioMember(spec)
    from tests.compat.groups.kpython_driver import KafkaPythonMember

    return KafkaPythonMember(spec)


class Member:
    """The loop around a driver."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._commands: queue.Queue[Command] = queue.Queue()
        self._printing = threading.Lock()
        self._uncommitted: dict[Partition, Place] = {}
        self._consumed: dict[Partition, Place] = {}
        self._is_polling = True
        self._driver: Driver | None = None

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._driver = client_of(self._spec)
        try:
            self._driver.start(self._told)
        except Refused as refused:
            self.tell("failed", code=refused.code, said=str(refused))
        while True:
            self._obey()
            if self._is_polling and self._driver is not None:
                self._turn(self._driver)

    def tell(self, kind: str, **fields: Any) -> None:
        at_ns = time.monotonic_ns()  # first: a client may have to be waited for until it says who it is
        member_id, generation = self._driver.identity() if self._driver is not None else ("", -1)
        event = Event(kind, at_ns, self._spec.name, member_id, generation, **fields)
        with self._printing:
            print(event.to_json(), flush=True)

    def _told(self, kind: str, partitions: Sequence[Partition]) -> None:
        if kind != "assigned":
            for partition in partitions:
                self._uncommitted.pop(partition, None)
        self.tell(kind, partitions=tuple(partitions))

    def _turn(self, driver: Driver) -> None:
        try:
            records = driver.poll()
            if records:
                self._tell_records(records)
        except Refused as refused:
            self.tell("failed", code=refused.code, said=str(refused))
            return
        if self._spec.commits and self._uncommitted:
            self._commit(driver)

    def _tell_records(self, records: list[Consumed]) -> None:
        for each in records:
            place = Place(each.topic, each.partition, each.offset + 1)
            self._uncommitted[place.of] = self._consumed[place.of] = place
        places = tuple(Place(each.topic, each.partition, each.offset) for each in records)
        self.tell("records", places=places, values=tuple(each.value for each in records))

    def _commit(self, driver: Driver) -> None:
        places = tuple(self._uncommitted.values())
        try:
            driver.commit(places)
        except Refused as refused:
            self.tell("refused", places=places, code=refused.code, said=str(refused))
            return
        self._uncommitted.clear()
        self.tell("committed", places=places)

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        os._exit(0)

    def _obey(self) -> None:
        """Every command that has come; while the member stalls, it waits for the next."""
        while not self._commands.empty() or not self._is_polling or self._driver is None:
            command = self._commands.get()
            number = command.pop("number")
            try:
                found = self._commands_by_name()[command.pop("do")](**command)
                self.tell("answer", places=tuple(found or ()), answer_to=number)
            except Refused as refused:
                self.tell("answer", code=refused.code, said=str(refused), answer_to=number)

    def _commands_by_name(self) -> dict[str, Callable[..., Sequence[Place] | None]]:
        names = ("stall", "go", "leave", "commit", "committed", "position", "seek", "pause", "resume")
        return {name: getattr(self, f"_do_{name}") for name in names}

    @property
    def _client(self) -> Driver:
        assert self._driver is not None, "the client did not start"
        return self._driver

    def _do_stall(self) -> None:
        self._is_polling = False
        self._client.hold()

    def _do_go(self) -> None:
        self._is_polling = True

    def _do_leave(self) -> None:
        self.tell("leaving")
        self._client.close()
        self._driver = None

    def _do_commit(self, places: list[Any]) -> Sequence[Place]:
        """The given places, or all that was handed out."""
        offsets = tuple(Place(*each) for each in places) or tuple(self._consumed.values())
        self._client.commit(offsets)
        self.tell("committed", places=offsets)
        return offsets

    def _do_committed(self, partitions: list[Any]) -> Sequence[Place]:
        return self._client.committed([(topic, index) for topic, index in partitions])

    def _do_position(self, topic: str, partition: int) -> Sequence[Place]:
        return [Place(topic, partition, self._client.position((topic, partition)))]

    def _do_seek(self, topic: str, partition: int, offset: int) -> None:
        self._client.seek((topic, partition), offset)

    def _do_pause(self, partitions: list[Any]) -> None:
        self._client.pause([(topic, index) for topic, index in partitions])

    def _do_resume(self, partitions: list[Any]) -> None:
        self._client.resume([(topic, index) for topic, index in partitions])


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    Member(Spec.from_json(sys.argv[1])).run()
