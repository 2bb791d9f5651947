"""InitProducerId, in every version."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    INIT_PRODUCER_ID,
    Harness,
    seconds,
)


def init_values(
    transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1
) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": seconds(60),
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_given_once(harness: Harness, version: int) -> None:
    answers = [harness.ask(INIT_PRODUCER_ID, version, **init_values()) for _ in range(1_500)]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    ids = [answer.producer_id for answer in answers]
    assert len({*ids}) == len(ids)
    harness.start()
    assert harness.ask(INIT_PRODUCER_ID, version, **init_values()).producer_id not in ids


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_is_for_its_coordinator(harness: Harness, version: int) -> None:
    answer = harness.ask(INIT_PRODUCER_ID, version, **init_values("transaction"))
    assert answer.error_code == ErrorCode.not_coordinator
    empty = harness.ask(INIT_PRODUCER_ID, version, **init_values(""))
    assert empty.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(3, 6))
def test_half_a_producer_identity_is_refused(harness: Harness, version: int) -> None:
    for values in (init_values(None, 5, -1), init_values(None, -1, 5)):
        assert harness.ask(INIT_PRODUCER_ID, version, **values).error_code == ErrorCode.invalid_request
