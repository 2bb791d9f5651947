"""Where a read_committed reader must stop (decision 0014), also right after a log was opened."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.making import NOW_MS, append, append_marker, cut, flush, make_batch, make_settings, open_new
from tests.log.making import reopen as reopen_log
from tests.sim.disk import SimulatedDisk
from tests.sim.model import Model
from tidelog.log.format.names import SNAPSHOT_SUFFIX
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.replay import has_marker
from tidelog.log.transactions import Undecided
from tidelog.protocol.records import Marker, build_control_batch

PRODUCER_COUNT = 4
WALKS = 60


def reopened(folder: Path, log: Log, high_watermark: int, is_clean: bool) -> Log:
    log.close(clean=is_clean)
    again, report = reopen_log(folder, log.end_offset, 0, is_clean, high_watermark)
    assert not report.problems
    return again


def begin(log: Log, producer_id: int) -> None:
    append(log, make_batch(producer_id=producer_id, transactional=True))


def test_an_open_transaction_holds_it_back_below_the_high_watermark(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(3))
    begin(log, 1)
    append(log, make_batch(3))
    assert [log.last_stable_offset(offset) for offset in (2, 3, 7)] == [2, 3, 3]


def test_it_is_never_below_the_log_start(tmp_path: Path) -> None:
    """Records of an open transaction may be deleted; a reader must not be sent to where they were."""
    log = open_new(tmp_path)
    begin(log, 1)
    append(log, make_batch(3))
    log.advance_start(2)
    assert log.last_stable_offset(4) == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_open_transaction_is_known_after_a_restart(tmp_path: Path, is_clean: bool) -> None:
    log = open_new(tmp_path)
    begin(log, 1)
    log.roll(NOW_MS)
    append(log, make_batch())
    flush(log)
    assert reopened(tmp_path, log, 2, is_clean).last_stable_offset(2) == 0


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("marker", [Marker.COMMIT, Marker.ABORT])
def test_a_marker_that_may_be_lost_decides_nothing_after_a_restart(
    tmp_path: Path, marker: Marker, is_clean: bool
) -> None:
    log = open_new(tmp_path)
    append(log, make_batch())
    begin(log, 1)
    append_marker(log, marker, 1)
    append(log, make_batch())
    log.roll(NOW_MS)
    append(log, make_batch())
    flush(log)
    again = reopened(tmp_path, log, 2, is_clean)
    assert [again.last_stable_offset(offset) for offset in (2, 3, 5)] == [1, 3, 5]
    assert len(again.aborted_between(0, 5)) == (marker is Marker.ABORT), "it is in the index once"


def test_markers_behind_each_other_wait_for_the_first_that_began(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for producer_id in (1, 2, 3):
        begin(log, producer_id)
    for producer_id in (2, 1, 3):
        append_marker(log, Marker.COMMIT, producer_id)
    assert [log.last_stable_offset(offset) for offset in (3, 4, 5, 6)] == [0, 0, 2, 6]


def test_many_markers_that_are_not_committed_cost_a_reader_nothing() -> None:
    undecided = Undecided()
    for place in range(10_000):
        undecided.note(20_000 + place, 10_000 - place)
    assert len(undecided.ends) == 1, "those that began later wait for the first with it"
    for place in range(10_000):
        undecided.note(30_000 + place, 20_000 + place)
    assert [undecided.least(50_000, offset) for offset in (30_000, 35_001, 40_000)] == [
        20_000,
        25_001,
        50_000,
    ]


def test_no_more_is_read_than_before_unless_a_marker_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[tuple[int, int]] = []

    def noted(log: Log, start: int, end: int) -> bool:
        walked.append((start, end))
        return has_marker(log, start, end)

    monkeypatch.setattr("tidelog.log.replay.has_marker", noted)
    log = open_new(tmp_path)
    append(log, make_batch())
    log = reopened(tmp_path, log, 0, is_clean=True)
    assert walked == [], "no producer has ever ended a transaction"
    begin(log, 1)
    append_marker(log, Marker.COMMIT, 1)
    append(log, make_batch())
    for high_watermark, expected in ((4, []), (3, [(3, 4)]), (2, [(2, 4)])):
        walked.clear()
        log = reopened(tmp_path, log, high_watermark, is_clean=True)
        assert walked == expected


# Random histories, compared with a replay of what is committed.


class Walk:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.settings = make_settings(segment_bytes=random.choice((1_024, 4_000)), index_interval_bytes=100)
        self.folder = SimulatedDisk().root
        self.log = open_log(self.folder, self.settings, NOW_MS)[0]
        self.model = Model()
        self.sequences = dict.fromkeys(range(PRODUCER_COUNT), 0)
        self.open: set[int] = set()
        self.high_watermark = 0

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.25:
            self._add(make_batch(self.random.randint(1, 3)))
        elif choice < 0.6:
            self._begin(self.random.randrange(PRODUCER_COUNT))
        elif self.open:
            self._end(self.random.choice(sorted(self.open)))
        if choice > 0.95:
            self.log.roll(NOW_MS)

    def _add(self, batch: bytearray) -> None:
        append(self.log, batch)
        self.model.add(batch)

    def _begin(self, who: int) -> None:
        self._add(make_batch(producer_id=who, sequence=self.sequences[who], transactional=True))
        self.sequences[who] += 1
        self.open.add(who)

    def _end(self, who: int) -> None:
        self.open.discard(who)
        marker = self.random.choice((Marker.ABORT, Marker.COMMIT))
        batch = build_control_batch(
            marker, who, 0, 0, NOW_MS, base_offset=self.log.end_offset, leader_epoch=0
        )
        append_marker(self.log, marker, who)
        self.model.add(batch)

    def bounds(self) -> list[int]:
        """Where a high watermark can be: at the end of a batch, and not below where it was."""
        ends = [header.last_offset + 1 for header, _ in self.model.rows]
        return [self.high_watermark, *ends[bisect_left(ends, self.high_watermark + 1) :]]

    def advance(self) -> None:
        self.high_watermark = self.random.choice(self.bounds())

    def check(self) -> None:
        found = self.log.last_stable_offset(self.high_watermark)
        assert found == self.model.last_stable_offset(self.high_watermark)

    def reopen(self) -> None:
        is_clean = self.random.random() < 0.6
        flush(self.log)
        self.log.close(clean=is_clean)
        for name in self.folder.names():
            if name.endswith(SNAPSHOT_SUFFIX) and self.random.random() < 0.2:
                self.folder.remove(name)
        point = self.log.end_offset if is_clean else self.random.choice((0, self.high_watermark))
        self.log = open_log(
            self.folder, self.settings, NOW_MS, point, is_clean=is_clean, high_watermark=self.high_watermark
        )[0]

    def cut(self) -> None:
        """What is not committed is lost with a leader."""
        cut(self.log, self.random.choice(self.bounds()))
        self.model.cut(self.log.end_offset)
        state, _ = self.model.producers()
        self.open = {who for who, known in state.items() if known.transaction_offset >= 0}
        for who in self.sequences:
            known = state.get(who)
            self.sequences[who] = known.recent[-1][1] + 1 if known and known.recent else 0

    def verify(self) -> None:
        """At every high watermark to come, without going back."""
        for bound in self.bounds():
            assert self.log.last_stable_offset(bound) == self.model.last_stable_offset(bound)
        end = self.log.end_offset
        _, aborted = self.model.producers()
        for _ in range(10):
            start = self.random.randint(0, end)
            bound = self.random.randint(start, end)
            expected = [a for a in aborted if a.last_offset >= start and a.first_offset < bound]
            found = self.log.aborted_between(start, bound)
            assert found == sorted(expected, key=lambda entry: entry.first_offset)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_it_is_what_a_replay_of_the_committed_log_gives_over_restarts_and_cuts(seed: int) -> None:
    walk = Walk(Random(seed))
    for _ in range(WALKS):
        walk.step()
        chance = walk.random.random()
        if chance < 0.2:
            walk.advance()
        elif chance < 0.25:
            walk.cut()
        elif chance < 0.3:
            walk.reopen()
        walk.check()
    walk.reopen()
    walk.check()
    walk.verify()
