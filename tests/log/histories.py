"""What a leader does to a log, step by step, drawn by hypothesis; and all that can be asked of a log."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tests.log.making import (
    NOW_MS,
    append,
    append_marker,
    find_timestamp,
    make_batch,
    make_settings,
    read_bytes,
    read_log,
    split,
)
from tests.sim.disk import SimulatedDisk
from tidelog.base.config import TopicSettings
from tidelog.log.format.names import LOG_SUFFIX, file_name
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.replica import append_replica
from tidelog.protocol.records import Marker

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
        for log in self.logs:
            epoch, now_ms = self.leader_epoch, self.now_ms
            append_marker(
                log, marker, step.producer_id, coordinator_epoch=epoch, epoch=epoch, timestamp=now_ms
            )


def new_log(topic: TopicSettings | None = None) -> Log:
    return open_log(SimulatedDisk().root, topic or make_settings(), NOW_MS)[0]


def reopened(log: Log, recovery_point: int = 0, start_offset: int = 0) -> Log:
    """The log as it is found after the process was killed: opened from a copy of its files."""
    folder = SimulatedDisk().root
    for name in log.directory.names():
        folder.replace_whole(name, log.directory.read_whole(name) or b"")
    return open_log(folder, log.settings, NOW_MS, recovery_point, start_offset)[0]


def stopped(log: Log) -> Log:
    """The log as it is found after a clean stop: nothing is scanned, nothing is made anew."""
    log.close(clean=True)
    again, report = open_log(
        log.directory, log.settings, NOW_MS, log.end_offset, log.start_offset, is_clean=True
    )
    assert (report.scanned_bytes, report.rebuilt, report.problems) == (0, [], [])
    return again


def give(log: Log, data: bytes | bytearray, may_have_gaps: bool = True) -> int:
    return append_replica(log, memoryview(data), NOW_MS, may_have_gaps)


def follow(leader: Log, follower: Log, sizes: list[int]) -> None:
    """Fetch all that the leader has, in pieces of those sizes, cut wherever they end."""
    turn = 0
    while follower.end_offset < leader.end_offset:
        piece = read_bytes(leader, follower.end_offset, max_bytes=sizes[turn % len(sizes)])
        assert give(follower, piece) == len(split(piece)) > 0
        turn += 1


def four_batches() -> list[bytes]:
    """Of two records, each in an epoch of its own, as a leader has them."""
    log = new_log()
    for number in range(4):
        append(log, make_batch(2, value=bytes([number]) * 20), epoch=number)
    return [batch for _, batch in split(read_log(log))]


def gapped() -> bytes:
    """Batches 0-1, 4-5 and 6-7: the one between them was compacted away."""
    first, _, third, fourth = four_batches()
    return first + third + fourth


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
        [find_timestamp(log, timestamp, log.end_offset) for timestamp in times],
        find_timestamp(log, None, log.end_offset),
        log.epochs.entries(),
        [log.epochs.end_of(epoch, log.end_offset) for epoch in range(6)],
        log.producers.encode(),
        [log.aborted_between(offset, log.end_offset) for offset in offsets],
        log.last_stable_offset(log.end_offset),
    )


def stable_offsets(log: Log) -> list[int]:
    """The last stable offset while the high watermark goes from the start of the log to its end; once."""
    return [log.last_stable_offset(offset) for offset in range(log.start_offset, log.end_offset + 1)]
