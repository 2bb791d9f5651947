"""A leader's rules, one by one: when the high watermark moves, who is in sync, what stays pending (R3–R6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.replication.leading import image_of
from tidelog.base.limits import FOLLOWER_AWAIT_MS_MAX, FOLLOWER_AWAIT_PAUSE_MS
from tidelog.cluster.facts import FLUSHED, FLUSHING, BrokerEpoch, PartitionFacts
from tidelog.replication.leader import UNKNOWN_OFFSET, Leadership

LAG_MS = 1_000


class Led:
    """Broker 1 leads, with 2 and 3 as followers; its log ends at 100."""

    def __init__(self, in_sync: tuple[int, ...] = (1, 2, 3), min_insync: int = 2) -> None:
        self.image = image_of(1, 2, 3)
        self.min_insync = min_insync
        self.end_offset = 100
        self.high_watermark = 0
        self.now_ms = 0
        members = dict.fromkeys(in_sync, 1)
        facts = PartitionFacts(1, 5, list(in_sync), [1, 2, 3], 0, [], members)
        self.leadership = Leadership(1, self.image, facts, 0, 0)

    def fetch(self, node_id: int, offset: int, epoch: int = 1) -> None:
        self.leadership.on_fetch(node_id, epoch, offset, self.end_offset, self.now_ms)

    def committed(self) -> int:
        return self.leadership.committed(self.end_offset, self.min_insync)

    def propose(self, wants_flushed: bool = False) -> PartitionFacts | None:
        return self.leadership.propose(
            self.now_ms, LAG_MS, self.min_insync, self.end_offset, self.high_watermark, wants_flushed
        )

    def confirm(self, facts: PartitionFacts) -> None:
        self.leadership.on_facts(replace(facts, version=facts.version + 1), self.now_ms)

    def restart(self, node_id: int, *, is_clean: bool) -> int:
        """A broker registers again; the epoch it has now."""
        known = self.image.broker_epochs[node_id]
        epoch = known.epoch + 1
        self.image.broker_epochs[node_id] = BrokerEpoch(epoch, known.trusted_since if is_clean else epoch)
        self.image.brokers[node_id].epoch = epoch
        return epoch


def test_what_every_member_has_is_committed() -> None:
    led = Led()
    led.fetch(2, 70)
    assert led.committed() == UNKNOWN_OFFSET  # of broker 3 nothing is known yet
    led.fetch(3, 90)
    assert led.committed() == 70


def test_what_is_committed_is_flushed_when_all_have_fetched_under_the_new_epoch() -> None:
    """Also where nothing is written and all was committed long ago: a fetch shows that it is on the disk."""
    led = Led()
    members = dict.fromkeys((1, 2, 3), 1)
    facts = PartitionFacts(1, 6, [1, 2, 3], [1, 2, 3], 0, [], members, flush=FLUSHING)
    led.leadership = Leadership(1, led.image, facts, 100, 0)
    led.high_watermark = 100
    led.fetch(2, 100)
    assert led.propose(wants_flushed=True) is None
    led.fetch(3, 100)
    proposed = led.propose(wants_flushed=True)
    assert proposed is not None and proposed.flush == FLUSHED
    led.end_offset = 99  # of what this broker itself has flushed
    assert led.propose(wants_flushed=True) is None


def test_nothing_is_flushed_while_there_are_eligible_replicas() -> None:
    led = Led(in_sync=(1, 2))
    facts = PartitionFacts(1, 6, [1, 2], [1, 2, 3], 0, [3], dict.fromkeys((1, 2, 3), 1), flush=FLUSHING)
    led.leadership = Leadership(1, led.image, facts, 100, 0)
    led.fetch(2, 100)
    assert led.leadership.propose(0, LAG_MS, 3, 100, 100, wants_flushed=True) is None


def test_a_replica_that_is_not_in_sync_is_not_waited_for() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 80)
    led.fetch(3, 10)
    assert led.committed() == 80


def test_too_few_in_sync_commit_nothing() -> None:
    led = Led(in_sync=(1,))
    assert led.committed() == UNKNOWN_OFFSET
    led.min_insync = 1
    assert led.committed() == 100


def test_a_pending_shrink_still_waits_for_who_leaves() -> None:
    led = Led()
    led.fetch(2, 100)
    led.fetch(3, 10)
    led.now_ms = LAG_MS + 1
    led.fetch(2, 100)
    proposed = led.propose()
    assert proposed is not None and proposed.in_sync_replicas == [1, 2] and proposed.eligible == []
    led.leadership.begin_change(proposed)
    assert led.committed() == 10
    led.confirm(proposed)
    assert led.committed() == 100


def test_a_pending_growth_waits_for_who_joins() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100)
    led.high_watermark = led.committed()
    led.fetch(3, 100)
    proposed = led.propose()
    assert proposed is not None and proposed.in_sync_replicas == [1, 2, 3]
    assert list(led.leadership.joining(proposed)) == [3]
    led.leadership.begin_change(proposed)
    led.end_offset = 120
    led.fetch(2, 120)
    assert led.committed() == 100  # the store may have taken broker 3 in already, and 3 may be elected


def test_only_one_change_is_pending_at_a_time_and_an_abandoned_one_is_proposed_again() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100)
    led.fetch(3, 100)
    proposed = led.propose()
    assert proposed is not None
    led.leadership.begin_change(proposed)
    assert led.propose() is None
    led.leadership.abandon()
    assert led.propose() == proposed


def test_who_leaves_below_the_minimum_stays_eligible_and_nothing_is_committed_until_that_is_undone() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100)
    del led.image.brokers[2]
    proposed = led.propose()
    assert proposed is not None
    assert (proposed.in_sync_replicas, proposed.eligible) == ([1], [2])
    assert proposed.members == {1: 1, 2: 1}
    led.leadership.begin_change(proposed)
    led.confirm(proposed)
    led.min_insync = 1  # somebody lowers it: what broker 2 lacks must not be committed while it may lead
    assert led.committed() == UNKNOWN_OFFSET
    cleared = led.propose()
    assert cleared is not None and cleared.eligible == [] and cleared.in_sync_replicas == [1]
    led.leadership.begin_change(cleared)
    assert led.committed() == UNKNOWN_OFFSET
    led.confirm(cleared)
    assert led.committed() == 100


def test_an_unclean_member_counts_for_nothing_until_it_is_taken_in_again() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100)
    assert led.committed() == 100
    epoch = led.restart(2, is_clean=False)
    led.end_offset = 150
    led.fetch(2, 150, epoch)
    assert led.committed() == UNKNOWN_OFFSET
    proposed = led.propose()
    assert proposed is not None and proposed.members == {1: 1, 2: epoch}
    led.leadership.begin_change(proposed)
    assert led.committed() == UNKNOWN_OFFSET  # only one member would be counted by an election now
    led.confirm(proposed)
    assert led.committed() == 150


def test_a_clean_restart_keeps_a_membership() -> None:
    led = Led(in_sync=(1, 2))
    epoch = led.restart(2, is_clean=True)
    led.fetch(2, 60, epoch)
    assert led.committed() == 60


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_fetch_under_another_epoch_than_the_registered_one_does_not_count(epoch: int) -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100, epoch)
    assert led.committed() == UNKNOWN_OFFSET


def test_nobody_joins_who_lacks_what_is_committed_is_gone_or_is_stopping() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100)
    led.high_watermark = 100
    led.fetch(3, 99)
    assert led.propose() is None
    led.fetch(3, 100)
    assert led.propose() is not None
    led.image.brokers[3].is_stopping = True
    assert led.propose() is None
    del led.image.brokers[3]
    assert led.propose() is None


def test_a_follower_is_in_sync_as_long_as_it_keeps_up_with_what_it_was_shown() -> None:
    """Behind at every fetch, because more has come meanwhile, but never by more than one of them."""
    led = Led()
    for step in range(10):
        led.now_ms = step * LAG_MS // 2
        led.fetch(2, led.end_offset)
        led.fetch(3, led.end_offset)
        led.end_offset += 50
    assert led.propose() is None
    led.now_ms += LAG_MS // 2
    led.fetch(2, led.end_offset)
    led.now_ms += LAG_MS // 2 + 1
    proposed = led.propose()
    assert proposed is not None and proposed.in_sync_replicas == [1, 2]


def test_a_follower_that_has_everything_stays_however_long_ago_it_asked() -> None:
    led = Led()
    led.fetch(2, 100)
    led.fetch(3, 100)
    led.now_ms = 10 * LAG_MS
    assert led.propose() is None


def test_a_consumer_is_sent_to_the_follower_in_its_rack_that_has_what_it_asks_for() -> None:
    led = Led()
    for node_id, rack in ((1, "a"), (2, "b"), (3, "b")):
        led.image.brokers[node_id].rack = rack
    led.fetch(2, 50)
    led.fetch(3, 60)
    for progress in led.leadership.followers.values():
        progress.start_offset = 0
    assert led.leadership.preferred_for("b", 40) == 3
    assert led.leadership.preferred_for("b", 70) is None
    assert led.leadership.preferred_for("a", 40) is None
    assert led.leadership.preferred_for("c", 40) is None
    led.image.brokers[3].listeners = {"INTERNAL": ("10.0.0.3", 9092)}
    assert led.leadership.preferred_for("b", 40) == 2, "3 is hidden from this consumer"
    assert led.leadership.preferred_for("b", 40, "INTERNAL") == 3


def test_a_follower_that_is_always_one_fetch_behind_is_waited_for_once() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(2, 100)
    led.fetch(3, 80)
    led.high_watermark = led.committed()
    led.now_ms, led.end_offset = 10, 120
    led.fetch(2, 120)
    led.fetch(3, 100)
    led.high_watermark = led.committed()
    assert led.high_watermark == 120 and not led.leadership.may_admit(3, led.high_watermark)
    assert led.leadership.may_await(3, led.now_ms)
    led.leadership.begin_await(3, led.now_ms)
    led.now_ms, led.end_offset = 20, 140
    led.fetch(2, 140)
    assert led.committed() == 100  # nothing more than 120 is committed until broker 3 has asked again
    led.fetch(3, 120)
    assert led.leadership.may_admit(3, led.high_watermark)


def test_nobody_is_waited_for_long_or_often_or_who_does_not_keep_up() -> None:
    led = Led(in_sync=(1, 2))
    led.fetch(3, 10)
    led.now_ms = 10
    led.fetch(3, 50)
    assert not led.leadership.may_await(3, led.now_ms)  # there was more than that when it asked before
    led.now_ms, led.end_offset = 20, 110
    led.fetch(3, 100)
    assert led.leadership.may_await(3, led.now_ms)
    led.leadership.begin_await(3, led.now_ms)
    assert not led.leadership.is_await_over(led.now_ms + FOLLOWER_AWAIT_MS_MAX)
    assert led.leadership.is_await_over(led.now_ms + FOLLOWER_AWAIT_MS_MAX + 1)
    led.leadership.awaited = None
    led.now_ms += FOLLOWER_AWAIT_MS_MAX + 2
    led.fetch(3, 110)
    assert not led.leadership.may_await(3, led.now_ms)
    assert led.leadership.may_await(3, 20 + FOLLOWER_AWAIT_PAUSE_MS)


def test_a_fetch_under_a_former_epoch_counts_if_nothing_was_lost_since_and_one_of_a_later_never() -> None:
    led = Led()
    led.fetch(3, 90)
    led.restart(2, is_clean=True)
    led.fetch(2, 70, epoch=1)  # it has registered, and not heard of it
    assert led.committed() == 70
    led.fetch(2, 70, epoch=3)  # which the leader has not read of: who knows what it has lost
    assert led.committed() == UNKNOWN_OFFSET


def test_a_late_fetch_of_before_a_loss_does_not_count_for_who_was_taken_in_again() -> None:
    led = Led()
    led.fetch(3, 90)
    epoch = led.restart(2, is_clean=False)
    facts = led.leadership.facts
    led.confirm(replace(facts, members={**facts.members, 2: epoch}))
    led.fetch(2, 70, epoch=epoch)
    assert led.committed() == 70
    led.fetch(2, 80, epoch=1)
    assert led.committed() == UNKNOWN_OFFSET


def test_who_left_by_itself_is_taken_in_again_when_it_shows_what_it_has() -> None:
    led = Led()
    for node_id in (2, 3):
        led.fetch(node_id, 100)
    left = replace(led.leadership.facts, in_sync_replicas=[1, 2], members={1: 1, 2: 1})
    led.confirm(left)
    assert led.propose() is None, "its disk may have failed, however much it had"
    led.fetch(3, 100)
    proposed = led.propose()
    assert proposed is not None and proposed.in_sync_replicas == [1, 2, 3]
