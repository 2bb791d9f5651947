"""What a log must hold, as a plain list of batches; every question is answered by reading all of them.

**Invariant:** asks nothing of the code under test but how a batch is laid out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.log.format.txnindex import AbortedTransaction
from tidelog.protocol.batch import BatchHeader, read_header
from tidelog.protocol.records import Marker, Record, read_marker, read_records

Row = tuple[BatchHeader, bytes]


@dataclass(slots=True)
class ExpectedProducer:
    epoch: int = -1
    recent: list[tuple[int, int, int]] = field(default_factory=list)  # first and last sequence, base offset
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_offset: int = -1


class Model:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.start_offset = 0

    @property
    def end_offset(self) -> int:
        return self.rows[-1][0].last_offset + 1 if self.rows else 0

    def add(self, batch: bytes | bytearray) -> None:
        self.rows.append((read_header(batch), bytes(batch)))

    def cut(self, end_offset: int) -> None:
        self.rows = [row for row in self.rows if row[0].last_offset < end_offset]

    def live_rows(self) -> list[Row]:
        return [row for row in self.rows if row[0].last_offset >= self.start_offset]

    def holding(self, offset: int) -> Row:
        return next(row for row in self.rows if row[0].base_offset <= offset <= row[0].last_offset)

    def records(self) -> list[Record]:
        found = [record for _, batch in self.live_rows() for record in read_records(batch)]
        return [record for record in found if record.offset >= self.start_offset]

    def epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for header, _ in self.rows:
            if not found or header.leader_epoch > found[-1][0]:
                found.append((header.leader_epoch, header.base_offset))
        return found

    def producers(self) -> tuple[dict[int, ExpectedProducer], list[AbortedTransaction]]:
        """The state of every producer at the end, and the transactions aborted on the way."""
        state: dict[int, ExpectedProducer] = {}
        aborted: list[AbortedTransaction] = []
        for header, batch in self.rows:
            if header.producer_id < 0:
                continue
            known = state.setdefault(header.producer_id, ExpectedProducer())
            if header.producer_epoch != known.epoch:
                known.epoch, known.recent = header.producer_epoch, []
            known.timestamp = header.max_timestamp
            if header.is_control:
                self._end(state, aborted, header, batch)
                continue
            known.recent.append((header.base_sequence, header.last_sequence, header.base_offset))
            del known.recent[:-5]
            if header.is_transactional and known.transaction_offset < 0:
                known.transaction_offset = header.base_offset
        return state, aborted

    @staticmethod
    def _end(
        state: dict[int, ExpectedProducer],
        aborted: list[AbortedTransaction],
        header: BatchHeader,
        batch: bytes,
    ) -> None:
        known = state[header.producer_id]
        marker = read_marker(batch)
        assert marker is not None
        known.coordinator_epoch = marker[1]
        first, known.transaction_offset = known.transaction_offset, -1
        if first >= 0 and marker[0] is Marker.ABORT:
            still_open = [other.transaction_offset for other in state.values()]
            stable = min((offset for offset in still_open if offset >= 0), default=header.base_offset + 1)
            aborted.append(AbortedTransaction(header.producer_id, first, header.base_offset, stable))

    def last_stable_offset(self, high_watermark: int) -> int:
        """What is decided by markers below the high watermark: by replaying no more than that. Never
        below the log start, also if records of an open transaction were deleted."""
        seen = Model()
        seen.rows = [row for row in self.rows if row[0].last_offset < high_watermark]
        open_offsets = [known.transaction_offset for known in seen.producers()[0].values()]
        stable = min([offset for offset in open_offsets if offset >= 0], default=high_watermark)
        return max(stable, self.start_offset)
