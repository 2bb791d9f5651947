"""The plan of a reset: for each partition the present committed offset and the new one.

**Invariant:** a planned offset lies within its partition, as in Kafka's tool; a requested offset outside
is moved to the nearer end, and the plan says so. Only the current offset is kept as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from tidelog.cli.failure import Failure
from tidelog.cli.group_ends import End, Moment, find_offsets
from tidelog.cli.group_members import Partition
from tidelog.cli.group_target import Target


@dataclass(frozen=True, slots=True)
class Move:
    """`requested_offset` is set if it differs from `to_offset`; `note` says why."""

    topic: str
    partition: int
    from_offset: int | None
    to_offset: int
    requested_offset: int | None = None
    note: str | None = None

    @property
    def place(self) -> Partition:
        return Partition(self.topic, self.partition)


class Planner:
    """Turns a target into moves, with offsets from the brokers."""

    def __init__(self, admin: AdminClient, bootstrap_server: str, committed: dict[Partition, int]) -> None:
        self._admin = admin
        self._bootstrap_server = bootstrap_server
        self._committed = committed

    def plan(self, target: Target, partitions: list[Partition]) -> list[Move]:
        match target.kind:
            case "earliest":
                return self._to_end(partitions, End.EARLIEST)
            case "latest":
                return self._to_end(partitions, End.LATEST)
            case "current":
                return self._to_current(partitions)
            case "time":
                return self._to_time(partitions, target.number)
            case "shift":
                return self._clamped({place: self._shifted(place, target.number) for place in partitions})
            case "offset":
                return self._clamped(dict.fromkeys(partitions, target.number))
            case "file":
                return self._clamped({place: (target.offsets or {})[place] for place in partitions})

    def _to_end(self, partitions: list[Partition], end: End, note: str | None = None) -> list[Move]:
        found = self._ends(partitions, end)
        return [self._move(place, found[place], note=note) for place in partitions]

    def _to_current(self, partitions: list[Partition]) -> list[Move]:
        moves = [
            self._move(place, self._committed[place]) for place in partitions if place in self._committed
        ]
        others = [place for place in partitions if place not in self._committed]
        return sorted(
            [*moves, *self._to_end(others, End.LATEST, "nothing committed: the end")], key=_by_place
        )

    def _to_time(self, partitions: list[Partition], timestamp_ms: int) -> list[Move]:
        wanted = dict.fromkeys(partitions, Moment(timestamp_ms))
        found = find_offsets(self._admin, self._bootstrap_server, wanted)
        moves = [self._move(place, offset) for place, offset in found.items() if offset is not None]
        others = [place for place, offset in found.items() if offset is None]
        return sorted([*moves, *self._to_end(others, End.LATEST, "no record so new: the end")], key=_by_place)

    def _shifted(self, place: Partition, shift: int) -> int:
        if place not in self._committed:
            raise Failure(
                f"partition {place.number} of {place.topic!r} has no committed offset to shift; "
                "leave it out, or reset it to an offset or a time"
            )
        return self._committed[place] + shift

    def _clamped(self, wanted: dict[Partition, int]) -> list[Move]:
        starts = self._ends(list(wanted), End.EARLIEST)
        ends = self._ends(list(wanted), End.LATEST)
        moves = []
        for place, offset in sorted(wanted.items()):
            if offset > ends[place]:
                moves.append(self._move(place, ends[place], offset, f"{offset} is beyond the end"))
            elif offset < starts[place]:
                moves.append(self._move(place, starts[place], offset, f"{offset} is before the start"))
            else:
                moves.append(self._move(place, offset))
        return moves

    def _ends(self, partitions: list[Partition], end: End) -> dict[Partition, int]:
        """The ends of all partitions; a Failure if one does not exist."""
        found = find_offsets(self._admin, self._bootstrap_server, dict.fromkeys(partitions, end))
        offsets = {}
        for place, offset in found.items():
            if offset is None:
                raise Failure(f"partition {place.number} of {place.topic!r} does not exist or has no leader")
            offsets[place] = offset
        return offsets

    def _move(
        self, place: Partition, offset: int, requested: int | None = None, note: str | None = None
    ) -> Move:
        return Move(place.topic, place.number, self._committed.get(place), offset, requested, note)


def _by_place(move: Move) -> Partition:
    return move.place
