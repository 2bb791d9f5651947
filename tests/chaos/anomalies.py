"""What must never be seen of a log, as Jepsen's Kafka workload names it; each is a small class of its own.

| kind                   | what was seen                                                                  |
|------------------------|--------------------------------------------------------------------------------|
| `lost-write`           | acknowledged, not read by some audience that has read beyond it                 |
| `unseen`               | acknowledged, not read by some audience, nor anything beyond it                 |
| `duplicate`            | one record at two offsets                                                       |
| `inconsistent-offsets` | two records at one offset                                                       |
| `nonmonotonic-send`    | a writer's later record at a lower offset                                       |
| `nonmonotonic-poll`    | a reader went back, though nobody had placed it anew                            |
| `poll-skip`            | a reader left offsets out, though nobody had placed it anew                     |
| `lost-commit`          | a group got a record again whose offset it was told to be committed             |

A record is its writer's number of it; an *audience* is a reader alone or a group, which reads everything
between its members. A reader `classic/1` belongs to the audience `classic`.

**Invariant:** an offset is written once and for all records there is one, so nothing here forgives a gap.
"""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

EXAMPLES_MAX = 5
NOTHING = -1
UNKNOWN_OFFSET = -2
"""Acknowledged, but the client was not told where: it had sent it again."""


class Row:
    """Numbers by place, from 0 on; eight bytes each, or one, because there are millions."""

    def __init__(self, kind: Literal["q", "b"] = "q") -> None:
        self._cells = array(kind)

    def __getitem__(self, place: int) -> int:
        return self._cells[place] if place < len(self._cells) else NOTHING

    def __setitem__(self, place: int, value: int) -> None:
        lacking = place + 1 - len(self._cells)
        if lacking > 0:
            self._cells.extend([NOTHING] * lacking)
        self._cells[place] = value

    def __len__(self) -> int:
        return len(self._cells)


Stream = tuple[str, int]
"""A writer and a partition, or a reader and a partition."""


class Check:
    """Hears all that clients were told, in the order of the telling."""

    kind = ""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[str] = []

    def found(self, what: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{self.kind}: {what} ({clock()})")

    def on_acknowledged(self, writer: str, partition: int, number: int, offset: int) -> None: ...

    def on_polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None: ...

    def on_placed(self, reader: str, partition: int) -> None:
        """The reader was given the partition: where it begins is not for it to say."""

    def on_commit_asked(self, member: str, partition: int, offset: int) -> None: ...

    def on_commit_failed(self, member: str) -> None:
        """Or nobody will hear of it any more."""

    def on_committed(self, member: str, partition: int, offset: int) -> None: ...

    def on_ended(self, audiences: Sequence[str]) -> None:
        """Everything has been read that there is to read."""


def clock() -> str:
    return datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]


def audience_of(reader: str) -> str:
    return reader.partition("/")[0]


class LostWrite(Check):
    kind = "lost-write"

    def __init__(self) -> None:
        super().__init__()
        self._acknowledged: dict[Stream, Row] = defaultdict(Row)  # number to offset
        self._seen: dict[tuple[str, str, int], Row] = defaultdict(lambda: Row("b"))  # of an audience
        self._highest: dict[Stream, int] = defaultdict(lambda: NOTHING)  # of an audience

    def on_acknowledged(self, writer: str, partition: int, number: int, offset: int) -> None:
        self._acknowledged[writer, partition][number] = offset

    def on_polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        audience = audience_of(reader)
        self._seen[audience, writer, partition][number] = 1
        self._highest[audience, partition] = max(self._highest[audience, partition], offset)

    def on_ended(self, audiences: Sequence[str]) -> None:
        for audience in audiences:
            for (writer, partition), offsets in self._acknowledged.items():
                seen = self._seen[audience, writer, partition]
                for number in range(len(offsets)):
                    offset = offsets[number]
                    if (
                        offset != NOTHING
                        and seen[number] == NOTHING
                        and self._counts(audience, partition, offset)
                    ):
                        self.found(f"record {number} of {writer} at {partition}:{offset}, for {audience}")

    def _counts(self, audience: str, partition: int, offset: int) -> bool:
        return offset < self._highest[audience, partition]


class Unseen(LostWrite):
    kind = "unseen"

    def _counts(self, audience: str, partition: int, offset: int) -> bool:
        return offset >= self._highest[audience, partition]


class Duplicate(Check):
    kind = "duplicate"

    def __init__(self) -> None:
        super().__init__()
        self._offsets: dict[Stream, Row] = defaultdict(Row)  # number to offset

    def on_acknowledged(self, writer: str, partition: int, number: int, offset: int) -> None:
        if offset != UNKNOWN_OFFSET:
            self._note(writer, partition, number, offset)

    def on_polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        self._note(writer, partition, number, offset)

    def _note(self, writer: str, partition: int, number: int, offset: int) -> None:
        offsets = self._offsets[writer, partition]
        known = offsets[number]
        if known == NOTHING:
            offsets[number] = offset
        elif known != offset:
            self.found(f"record {number} of {writer} at {partition}:{known} and {partition}:{offset}")


