"""What a check has seen: problems, counts, and what a broker does about each when it starts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PROGRESS_STEP_SIZE = 4 * 1024 * 1024


class WrongPath(Exception):
    """Nothing that can be checked has that path; the message says what is wrong with it."""


class Problem(NamedTuple):
    """`position` is a byte in the file, `offset` a record's number; None where there is none to name."""

    file: str
    position: int | None
    offset: int | None
    problem: str
    at_start: str

    def __str__(self) -> str:
        place = "" if self.position is None else f" at {self.position}"
        record = "" if self.offset is None else f" (offset {self.offset})"
        return f"{self.file}{place}{record}: {self.problem}; at start: {self.at_start}"


@dataclass(slots=True)
class Findings:
    """Of one run over one or more directories."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    gaps: int = 0  # in the offsets of sealed segments: compaction leaves such, and only it may
    problems: list[Problem] = field(default_factory=list)
    on_progress: Callable[[int], None] = lambda size: None

    def add(
        self, file: str, problem: str, at_start: str, position: int | None = None, offset: int | None = None
    ) -> None:
        self.problems.append(Problem(file, position, offset, problem, at_start))


@dataclass(frozen=True, slots=True)
class NextStart:
    """How a broker would open a partition: what it believes and what it reads again (docs/disk.md)."""

    was_clean: bool
    recovery_point: int
    bases: Sequence[int]

    def is_scanned(self, base_offset: int) -> bool:
        """Whether the segment at `base_offset` is read whole."""
        first = max(bisect_left(self.bases, self.recovery_point) - 1, 0)
        return not self.was_clean and base_offset >= self.bases[first]

    def of_bad_batch(self, base_offset: int, rest_size: int, is_in_tail: bool) -> str:
        """`is_in_tail`: behind the last index entry of the last segment, which every start reads."""
        if self.is_scanned(base_offset) or is_in_tail:
            return f"cut off here, with the {rest_size} bytes from here to the end and all later segments"
        why = "the last stop was clean" if self.was_clean else "it lies below the recovery point"
        return f"left as it is, because {why}; consumers stop here"

    def of_index(self, base_offset: int, is_sane: bool, otherwise: str) -> str:
        if self.is_scanned(base_offset) or not is_sane:
            return "rebuilt from the log"
        return otherwise
