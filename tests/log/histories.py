"""What a leader does to a log, step by step, drawn by hypothesis; and all that can be asked of a log."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tests.log.making import NOW_MS, append, make_batch, make_settings, read_bytes, read_log
from tidelog.base.config import TopicSettings
from tidelog.base.files import Directory
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.segment import LOG_SUFFIX, file_name
from tidelog.protocol.records import Marker, build_control_batch

PRODUCER_COUNT = 3


class Step(NamedTuple):
    kind: str
    producer_id: int
    record_count: int
    size: int
    delay_ms: int
    is_committed: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["plain", "plain", "idempotent", "transactional", "transactional", "end", "epoch"]),
        st.integers(0, PRODUCER_COUNT - 1),
        st.integers(1, 3),
        st.sampled_from([0, 30, 400]),
        st.integers(0, 1_500),
        st.booleans(),
    ),
    max_size=40,
)

SETTINGS = st.builds(
    make_settings,
    segment_bytes=st.sampled_from([1_024, 2_000, 1 << 20]),
    index_interval_bytes=st.sampled_from([0, 100, 400]),
    segment_index_bytes=st.sampled_from([40, 120, 100_000]),
    segment_ms=st.sampled_from([5_000, 10**9]),
    message_timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
)


class Leader:
    """Does the steps to every one of its logs; `ends` is where they ended before the first and after each."""

    def __init__(self, *logs: Log) -> None:
        self.logs = list(logs)
        self.ends = [logs[0].end_offset]
        self.leader_epoch = 0
        self.now_ms = NOW_MS
        self._sequences = [0] * PRODUCER_COUNT
        self._in_transaction: set[int] = set()

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            self.now_ms += step.delay_ms
            self._do(step)
            self.ends.append(self.logs[0].end_offset)

    def _do(self, step: Step) -> None:
        if step.kind == "epoch":
            self.leader_epoch += step.record_count
        elif step.kind == "end":
            self._end(step)
        else:
            batch = self._make(step)
            for log in self.logs:
                append(log, bytearray(batch), self.leader_epoch, self.now_ms)

    def _make(self, step: Step) -> bytearray:
        timestamp = self.now_ms - step.size
        value = bytes([len(self.ends) % 256]) * step.size
        if step.kind == "plain":
            return make_batch(step.record_count, timestamp=timestamp, value=value)
        who = step.producer_id
        if step.kind == "transactional":
            self._in_transaction.add(who)
        sequence = self._sequences[who]
        self._sequences[who] += step.record_count
        return make_batch(
            step.record_count,
            timestamp=timestamp,
            value=value,
            producer_id=who,
            sequence=sequence,
            transactional=who in self._in_transaction,
        )

    def _end(self, step: Step) -> None:
        self._in_transaction.discard(step.producer_id)
        marker = Marker.COMMIT if step.is_committed else Marker.ABORT
        batch = build_control_batch(marker, step.producer_id, 0, self.leader_epoch, self.now_ms)
        for log in self.logs:
            log.append_marker(bytearray(batch), self.leader_epoch, self.now_ms)


def open_in(
    folder: Directory, settings: TopicSettings, recovery_point: int = 0, start_offset: int = 0
) -> Log:
    return open_log(folder, settings, NOW_MS, recovery_point, start_offset)[0]


def contents(log: Log) -> dict[int, bytes]:
    """The bytes of every segment."""
    return {base: log.directory.read_whole(file_name(base, LOG_SUFFIX)) or b"" for base in log.bases}


def answers(log: Log) -> tuple[object, ...]:
    """Everything that readers, followers and producers can ask of a log."""
    offsets = range(log.start_offset, log.end_offset + 1)
    times = range(NOW_MS - 500, NOW_MS + 15_000, 97)
    return (
        (log.start_offset, log.end_offset),
        contents(log),
        read_log(log),
        [read_bytes(log, offset, max_bytes=1) for offset in offsets],
        [log.find_timestamp(timestamp, log.end_offset) for timestamp in times],
        log.find_max_timestamp(),
        log.epochs.entries(),
        [log.epochs.end_of(epoch, log.end_offset) for epoch in range(6)],
        log.producers.encode(),
        [log.aborted_between(offset, log.end_offset) for offset in offsets],
        log.last_stable_offset(log.end_offset),
    )


def stable_offsets(log: Log) -> list[int]:
    """The last stable offset while the high watermark goes from the start of the log to its end."""
    return [log.last_stable_offset(offset) for offset in range(log.start_offset, log.end_offset + 1)]