class InconsistentOffsets(Check):
    kind = "inconsistent-offsets"

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, Row] = defaultdict(Row)  # of a partition: offset to a record
        self._writers: dict[str, int] = {}

    def on_acknowledged(self, writer: str, partition: int, number: int, offset: int) -> None:
        if offset != UNKNOWN_OFFSET:
            self._note(writer, partition, number, offset)

    def on_polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        self._note(writer, partition, number, offset)

    def _note(self, writer: str, partition: int, number: int, offset: int) -> None:
        record = (self._writers.setdefault(writer, len(self._writers)) << 40) + number
        records = self._numbers[partition]
        known = records[offset]
        if known == NOTHING:
            records[offset] = record
        elif known != record:
            other = f"{known & (1 << 40) - 1} of {list(self._writers)[known >> 40]}"
            self.found(f"{partition}:{offset} is record {other} and record {number} of {writer}")


class NonmonotonicSend(Check):
    kind = "nonmonotonic-send"

    def __init__(self) -> None:
        super().__init__()
        self._acknowledged: dict[Stream, Row] = defaultdict(Row)

    def on_acknowledged(self, writer: str, partition: int, number: int, offset: int) -> None:
        if offset != UNKNOWN_OFFSET:
            self._acknowledged[writer, partition][number] = offset

    def on_ended(self, audiences: Sequence[str]) -> None:
        for (writer, partition), offsets in self._acknowledged.items():
            highest = NOTHING
            for number in range(len(offsets)):
                offset = offsets[number]
                if offset != NOTHING and offset <= highest:
                    self.found(f"record {number} of {writer} at {partition}:{offset} after {highest}")
                highest = max(highest, offset)


class NonmonotonicPoll(Check):
    kind = "nonmonotonic-poll"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[Stream, int] = {}

    def on_placed(self, reader: str, partition: int) -> None:
        self._last.pop((reader, partition), None)

    def on_polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        last = self._last.get((reader, partition), NOTHING)
        if last != NOTHING and self._is_wrong(last, offset):
            self.found(f"{reader} got {partition}:{offset} after {last}")
        self._last[reader, partition] = offset

    def _is_wrong(self, last: int, offset: int) -> bool:
        return offset <= last


class PollSkip(NonmonotonicPoll):
    kind = "poll-skip"

    def _is_wrong(self, last: int, offset: int) -> bool:
        return offset > last + 1


class LostCommit(Check):
    """Where a group may begin is what it was told last; or less, if somebody has asked for that and was not
    told: such a commit may have been carried out, or may yet be, until a later one was told. A member asks
    for one at a time."""

    kind = "lost-commit"

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[Stream, int] = {}
        self._told: dict[Stream, str] = {}  # who was told of it, and when
        self._asked: dict[Stream, dict[str, tuple[int, int]]] = defaultdict(dict)  # offset, time
        self._failed: dict[Stream, list[tuple[int, int]]] = defaultdict(list)  # the same, when it failed
        self._time = 0

    def on_commit_asked(self, member: str, partition: int, offset: int) -> None:
        self._time += 1
        self._asked[audience_of(member), partition][member] = offset, self._time

    def on_commit_failed(self, member: str) -> None:
        self._time += 1
        for key, asked in self._asked.items():
            if member in asked:
                self._failed[key].append((asked.pop(member)[0], self._time))

    def on_committed(self, member: str, partition: int, offset: int) -> None:
        key = audience_of(member), partition
        self._committed[key], self._told[key] = offset, f"{member} at {clock()}"
        _, asked_at = self._asked[key].pop(member, (offset, self._time))
        self._failed[key] = [failed for failed in self._failed[key] if failed[1] > asked_at]

    def on_polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        key = audience_of(reader), partition
        committed = self._committed.get(key, NOTHING)
        if offset < committed and not any(
            untold <= offset for untold, _ in (*self._asked[key].values(), *self._failed[key])
        ):
            self.found(f"{reader} got {partition}:{offset}, committed up to {committed} by {self._told[key]}")


ALL: tuple[Callable[[], Check], ...] = (
    LostWrite,
    Unseen,
    Duplicate,
    InconsistentOffsets,
    NonmonotonicSend,
    NonmonotonicPoll,
    PollSkip,
    LostCommit,
)


class Witness:
    """Tells every check what clients were told; they may tell it from any thread."""

    def __init__(self) -> None:
        self._checks = [make() for make in ALL]
        self._lock = threading.Lock()
        self.acknowledged_count = 0
        self.polled_count = 0

    def acknowledged(self, writer: str, partition: int, number: int, offset: int) -> None:
        with self._lock:
            self.acknowledged_count += 1
            for check in self._checks:
                check.on_acknowledged(writer, partition, number, offset)

    def polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        with self._lock:
            self.polled_count += 1
            for check in self._checks:
                check.on_polled(reader, partition, offset, writer, number)

    def placed(self, reader: str, partition: int) -> None:
        with self._lock:
            for check in self._checks:
                check.on_placed(reader, partition)

    def commit_asked(self, member: str, partition: int, offset: int) -> None:
        with self._lock:
            for check in self._checks:
                check.on_commit_asked(member, partition, offset)

    def commit_failed(self, member: str) -> None:
        with self._lock:
            for check in self._checks:
                check.on_commit_failed(member)

    def committed(self, member: str, partition: int, offset: int) -> None:
        with self._lock:
            for check in self._checks:
                check.on_committed(member, partition, offset)

    def end(self, audiences: Sequence[str]) -> dict[str, int]:
        """How often each kind was seen; called once."""
        with self._lock:
            for check in self._checks:
                check.on_ended(audiences)
        return self.tally

    @property
    def tally(self) -> dict[str, int]:
        return {check.kind: check.count for check in self._checks}

    @property
    def examples(self) -> list[str]:
        return [example for check in self._checks for example in check.examples]
