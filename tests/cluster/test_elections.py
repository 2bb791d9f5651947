"""Who may lead, and what becomes of the others (R7, KIP-966)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.cluster.elections import decide_preferred, elect, give_up, is_fit, leave
from tidelog.cluster.image import NOBODY, BrokerEpoch, BrokerFacts, Image, PartitionFacts

NODES = st.lists(st.integers(1, 5), unique=True)


def settings_of(**config: str) -> TopicSettings:
    return TopicSettings(BrokerSettings({}), {key.replace("_", "."): text for key, text in config.items()})


SAFE = settings_of(min_insync_replicas="2")


def image_with(alive: list[int], distrusted: tuple[int, ...] = ()) -> Image:
    image = Image()
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
    for elected in (
        elect(image, facts, settings_of(unclean_leader_election_enable="true")),
        elect(image, facts, SAFE, is_unclean=True),
    ):
        assert elected is not None and elected.leader == 3 and elected.members == {3: 7}


def test_a_partition_that_nobody_can_lead_is_left_as_it_is() -> None:
    assert elect(image_with([3]), facts_of([1, 2], leader=NOBODY), SAFE) is None


def test_who_was_stopped_uncleanly_does_not_lead_though_it_is_the_last() -> None:
    image = image_with([1], distrusted=(1,))
    elected = elect(image, facts_of([1]), SAFE)
    assert elected is not None and elected.leader == NOBODY
    assert not is_fit(image, facts_of([1]))


def test_who_was_stopped_uncleanly_is_not_eligible_either() -> None:
    elected = elect(image_with([2, 3], distrusted=(3,)), facts_of([1, 3], [2]), SAFE)
    assert elected is not None and elected.leader == 2 and elected.eligible == [1]


def test_where_only_flushed_bytes_count_nobody_is_distrusted_but_the_epoch_is_new() -> None:
    image = image_with([1, 2], distrusted=(1, 2, 3))
    elected = elect(image, facts_of([1, 2, 3]), settings_of(min_insync_replicas="2", flush_messages="1"))
    assert elected is not None and (elected.leader, elected.leader_epoch) == (1, 10)
    assert elected.members[1] == 7


def test_the_only_replica_leads_on() -> None:
    elected = elect(image_with([1], distrusted=(1,)), facts_of([1], replicas=1), SAFE)
    assert elected is not None and (elected.leader, elected.leader_epoch) == (1, 10)


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
    assert {*elected.in_sync_replicas, *elected.eligible} <= {*isr, *eligible} - {*distrusted}
    assert set(elected.members) == {*elected.in_sync_replicas, *elected.eligible}
    assert not elected.eligible or len(elected.in_sync_replicas) < min_insync


@given(isr=NODES, stay=NODES, min_insync=st.integers(1, 5))
def test_nobody_is_in_sync_and_eligible_at_once(isr: list[int], stay: list[int], min_insync: int) -> None:
    eligible, members = leave(facts_of(isr, [], 1, 5), stay, min_insync)
    assert not {*eligible} & {*stay} and set(members) == {*eligible, *stay}
    assert bool(eligible) == (len(stay) < min_insync and bool({*isr} - {*stay}))


def test_a_failed_disk_leaves_the_isr_and_whoever_is_left_in_it_can_lead() -> None:
    left = give_up(facts_of([1, 2, 3]), 1)
    assert left is not None
    assert (left.leader, left.leader_epoch, left.version) == (NOBODY, 10, 4)
    assert (left.in_sync_replicas, left.members) == ([2, 3], {2: 5, 3: 5})
    elected = elect(image_with([1, 2, 3]), left, SAFE)
    assert elected is not None and (elected.leader, elected.in_sync_replicas) == (2, [2, 3])


def test_a_follower_with_a_failed_disk_leaves_its_leader_as_it_is() -> None:
    left = give_up(facts_of([1, 2, 3]), 3)
    assert left is not None
    assert (left.leader, left.leader_epoch, left.in_sync_replicas) == (1, 9, [1, 2])


def test_a_failed_disk_with_what_nobody_else_has_is_waited_for() -> None:
    assert give_up(facts_of([1]), 1) is None
    assert give_up(facts_of([1], [1]), 1) is None
    left = give_up(facts_of([1], [2]), 1)
    assert left is not None and (left.in_sync_replicas, left.eligible) == ([], [2])


def test_a_failed_disk_that_counts_for_nothing_changes_nothing() -> None:
    assert give_up(facts_of([1, 2]), 3) is None
