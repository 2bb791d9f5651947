"""Ids of members that never come back: kept while somebody may join with them, and no longer."""

from __future__ import annotations

import pytest

from tests.groups.desk import Desk, DeskTopics, Waiting
from tidelog.base.limits import PENDING_BYTES_MAX
from tidelog.groups import given
from tidelog.groups.classic_member import Join, JoinAnswer
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
def desk() -> Desk:
    return Desk(DeskTopics(t=4))


def join(desk: Desk, group_id: str, member_id: str = "") -> JoinAnswer:
    waiting = Waiting()
    protocols = (("range", b""),)
    asked = Join(group_id, member_id, None, "c", "/h", 6_000, 6_000, "consumer", protocols, True, True)
    desk.run(lambda turn: desk.coordinator.join(turn, asked, waiting))
    answer: JoinAnswer = waiting.answer
    return answer


def ask_for_id(desk: Desk, group_id: str = "g") -> str:
    answer = join(desk, group_id)
    assert answer.error is ErrorCode.member_id_required
    return answer.member_id


def test_an_id_that_nobody_comes_with_is_forgotten_with_its_group(desk: Desk) -> None:
    for number in range(100):
        ask_for_id(desk, f"group-{number}")
    assert len(desk.coordinator.given) == len(desk.coordinator.groups) == 100
    desk.tick(6_000)
    assert len(desk.coordinator.given) == len(desk.coordinator.groups) == 0


def test_an_id_that_somebody_joins_or_leaves_with_is_not_given_any_more(desk: Desk) -> None:
    first, second = ask_for_id(desk), ask_for_id(desk)
    desk.join(first)
    assert len(desk.coordinator.given) == 1
    desk.leave(second)
    assert len(desk.coordinator.given) == 0


def test_a_group_that_goes_takes_its_given_ids_along(desk: Desk) -> None:
    desk.commit(5)
    ask_for_id(desk)
    waiting = Waiting()
    desk.run(lambda turn: desk.coordinator.delete_group(turn, "g", waiting))
    assert waiting.answer is ErrorCode.none
    assert len(desk.coordinator.given) == 0


def test_groups_that_are_asked_alternately_do_not_fill_the_list(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "PENDING_MEMBERS_MAX", 4)
    ids = {name: ask_for_id(desk, name) for name in ("a", "b")}
    for _ in range(10):
        for name in ids:
            assert join(desk, name, "unknown").error is ErrorCode.unknown_member_id
            ids[name] = ask_for_id(desk, name)
    assert len(desk.coordinator.given) == 4


def test_long_names_are_bounded_by_their_size(desk: Desk) -> None:
    names = [f"{number}-" + "n" * 30_000 for number in range(200)]
    for name in names:
        ask_for_id(desk, name)
    kept = list(desk.coordinator.groups)
    assert kept == names[-len(kept) :]
    assert 0.9 * PENDING_BYTES_MAX < sum(map(len, kept)) <= PENDING_BYTES_MAX
