"""Who may lead, and what becomes of the others (R7, KIP-966)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.cluster.elections import answer, decide_preferred, elect, give_up, is_fit, leave, recovered_alone
from tidelog.cluster.facts import (
    FLUSHED,
    LOST_STAMP,
    NOBODY,
    NOWHERE,
    TORN_STAMP,
    Answer,
    BrokerEpoch,
    BrokerFacts,
    PartitionFacts,
)
from tidelog.cluster.image import Image

NODES = st.lists(st.integers(1, 5), unique=True)


def settings_of(**config: str) -> TopicSettings:
    return TopicSettings(BrokerSettings({}), {key.replace("_", "."): text for key, text in config.items()})


SAFE = settings_of(min_insync_replicas="2")


def image_with(alive: list[int], distrusted: tuple[int, ...] = ()) -> Image:
    image = Image()
    image.feature_levels = {"tidelog.version": 2}
    for node_id in range(1, 6):
        image.broker_epochs[node_id] = BrokerEpoch(7, 7 if node_id in distrusted else 1)
    for node_id in alive:
        image.brokers[node_id] = BrokerFacts(node_id, "h", 1, "", 7)
    return image


def facts_of(isr: list[int], eligible: list[int] = [], leader: int = 1, replicas: int = 3) -> PartitionFacts:  # noqa: B006
    members = dict.fromkeys((*isr, *eligible), 5)
    return PartitionFacts(leader, 9, isr, list(range(1, replicas + 1)), 4, eligible, members)


def test_the_first_alive_member_in_the_order_of_replicas_leads_under_the_next_epoch() -> None:
    elected = elect(image_with([3, 2]), facts_of([3, 1, 2]), SAFE)
    assert elected is not None
    assert (elected.leader, elected.leader_epoch, elected.version) == (2, 10, 4)
    assert (elected.in_sync_replicas, elected.eligible) == ([2, 3], [])
    assert elected.members == {2: 7, 3: 5}


def test_who_leaves_below_the_minimum_is_eligible() -> None:
    elected = elect(image_with([2]), facts_of([1, 2, 3]), SAFE)
    assert elected is not None
    assert (elected.leader, elected.in_sync_replicas, elected.eligible) == (2, [2], [1, 3])


def test_an_eligible_one_leads_when_nobody_in_sync_is_there() -> None:
    elected = elect(image_with([3]), facts_of([1], [2, 3]), SAFE)
    assert elected is not None
    assert (elected.leader, elected.in_sync_replicas, elected.eligible) == (3, [3], [1, 2])


def test_others_lead_only_if_that_is_allowed() -> None:
    image, facts = image_with([3]), facts_of([1, 2])
    nobody = elect(image, facts, SAFE)
    assert nobody is not None and nobody.leader == NOBODY
    assert (nobody.in_sync_replicas, nobody.leader_epoch) == ([1, 2], 10)
    assert nobody.answers == {} and elect(image, nobody, SAFE) is None
    unclean = settings_of(unclean_leader_election_enable="true")
    for settings, asked in ((unclean, nobody), (SAFE, replace(nobody, is_unclean=True))):
        assert elect(image, asked, settings) is None  # until all have answered that are there
        answered = answer(image, asked, settings, 3, Answer(7, 4, 10))
        assert answered is not None
        elected = elect(image, answered, settings)
        assert elected is not None and elected.leader == 3 and elected.members == {3: 7}
        assert elected.answers == {} and not elected.is_unclean


def test_who_recovers_leads_under_an_epoch_that_no_log_has() -> None:
    """The store may be an older copy that does not know."""
    facts = replace(facts_of([1], leader=NOBODY), members={1: TORN_STAMP}, answers={1: Answer(7, 31, 12)})
    elected = elect(image_with([1]), facts, SAFE)
    assert elected is not None and elected.leader_epoch == 32


def test_before_all_brokers_know_answers_an_unclean_election_takes_the_first_that_is_there() -> None:
    image = image_with([3])
    image.feature_levels = {"tidelog.version": 1}
    nobody = facts_of([1, 2], leader=NOBODY)
    elected = elect(image, nobody, settings_of(unclean_leader_election_enable="true"))
    assert elected is not None and elected.leader == 3
    assert answer(image, nobody, SAFE, 3, Answer(7, 4, 10)) is None


def test_before_all_brokers_know_answers_the_only_member_leads_unless_it_may_have_lost_anything() -> None:
    image, facts = image_with([1, 2], (1, 2)), facts_of([1], leader=NOBODY, replicas=1)
    image.feature_levels = {"tidelog.version": 1}
    elected = elect(image, facts, SAFE)
    assert elected is not None
    assert (elected.leader, elected.leader_epoch, elected.members) == (1, 10, {1: 7})
    torn, lost = replace(facts, members={1: TORN_STAMP}), replace(facts, members={1: LOST_STAMP})
    assert elect(image, torn, SAFE) == elected
    assert elect(image, lost, SAFE) is None
    assert elect(image, facts, settings_of(unclean_recovery_strategy="None")) is None
    assert elect(image, facts_of([1, 2], leader=NOBODY), SAFE) is None
    assert elect(image, facts_of([3], leader=NOBODY), SAFE) is None  # is not there


def test_a_partition_that_nobody_can_lead_is_left_as_it_is() -> None:
    assert elect(image_with([3]), facts_of([1, 2], leader=NOBODY), SAFE) is None


def test_who_was_stopped_uncleanly_does_not_lead_though_it_is_the_last() -> None:
    image = image_with([1], distrusted=(1,))
    elected = elect(image, facts_of([1]), SAFE)
    assert elected is not None and elected.leader == NOBODY
    assert not is_fit(image, facts_of([1]))


def test_a_member_that_does_not_count_stays_listed_while_too_few_do() -> None:
    elected = elect(image_with([2, 3], distrusted=(3,)), facts_of([1, 3], [2]), SAFE)
    assert elected is not None and elected.leader == 2 and elected.eligible == [1, 3]
    assert elected.members == {1: 5, 2: 7, 3: 5}


def test_where_all_that_is_committed_is_flushed_a_power_cut_is_excused_and_nothing_else() -> None:
    image = image_with([1, 2, 3], distrusted=(1, 2, 3))
    facts = replace(facts_of([1, 2, 3]), flush=FLUSHED)
    elected = elect(image, facts, SAFE)
    assert elected is not None and (elected.leader, elected.leader_epoch) == (1, 10)
    assert elected.members[1] == 7
    for stamp in (TORN_STAMP, LOST_STAMP):
        elected = elect(image, replace(facts, members={1: stamp, 2: 5, 3: 5}), SAFE)
        assert elected is not None and elected.leader == 2 and 1 not in elected.in_sync_replicas


def test_the_setting_alone_excuses_nothing() -> None:
    flushed = settings_of(min_insync_replicas="2", flush_messages="1")
    elected = elect(image_with([1, 2], distrusted=(1, 2)), facts_of([1, 2]), flushed)
    assert elected is not None and elected.leader == NOBODY


# Recovery: no member counts.


def recovering(ends: dict[int, tuple[int, int]], stamps: dict[int, int], flush: int = 0) -> PartitionFacts:
    """Three members, none of which counts, and where the logs of some end."""
    facts = replace(facts_of([1, 2], [3], NOBODY), members={1: 5, 2: 5, 3: 5} | stamps, flush=flush)
    return replace(facts, answers={node_id: Answer(7, *end) for node_id, end in ends.items()})


def test_the_longest_log_leads_once_all_members_have_answered() -> None:
    image = image_with([1, 2, 3], distrusted=(1, 2, 3))
    assert elect(image, recovering({1: (4, 10), 2: (4, 12)}, {}), SAFE) is None
    elected = elect(image, recovering({1: (4, 10), 2: (4, 12), 3: (3, 90)}, {}), SAFE)
    assert elected is not None and (elected.leader, elected.in_sync_replicas) == (2, [2])
    assert (elected.eligible, elected.answers) == ([1, 3], {})  # nobody is forgotten


def test_a_member_that_counts_is_waited_for() -> None:
    image = image_with([1, 2], distrusted=(1, 2))
    facts = recovering({1: (4, 10), 2: (4, 12)}, {})
    assert elect(image, facts, SAFE) is None
    assert answer(image, facts, SAFE, 1, Answer(7, 4, 11)) is None  # and nobody is asked


def test_an_answer_of_an_earlier_registration_is_void() -> None:
    image = image_with([1, 2, 3], distrusted=(1, 2, 3))
    facts = recovering({1: (4, 10), 2: (4, 12), 3: (4, 11)}, {})
    facts.answers[2] = Answer(6, 4, 12)
    assert elect(image, facts, SAFE) is None


def test_logs_that_may_have_lost_anything_do_not_lead_by_themselves() -> None:
    image = image_with([1, 2, 3], distrusted=(1, 2, 3))
    ends = {1: (4, 10), 2: (4, 12), 3: (4, 11)}
    assert elect(image, recovering(ends, dict.fromkeys((1, 2, 3), LOST_STAMP)), SAFE) is None
    elected = elect(image, recovering(ends, {1: TORN_STAMP, 2: LOST_STAMP, 3: LOST_STAMP}), SAFE)
    assert elected is not None and elected.leader == 2


def test_where_all_is_flushed_as_many_as_the_minimum_suffice() -> None:
    image = image_with([1, 2], distrusted=(1, 2, 3))
    torn = dict.fromkeys((1, 2, 3), TORN_STAMP)
    assert elect(image, recovering({1: (4, 10)}, torn, FLUSHED), SAFE) is None
    elected = elect(image, recovering({1: (4, 10), 2: (4, 12)}, torn, FLUSHED), SAFE)
    assert elected is not None and elected.leader == 2


def test_where_all_is_flushed_nobody_waits_for_one_that_answered_and_is_gone() -> None:
    image = image_with([1, 2], distrusted=(1, 2, 3))
    ends = {1: (4, 10), 2: (4, 12), 3: (4, 13)}
    elected = elect(image, recovering(ends, dict.fromkeys((1, 2, 3), TORN_STAMP), FLUSHED), SAFE)
    assert elected is not None and elected.leader == 2
    assert elect(image, recovering(ends, dict.fromkeys((1, 2, 3), TORN_STAMP)), SAFE) is None


def test_a_log_that_cannot_be_opened_has_not_answered_but_holds_up_no_unclean_election() -> None:
    image = image_with([1, 2, 3], distrusted=(1, 2, 3))
    facts = recovering({1: (4, 10), 2: (4, 12), 3: (-1, NOWHERE)}, {})
    assert elect(image, facts, SAFE) is None
    elected = elect(image, facts, settings_of(unclean_recovery_strategy="Aggressive"))
    assert elected is not None and elected.leader == 2


def test_a_partition_may_be_set_to_stay_offline() -> None:
    image, stays = image_with([1, 2, 3], distrusted=(1, 2, 3)), settings_of(unclean_recovery_strategy="None")
    facts = recovering({1: (4, 10), 2: (4, 12), 3: (4, 11)}, {})
    assert elect(image, facts, stays) is None
    assert answer(image, facts, stays, 1, Answer(7, 4, 11)) is None


def test_the_only_member_leads_on_under_a_new_epoch_unless_it_may_have_lost_anything() -> None:
    for stamp, leads in ((5, True), (TORN_STAMP, True), (LOST_STAMP, False)):
        led = recovered_alone(replace(facts_of([1]), members={1: stamp}), 1, 7)
        assert (led is not None) == leads
        assert led is None or (led.leader, led.leader_epoch, led.members) == (1, 10, {1: 7})
    assert recovered_alone(facts_of([1], [2]), 1, 7) is None


def test_leadership_goes_back_to_the_first_replica_only_if_that_is_in_sync_trusted_and_there() -> None:
    facts = facts_of([1, 2], leader=2)
    returned = decide_preferred(image_with([1, 2]), facts)
    assert returned is not None and (returned.leader, returned.leader_epoch) == (1, 10)
    assert returned.in_sync_replicas == [1, 2]
    assert decide_preferred(image_with([2]), facts) is None
    assert decide_preferred(image_with([1, 2], distrusted=(1,)), facts) is None
    assert decide_preferred(image_with([1, 2]), facts_of([2, 3], leader=2)) is None
    assert decide_preferred(image_with([1, 2]), facts_of([1, 2], leader=1)) is None


@given(alive=NODES, distrusted=NODES, isr=NODES, eligible=NODES, min_insync=st.integers(1, 5))
def test_whoever_leads_was_a_trusted_member_and_nobody_comes_from_nowhere(
    alive: list[int], distrusted: list[int], isr: list[int], eligible: list[int], min_insync: int
) -> None:
    image = image_with(alive, tuple(distrusted))
    facts = facts_of(isr, [node_id for node_id in eligible if node_id not in isr], NOBODY, 5)
    elected = elect(image, facts, settings_of(min_insync_replicas=str(min_insync)))
    if elected is None:
        assert not any(n in alive and n not in distrusted for n in (*isr, *facts.eligible))
        return
    assert elected.leader in alive and elected.leader not in distrusted
    assert elected.leader in isr or (
        elected.leader in eligible and elected.in_sync_replicas == [elected.leader]
    )
    assert elected.in_sync_replicas[0] == elected.leader
    assert {*elected.in_sync_replicas, *elected.eligible} <= {*isr, *eligible}
    assert not {*elected.in_sync_replicas} & {*distrusted}
    listed = {*isr, *eligible} if len(elected.in_sync_replicas) < min_insync else set()
    assert {*elected.eligible} >= listed - {*elected.in_sync_replicas}
    assert set(elected.members) == {*elected.in_sync_replicas, *elected.eligible}
    assert not elected.eligible or len(elected.in_sync_replicas) < min_insync


@given(isr=NODES, stay=NODES, min_insync=st.integers(1, 5))
def test_nobody_is_in_sync_and_eligible_at_once(isr: list[int], stay: list[int], min_insync: int) -> None:
    eligible, members = leave(facts_of(isr, [], 1, 5), stay, min_insync)
    assert not {*eligible} & {*stay} and set(members) == {*eligible, *stay}
    assert bool(eligible) == (len(stay) < min_insync and bool({*isr} - {*stay}))


def test_who_leads_with_a_failed_disk_leads_no_more_and_stays_listed() -> None:
    left = give_up(facts_of([1, 2, 3]), 1, LOST_STAMP)
    assert left is not None
    assert (left.leader, left.leader_epoch, left.version) == (NOBODY, 10, 4)
    assert (left.in_sync_replicas, left.members) == ([1, 2, 3], {1: LOST_STAMP, 2: 5, 3: 5})
    elected = elect(image_with([1, 2, 3]), left, SAFE)
    assert elected is not None and (elected.leader, elected.in_sync_replicas) == (2, [2, 3])


def test_a_follower_with_a_failed_disk_leaves_its_leader_as_it_is() -> None:
    left = give_up(facts_of([1, 2, 3]), 3, LOST_STAMP)
    assert left is not None
    assert (left.leader, left.leader_epoch, left.members[3]) == (1, 9, LOST_STAMP)
    assert give_up(left, 3, LOST_STAMP) is None


def test_the_last_member_with_a_failed_disk_leaves_a_partition_that_an_unclean_election_can_help() -> None:
    image, unclean = image_with([1, 2]), settings_of(unclean_leader_election_enable="true")
    left = give_up(facts_of([1]), 1, LOST_STAMP)
    assert left is not None and left.leader == NOBODY and elect(image, left, SAFE) is None
    for node_id, end in ((1, (-1, NOWHERE)), (2, (3, 40))):
        left = answer(image, left, unclean, node_id, Answer(7, *end))
        assert left is not None
    elected = elect(image, left, unclean)
    assert elected is not None and elected.leader == 2  # whose disk is well


def test_a_failed_disk_that_counts_for_nothing_changes_nothing() -> None:
    assert give_up(facts_of([1, 2]), 3, LOST_STAMP) is None


def test_an_answer_goes_with_the_disk_it_was_of() -> None:
    facts = recovering({1: (4, 10), 2: (4, 12)}, {})
    left = give_up(facts, 2, LOST_STAMP)
    assert left is not None and [*left.answers] == [1]
