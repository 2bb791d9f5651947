"""Which leader epoch began at which offset: what a returning replica compares to find divergence (R8).

**Invariant:** epochs and offsets both ascend.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from tidelog.base.files import Directory
from tidelog.log.format.checkpoint import decode_epochs, encode_epochs
from tidelog.log.format.names import LEADER_EPOCHS

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The `leader-epoch-checkpoint` of one partition."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.is_unsynced = False
        self.is_unwritten = False

    def load(self) -> bool:
        """Take what the file holds; False if there is none, or none that can be read."""
        found = decode_epochs(self._directory.read_whole(LEADER_EPOCHS))
        if found is None:
            return False
        for epoch, start_offset in found.entries:
            self._epochs.append(epoch)
            self._start_offsets.append(start_offset)
        return True

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """The first batch of `epoch` is at `start_offset`; an epoch that is known already changes nothing."""
        if self._take(epoch, start_offset):
            self.write()

    def _take(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or epoch <= self.latest:
            return False
        while self._start_offsets and self._start_offsets[-1] >= start_offset:
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        return True

    def rebuild(self, batches: Iterable[tuple[int, int]]) -> None:
        """Make the file anew from epoch and base offset of every batch, and durable: half of it would pass
        for all of it."""
        for epoch, base_offset in batches:
            self._take(epoch, base_offset)
        if self._epochs:
            self.write(durable=True)

    def write(self, durable: bool = False) -> None:
        """Not fsynced here: the next flush does that, before the recovery point moves past the change."""
        self._directory.replace_whole(LEADER_EPOCHS, encode_epochs(self.entries()), durable)
        self.is_unsynced = not durable
        self.is_unwritten = False

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the one asked for; undefined if unknown."""
        if epoch == self.latest and epoch != UNDEFINED_EPOCH:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if epoch == UNDEFINED_EPOCH or higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if higher == 0:
            return epoch, self._start_offsets[0]
        return self._epochs[higher - 1], self._start_offsets[higher]

    def at(self, offset: int) -> int:
        """The epoch of the batch at `offset`."""
        place = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[place] if place >= 0 else UNDEFINED_EPOCH

    def cut_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`."""
        place = bisect_left(self._start_offsets, end_offset)
        if place < len(self._epochs):
            del self._epochs[place:], self._start_offsets[place:]
            self.write()

    def cut_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one that holds it now begins there.

        Written with the next flush or change: a file that still has them tells nothing wrong, and records of
        ten thousand partitions may be deleted at once."""
        place = bisect_right(self._start_offsets, start_offset) - 1
        if place > 0 or (place == 0 and self._start_offsets[0] < start_offset):
            del self._epochs[:place], self._start_offsets[:place]
            self._start_offsets[0] = start_offset
            self.is_unwritten = True

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._start_offsets, strict=True))
