"""What ZooKeeper has of the cluster, read past all brokers and proxies.

**Invariant:** reads only, and says None when nobody answers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.chaos.awaiting import await_that

ANSWER_S = 5.0
NOBODY = -1


class Led(NamedTuple):
    """One partition as its node tells it."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    in_sync_replicas: tuple[int, ...]
    replicas: tuple[int, ...]
    version: int

    @property
    def is_whole(self) -> bool:
        return self.leader != NOBODY and set(self.in_sync_replicas) == set(self.replicas)


class Truth:
    def __init__(self, connect: str) -> None:
        silent = logging.getLogger("tests.chaos.zookeeper")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        retries = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
        self._client = KazooClient(connect, timeout=10, connection_retry=retries, logger=silent)
        self._client.start(60)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def node(self, path: str) -> dict[str, Any] | None:
        found = self._nodes([path])
        return found[0][0] if found else None

    def version(self, path: str) -> int | None:
        found = self._nodes([path])
        return found[0][1] if found else None

    def controller(self) -> int:
        """Who it is, once there is one."""
        return self._of_controller("id")

    def controller_epoch(self) -> int:
        return self._of_controller("epoch")

    def _of_controller(self, field: str) -> int:
        found: list[int] = []

        def is_there() -> bool:
            node = self.node("/controller")
            found[:] = [node[field]] if node else []
            return bool(found)

        await_that(is_there, "there is no controller", 60)
        return found[0]

    def brokers(self) -> set[int]:
        return {int(name) for name in self._children("/brokers/ids")}

    def last_notice(self) -> int:
        """The number of the last change that was announced."""
        return max(int(name[-10:]) for name in self._children("/changes"))

    def partitions(self, *topics: str) -> list[Led]:
        """Of these topics, or of all; nothing if ZooKeeper does not answer."""
        ids = [f"/topics/{name}" for name in self._children("/topics")]
        found = []
        for path, (topic, _) in zip(ids, self._nodes(ids), strict=False):
            if topics and topic["name"] not in topics:
                continue
            indexes = sorted(int(name) for name in self._children(path))
            for index, (fields, version) in zip(
                indexes, self._nodes(f"{path}/{index}" for index in indexes), strict=False
            ):
                found.append(_led(topic["name"], index, fields, version))
        return found

    def await_whole(
        self, brokers: Set[int], timeout_s: float = 180, meanwhile: Callable[[], None] = lambda: None
    ) -> float:
        """Until these are there, one is the controller, and every replica of everything is in sync; how many
        seconds it took. What is done meanwhile is done before each look."""
        seen: list[Led] = []

        def is_whole() -> bool:
            meanwhile()
            seen[:] = self.partitions()
            is_led = bool(seen) and all(each.is_whole for each in seen)
            return is_led and self.brokers() == brokers and self.node("/controller") is not None

        def complaint() -> str:
            return f"not in sync: {[each for each in seen if not each.is_whole]}; there: {self.brokers()}"

        return await_that(is_whole, complaint, timeout_s)

    def is_led_as_preferred(self) -> bool:
        found = self.partitions()
        return bool(found) and all(each.leader == each.replicas[0] for each in found)

    def _children(self, path: str) -> list[str]:
        try:
            names: list[str] = self._client.get_children_async(path).get(timeout=ANSWER_S)
        except (KazooException, KazooTimeoutError):
            return []
        return sorted(names)

    def _nodes(self, paths: Iterable[str]) -> list[tuple[dict[str, Any], int]]:
        """Those that there are, or nothing if one cannot be read."""
        asked = [self._client.get_async(path) for path in paths]
        found = []
        for answer in asked:
            try:
                data, stat = answer.get(timeout=ANSWER_S)
            except NoNodeError:
                continue
            except (KazooException, KazooTimeoutError):
                return []
            found.append((json.loads(data or b"{}"), int(stat.version)))
        return found


def _led(topic: str, partition: int, fields: dict[str, Any], version: int) -> Led:
    return Led(
        topic,
        partition,
        fields["leader"],
        fields["leader_epoch"],
        tuple(fields["isr"]),
        tuple(fields["replicas"]),
        version,
    )


def coordinator_partition(group: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that has the group: by the absolute value of Java's hash of
    its name."""
    value = 0
    for character in group:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return abs(signed) % 2**31 % partition_count
