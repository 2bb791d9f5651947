"""The Java producer and consumer as a `Transactor`, through a JVM that stays."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

from tests.compat.client import Refused
from tests.compat.java.jvm import Jvm
from tests.compat.transactor import LAST, PATIENCE_S, TIMEOUT_MS, Ended, Place, Work


class JavaInstance:
    def __init__(self, jvm: Jvm, handle: int) -> None:
        self._jvm = jvm
        self._handle = handle

    def begin(self) -> None:
        self._call("begin")

    def send(self, place: Place, values: Sequence[bytes]) -> None:
        texts = [b64encode(value).decode() for value in values]
        self._call("send", topic=place[0], partition=place[1], values=texts)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        self._call("offsets", group=group, offsets=[(*place, offset) for place, offset in offsets.items()])

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def _call(self, name: str, /, **arguments: Any) -> None:
        try:
            self._jvm.call(f"transactions.{name}", handle=self._handle, **arguments)
        except Refused as refused:
            raise Ended(refused.code, str(refused)) from refused


class JavaTransactor:
    name = "the Java client"

    def __init__(self, bootstrap: str, jvm: Jvm, folder: Path, protocol: str = "consumer") -> None:
        self.bootstrap = bootstrap
        self.jvm = jvm
        self._folder = folder
        self._protocol = protocol

    @contextmanager
    def instance(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[JavaInstance]:
        handle = self._open(self.jvm, transactional_id, timeout_ms)
        try:
            yield JavaInstance(self.jvm, handle)
        finally:
            self.jvm.call("transactions.close", handle=handle)

    def transform(self, work: Work) -> int:
        named = vars(work) | {"bootstrap": self.bootstrap, "protocol": self._protocol}
        return int(self.jvm.call("transactions.transform", **named))

    def follow(self, place: Place) -> Callable[[], list[bytes]]:
        last = b64encode(LAST).decode()
        asked = {"bootstrap": self.bootstrap, "place": place, "last": last, "wait_ms": PATIENCE_S * 1_000}
        handle = self.jvm.call("transactions.follow", **asked)

        def read() -> list[bytes]:
            return [b64decode(text) for text in self.jvm.call("transactions.followed", handle=handle)]

        return read

    def die_in_the_middle(self, transactional_id: str, place: Place, value: bytes) -> None:
        with self.jvm.another(self._folder / "stderr") as other:
            instance = JavaInstance(other, self._open(other, transactional_id, TIMEOUT_MS))
            instance.begin()
            instance.send(place, [value])
            other.signal(SIGKILL)

    def _open(self, jvm: Jvm, transactional_id: str, timeout_ms: int) -> int:
        asked = {"bootstrap": self.bootstrap, "id": transactional_id, "timeout_ms": str(timeout_ms)}
        return int(jvm.call("transactions.open", **asked))
