"""A log on the simulated disk, driven at random, and compared with the model after every reopening.

**Invariant:** everything that happens follows from the seed.
"""

from __future__ import annotations

import errno
from random import Random

from tests.log.making import NOW_MS, find_timestamp, make_batch, make_settings, read_bytes, read_log, stored
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tests.sim.model import Model
from tidelog.base.config import TopicSettings
from tidelog.log.flush import FlushJob
from tidelog.log.log import Log
from tidelog.log.markers import End, append_markers
from tidelog.log.recovery import Recovery, open_log
from tidelog.log.retention import expired_count
from tidelog.protocol.records import Marker, build_control_batch

FOLDER = "t-0"
PRODUCER_COUNT = 4


class LogOnDisk:
    """One life after the other of the same log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.model = Model()
        self.settings = self._choose_settings()
        self.leader_epoch = 0
        self.checkpoint = 0  # the recovery point as last written down
        self.flushed = 0
        self.job: FlushJob | None = None
        self.next_sequence = dict.fromkeys(range(PRODUCER_COUNT), 0)
        self.producer_epoch = dict.fromkeys(range(PRODUCER_COUNT), 0)
        self.in_transaction: set[int] = set()
        self.clock = NOW_MS
        self.crash_count = 0
        self.folder: SimulatedDirectory = self.disk.root.folder(FOLDER)
        self.disk.root.sync()
        self.log: Log
        self.open(is_clean=True)

    def _choose_settings(self) -> TopicSettings:
        pick = self.random.choice
        return make_settings(
            segment_bytes=pick((1_024, 2_000, 5_000)),
            index_interval_bytes=pick((0, 100, 400)),
            segment_index_bytes=pick((40, 120, 100_000)),
            segment_ms=pick((5_000, 10**9)),
            message_timestamp_type=pick(("CreateTime", "CreateTime", "LogAppendTime")),
        )

    def open(self, is_clean: bool) -> Recovery:
        point = self.model.end_offset if is_clean else self.checkpoint
        self.log, report = open_log(
            self.folder, self.settings, self.clock, point, self.model.start_offset, is_clean
        )
        return report

    # Steps.

    def step(self) -> None:
        steps = (
            (30, self.append_plain),
            (30, self.append_idempotent),
            (8, self.end_transaction),
            (3, self.roll),
            (4, self.begin_flush),
            (5, self.end_flush),
            (3, self.write_checkpoint),
            (2, self.change_leader),
            (1, self.delete_records),
            (2, self.remove_expired),
            (1, self.restart),
            (2, self.crash),
            (1, self.fail_then_crash),
        )
        self.random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()

    def _timestamp(self) -> int:
        self.clock += self.random.randrange(200)
        return self.clock - self.random.randrange(2_000)

    def _append(self, batch: bytearray) -> None:
        self.log.append(memoryview(batch), 0, len(batch), self.leader_epoch, self.clock)
        self.model.add(batch)

    def append_plain(self) -> None:
        size = self.random.choice((5, 30, 300))
        self._append(
            make_batch(
                self.random.randint(1, 4),
                timestamp=self._timestamp(),
                value=self.random.randbytes(size),
                codec=self.random.choice((0, 0, 0, 4)),
            )
        )

    def append_idempotent(self) -> None:
        producer_id = self.random.randrange(PRODUCER_COUNT)
        if producer_id not in self.in_transaction and self.random.random() < 0.2:
            self.producer_epoch[producer_id] += 1
            self.next_sequence[producer_id] = 0
        transactional = producer_id in self.in_transaction or self.random.random() < 0.4
        count = self.random.randint(1, 3)
        self._append(
            make_batch(
                count,
                timestamp=self._timestamp(),
                producer_id=producer_id,
                producer_epoch=self.producer_epoch[producer_id],
                sequence=self.next_sequence[producer_id],
                transactional=transactional,
            )
        )
        self.next_sequence[producer_id] += count
        if transactional:
            self.in_transaction.add(producer_id)

    def end_transaction(self) -> None:
        if not self.in_transaction:
            return
        producer_id = self.random.choice(sorted(self.in_transaction))
        self.in_transaction.discard(producer_id)
        marker = self.random.choice((Marker.ABORT, Marker.COMMIT))
        epoch, timestamp = self.producer_epoch[producer_id], self._timestamp()
        batch = build_control_batch(
            marker,
            producer_id,
            epoch,
            self.crash_count,
            timestamp,
            base_offset=self.log.end_offset,
            leader_epoch=self.leader_epoch,
        )
        end = End(producer_id, epoch, marker, self.crash_count)
        append_markers(self.log, [end], self.leader_epoch, timestamp)
        self.model.add(batch)

    def roll(self) -> None:
        if self.log.active.size:
            self.log.roll(self.clock)

    def begin_flush(self) -> None:
        if self.job is None:
            self.job = self.log.begin_flush()

    def end_flush(self) -> None:
        if self.job is None:
            self.begin_flush()
        job, self.job = self.job, None
        assert job is not None
        job.run()
        job.release()
        self.log.end_flush(job, self.clock)
        self.flushed = max(self.flushed, job.end_offset)

    def write_checkpoint(self) -> None:
        self.checkpoint = self.log.recovery_point

    def change_leader(self) -> None:
        self.leader_epoch += self.random.randint(1, 2)

    def delete_records(self) -> None:
        """Readers lose what is below some flushed offset; whole segments below it go."""
        if self.flushed > self.model.start_offset:
            start = self.random.randint(self.model.start_offset, self.flushed)
            self.log.advance_start(start)
            self.model.start_offset = start
            self.remove_expired()

    def remove_expired(self) -> None:
        count = expired_count(self.log, self.flushed, self.clock)
        if count and count == len(self.log.segments):
            self.log.roll(self.clock)
        if not count or not self.log.may_remove(count):
            return  # until the next flush
        for name in self.log.remove_segments(count):
            if self.random.random() < 0.5:
                self.folder.remove(name)

    def restart(self) -> None:
        """A clean stop, perhaps with the power gone right after it, and a start that scans nothing."""
        self.job = None
        self.log.close(clean=True)
        self.flushed = self.checkpoint = self.model.end_offset
        if self.random.random() < 0.5:
            self.folder = self.disk.crash(self.random).folder(FOLDER)
        report = self.open(is_clean=True)
        assert report.scanned_bytes == 0 and report.cut_bytes == 0, report
        self.verify()

    def crash(self) -> None:
        self.crash_count += 1
        self.job = None
        self.folder = self.disk.crash(self.random).folder(FOLDER)
        self.open(is_clean=False)
        assert self.flushed <= self.log.end_offset <= self.model.end_offset
        self.model.cut(self.log.end_offset)
        assert self.log.end_offset == self.model.end_offset
        self._remember_producers()
        self.leader_epoch += 1
        self.verify()

    def _remember_producers(self) -> None:
        """The producers go on from what is left of their batches."""
        state, _ = self.model.producers()
        self.in_transaction = {i for i, known in state.items() if known.transaction_offset >= 0}
        for producer_id in range(PRODUCER_COUNT):
            known = state.get(producer_id)
            self.producer_epoch[producer_id] = known.epoch if known else 0
            self.next_sequence[producer_id] = known.recent[-1][1] + 1 if known and known.recent else 0

    def fail_then_crash(self) -> None:
        """The disk fails some write or fsync; the log takes no more, and the power goes."""
        full = self.random.random() < 0.5
        if self.random.random() < 0.5:
            code = errno.ENOSPC if full else errno.EIO
            self.disk.fail_write(self.random.randrange(6), code, self.random.random())
        else:
            self.disk.fail_sync(self.random.randrange(3))
        try:
            for _ in range(20):
                self.random.choice((self.append_plain, self.append_idempotent, self.end_flush))()
        except OSError:
            pass
        self.crash()

    # Comparison.

    def verify(self) -> None:
        log, model = self.log, self.model
        assert log.start_offset == model.start_offset
        live = model.live_rows()
        kept = [row for row in stored(self.folder, log) if row[0].last_offset >= model.start_offset]
        assert kept == live, "the files hold something else than was appended"
        assert read_log(log)[-sum(len(batch) for _, batch in live) :] == b"".join(b for _, b in live)
        self._verify_offsets()
        self._verify_bounds()
        self._verify_timestamps()
        self._verify_epochs()
        self._verify_producers()

    def _verify_offsets(self) -> None:
        for offset in range(self.model.start_offset, self.model.end_offset):
            assert read_bytes(self.log, offset, max_bytes=1) == self.model.holding(offset)[1], offset
        assert read_bytes(self.log, self.model.end_offset) == b""

    def _verify_bounds(self) -> None:
        """A read that must not see records from some offset on sees every batch of the segment below it."""
        log, model = self.log, self.model
        if model.start_offset == model.end_offset:
            return
        for _ in range(10):
            offset = self.random.randrange(model.start_offset, model.end_offset)
            bound = self.random.randint(offset, model.end_offset)
            segment_end = min([base for base in log.bases if base > offset], default=log.end_offset)
            expected = [
                batch
                for header, batch in model.rows
                if header.last_offset >= offset and header.last_offset < min(bound, segment_end)
            ]
            assert read_bytes(log, offset, bound) == b"".join(expected), (offset, bound)

    def _verify_timestamps(self) -> None:
        records = self.model.records()
        times = {
            record.timestamp + nudge for record in records[:: max(len(records) // 40, 1)] for nudge in (0, 1)
        }
        for timestamp in sorted(times):
            bound = self.random.randint(self.model.start_offset, self.model.end_offset)
            first = next((record for record in records if record.timestamp >= timestamp), None)
            expected = (first.timestamp, first.offset) if first and first.offset < bound else None
            assert find_timestamp(self.log, timestamp, bound) == expected, (timestamp, bound)

    def _verify_epochs(self) -> None:
        for header, _ in self.model.live_rows():
            at = max(header.base_offset, self.model.start_offset)
            assert self.log.epochs.at(at) == header.leader_epoch, at
        known = self.log.epochs.entries()
        assert known == sorted(set(known))
        assert all(offset <= self.log.end_offset for _, offset in known)

    def _verify_producers(self) -> None:
        state, aborted = self.model.producers()
        log = self.log
        assert sorted(producer.producer_id for producer in log.producers) == sorted(state)
        for producer in log.producers:
            expected = state[producer.producer_id]
            found = [(recent[0], recent[1], recent.base_offset) for recent in producer.recent]
            assert (
                found[-1:] == expected.recent[-1:]
                and found == expected.recent[len(expected.recent) - len(found) :]
            )
            assert producer.epoch == expected.epoch
            assert producer.timestamp == expected.timestamp
            assert producer.coordinator_epoch == expected.coordinator_epoch
            assert producer.transaction_offset == expected.transaction_offset
        end = log.end_offset
        assert log.last_stable_offset(end) == self.model.last_stable_offset(end)
        for _ in range(5):
            start = self.random.randint(self.model.start_offset, end)
            bound = self.random.randint(start, end)
            expected_aborts = [a for a in aborted if a.last_offset >= start and a.first_offset < bound]
            assert log.aborted_between(start, bound) == sorted(expected_aborts, key=lambda a: a.first_offset)
