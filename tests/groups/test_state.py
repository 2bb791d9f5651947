"""A partition that is closed to groups of another: they stay as they are until they are let go."""

from __future__ import annotations

from tests.groups.desk import Desk, DeskTopics
from tidelog.base.decision import Entry
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.facts import offset_entry
from tidelog.groups.patterns import Patterns
from tidelog.groups.records import CLOSED_KEY, NO_ID, CommittedOffset

MINE, STRANGER = "mine", "stranger"


def offset(group_id: str, value: int, partition: int = 0) -> Entry:
    return offset_entry(group_id, "t", partition, CommittedOffset(value, -1, "", 0, -1, NO_ID))


def closed_desk() -> Desk:
    desk = Desk(DeskTopics(t=2))
    desk.coordinator = coordinator()
    for entry in (offset(MINE, 1), offset(STRANGER, 2), offset(STRANGER, 3, 1)):
        desk.journal.append(entry)
        desk.coordinator.replay(entry)
    desk.run(desk.coordinator.close)
    return desk


def coordinator() -> GroupCoordinator:
    return GroupCoordinator(Patterns(), lambda group_id: group_id == MINE)


def written(state: GroupCoordinator) -> dict[bytes, bytes | None]:
    return {entry.key: entry.value for piece in state.stored() for entry in piece}


def plain(*entries: Entry) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in entries if entry.value is not None}


def test_what_left_is_not_served_and_not_lost_when_the_journal_is_written_anew() -> None:
    state = closed_desk().coordinator
    assert list(state.groups) == [MINE] and not state.offsets.of(STRANGER)
    left = plain(offset(STRANGER, 2), offset(STRANGER, 3, 1))
    assert state.left == left
    again = coordinator()
    for key, value in written(state).items():
        again.replay(Entry(key, value))
    assert again.is_closed and again.left == left and list(again.groups) == [MINE]
    assert state.record_count == 4


def test_the_order_of_records_does_not_matter() -> None:
    entries = list(written(closed_desk().coordinator).items())
    for _ in entries:
        entries = entries[1:] + entries[:1]
        state = coordinator()
        for key, value in entries:
            state.replay(Entry(key, value))
        assert list(state.groups) == [MINE] and len(state.left) == 2


def test_what_was_let_go_is_gone() -> None:
    desk = closed_desk()
    desk.run(desk.coordinator.forget_left)
    assert not desk.coordinator.left
    latest: dict[bytes, bytes | None] = {entry.key: entry.value for entry in desk.journal}
    kept = [key for key, value in latest.items() if value is not None]
    assert kept == [offset(MINE, 1).key, CLOSED_KEY]


def test_an_offset_that_is_known_is_not_taken_back_by_what_comes_from_elsewhere() -> None:
    desk = closed_desk()
    desk.run(lambda turn: desk.coordinator.take_in(turn, [offset(MINE, 0), offset(MINE, 9, 1)]))
    committed = desk.coordinator.offsets.of(MINE)
    assert {spot: each.offset for spot, each in committed.items()} == {("t", 0): 1, ("t", 1): 9}
