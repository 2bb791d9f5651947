"""UnregisterBroker."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness
from tests.wire.test_handlers_reassignments import move, pair
from tidelog.cluster.controller import decide_fence, decide_registration
from tidelog.cluster.facts import BrokerFacts
from tidelog.cluster.store import Multi, Operation, Refused, Unknown

UNREGISTER = 64
__all__ = ["pair"]


def unregister(harness: Harness, node_id: int) -> ErrorCode:
    answer = harness.ask(UNREGISTER, 0, broker_id=node_id)
    assert (answer.error_message is None) == (answer.error_code == ErrorCode.none)
    code: ErrorCode = answer.error_code
    return code


def test_a_broker_that_is_gone_is_unregistered_once(pair: Harness) -> None:
    before = pair.broker.image.broker_epochs[2]
    assert unregister(pair, 2) is ErrorCode.none
    assert unregister(pair, 2) is ErrorCode.broker_id_not_registered
    assert unregister(pair, 9) is ErrorCode.broker_id_not_registered
    assert move(pair, 1, ("t", 0, (2,))) == [ErrorCode.invalid_replica_assignment]
    assert pair.broker.image.broker_epochs[2] == before._replace(is_retired=True)


def test_a_broker_that_is_there_is_not_unregistered(pair: Harness) -> None:
    assert unregister(pair, 1) is ErrorCode.invalid_request


def write(pair: Harness, operations: list[Operation]) -> None:
    pair.store.perform(Multi(tuple(operations)))
    pair.broker.image.apply(operations)


def test_who_registers_again_belongs_to_the_cluster_again_under_the_next_epoch(
    pair: Harness,
) -> None:
    assert unregister(pair, 2) is ErrorCode.none
    image = pair.broker.image
    write(pair, decide_fence(image, 2))
    write(pair, decide_registration(image, BrokerFacts(2, "host", 1, "", 2), True, {"d": 1}))
    assert image.is_known(2) and image.broker_epochs[2].epoch == 2
    assert image.broker_epochs[2].trusted_since == 1


@pytest.mark.parametrize("outcome", [Refused(1, "never"), Unknown("lost")])
def test_a_store_that_does_not_take_it_is_not_asked_for_ever(
    pair: Harness,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Refused | Unknown,
) -> None:
    monkeypatch.setattr(pair.store, "perform", lambda action: outcome)
    assert unregister(pair, 2) is ErrorCode.request_timed_out
