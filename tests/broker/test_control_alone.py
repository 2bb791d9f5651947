"""The controller's part by itself: who becomes it, and what becomes of what it writes."""

from __future__ import annotations

import pytest

from tests.broker.parts import Controlled, told
from tidelog.cluster.facts import NOBODY, encode_fields
from tidelog.cluster.paths import NAMES
from tidelog.cluster.store import Action, Create, Done, Multi, Outcome, Refused, Unknown

WANTED = Create(f"{NAMES}/t", encode_fields(id="00"))


def written(plane: Controlled) -> list[Outcome]:
    heard: list[Outcome] = []
    plane.control.write([WANTED], heard.append)
    return heard


def test_a_registered_broker_becomes_the_controller_where_there_is_none() -> None:
    plane = Controlled()
    plane.control.tick()
    plane.stored.settle()
    plane.control.note_controller()
    assert plane.control.is_controller and plane.image.controller_epoch == 1
    assert told(plane.kernel.outbox) == ["controller elected"]


def test_one_that_is_not_registered_does_not_stand() -> None:
    plane = Controlled()
    plane.standing.is_registered = False
    plane.control.tick()
    assert plane.stored.settle() == []


def test_who_loses_the_candidacy_learns_who_has_won() -> None:
    plane = Controlled(node_ids=(1, 2))
    plane.elect_other(2, is_seen=False)
    plane.stand()
    assert not plane.control.is_controller and plane.control.controller_id == 2


def test_who_decides_is_unknown_from_the_end_of_a_session_until_the_store_was_read() -> None:
    plane = Controlled()
    plane.stand()
    plane.control.resign()
    assert plane.control.controller_id == NOBODY and not plane.control.is_controller
    assert plane.image.controller_id == 1, "the image has what the store has shown, and nothing else"
    plane.control.note_controller()
    assert plane.control.is_controller


def test_nothing_is_written_by_who_is_not_the_controller() -> None:
    plane = Controlled()
    assert isinstance(written(plane)[0], Unknown) and plane.stored.settle() == []


@pytest.mark.parametrize("was_applied, outcome", [(True, Done), (False, Unknown)])
def test_a_write_whose_answer_was_lost_is_read_back(was_applied: bool, outcome: type[Outcome]) -> None:
    plane = Controlled()
    plane.stand()
    heard = written(plane)

    def lose(action: Action) -> Outcome:
        if not isinstance(action, Multi):
            return plane.stored.store.perform(action)
        if was_applied:
            plane.stored.store.perform(action)
        return Unknown("the answer was lost")

    plane.stored.settle(lose)
    assert [type(each) for each in heard] == [outcome]


def test_a_controller_that_was_replaced_writes_nothing() -> None:
    plane = Controlled(node_ids=(1, 2))
    plane.stand()
    plane.elect_other(2, is_seen=False)
    heard = written(plane)
    plane.stored.settle()
    assert isinstance(heard[0], Unknown) and WANTED.path not in plane.stored.store.nodes
    assert plane.control.controller_id == 2, "what was read back says who decides now"


def test_what_is_not_as_the_write_says_is_refused_at_its_place() -> None:
    plane = Controlled()
    plane.stand()
    plane.stored.store.put(WANTED.path, b"{}")
    heard = written(plane)
    plane.stored.settle()
    assert isinstance(heard[0], Refused) and heard[0].place == 0
