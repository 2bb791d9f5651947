"""What a member's loop asks of a client, and what the client tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.compat.groups.spec import Partition, Place

POLL_SECONDS = 0.05
CALL_SECONDS_MAX = 60.0

Told = Callable[[str, Sequence[Partition]], None]
"""Called by the client in its own time with assigned, revoked or lost, and the partitions."""


@dataclass(frozen=True)
class Consumed:
    topic: str
    partition: int
    offset: int
    value: str


class Driver(Protocol):
    """One client in one group. A broker's refusal is raised as `Refused`, as elsewhere in `tests/compat`."""

    def start(self, told: Told) -> None: ...

    def identity(self) -> tuple[str, int]:
        """The member's id and its generation or member epoch."""
        ...

    def poll(self) -> list[Consumed]: ...

    def hold(self) -> None:
        """Gives up nothing before the next poll, as one does who is still busy with the last one."""
        ...

    def commit(self, places: Sequence[Place]) -> None: ...

    def committed(self, partitions: Sequence[Partition]) -> list[Place]:
        """Only those with an offset."""
        ...

    def position(self, partition: Partition) -> int: ...

    def seek(self, partition: Partition, offset: int) -> None: ...

    def pause(self, partitions: Sequence[Partition]) -> None: ...

    def resume(self, partitions: Sequence[Partition]) -> None: ...

    def close(self) -> None: ...
