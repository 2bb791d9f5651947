"""The checks over what members told find what they are meant to find."""

from __future__ import annotations

from tests.compat.groups.ledger import (
    committed_again,
    missing,
    outside_tenure,
    owned,
    tenures,
    twice,
    two_owners,
)
from tests.compat.groups.spec import Event, Place

A, B = ("t", 0), ("t", 1)


def assigned(at: int, member: str, generation: int, *partitions: tuple[str, int]) -> Event:
    return Event("assigned", at, member, member, generation, partitions)


def revoked(at: int, member: str, *partitions: tuple[str, int]) -> Event:
    return Event("revoked", at, member, member, partitions=partitions)


def records(at: int, member: str, *offsets: int) -> Event:
    return Event("records", at, member, places=tuple(Place(*A, offset) for offset in offsets))


def test_two_at_the_same_time_are_found() -> None:
    assert two_owners([assigned(1, "x", 1, A), assigned(2, "y", 2, A)])
    assert two_owners([assigned(1, "x", 1, A), assigned(2, "y", 2, A), revoked(3, "x", A)])
    assert not two_owners([assigned(1, "x", 1, A), revoked(2, "x", A), assigned(3, "y", 2, A)])
    assert not two_owners([assigned(1, "x", 1, A), assigned(2, "y", 1, B)])


def test_two_in_one_generation_are_found_although_one_came_later() -> None:
    assert two_owners([assigned(1, "x", 1, A), revoked(2, "x", A), assigned(3, "y", 1, A)])


def test_who_leaves_or_is_stopped_has_nothing() -> None:
    for kind in ("leaving", "stopped"):
        events = [assigned(1, "x", 1, A, B), Event(kind, 2, "x"), assigned(3, "y", 2, A)]
        assert owned(events) == {"y": {A}}
        assert not two_owners(events)
        assert [tenure.until_ns for tenure in tenures(events)][:2] == [2, 2]


def test_who_is_leaving_takes_nothing_on_but_who_was_stopped_may_come_back() -> None:
    for kind, found in (("leaving", {}), ("stopped", {"x": {A}})):
        assert owned([assigned(1, "x", 1, A), Event(kind, 2, "x"), assigned(3, "x", 2, A)]) == found


def test_a_record_of_a_partition_that_was_given_up_is_found() -> None:
    assert not outside_tenure([assigned(1, "x", 1, A), records(2, "x", 0)])
    assert outside_tenure([assigned(1, "x", 1, A), revoked(2, "x", A), records(3, "x", 0)])


def test_a_record_that_comes_after_its_commit_is_found() -> None:
    committed = Event("committed", 2, "x", places=(Place(*A, 5),))
    assert committed_again([records(1, "x", 3, 4), committed, records(3, "y", 4)])
    assert not committed_again([records(1, "x", 3, 4), committed, records(3, "y", 5)])


def test_records_that_never_come_or_come_twice_are_found() -> None:
    events = [records(1, "x", 0, 1), records(2, "y", 1)]
    assert missing(events, {A: 3}) == ["('t', 0) at 2 came to nobody"]
    assert len(twice(events)) == 1
