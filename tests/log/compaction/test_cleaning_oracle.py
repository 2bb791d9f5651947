"""A round leaves what Apache Kafka's cleaner leaves; and each bug under `mutants/` is found by a round."""

from __future__ import annotations

import pytest

from tests.log.compaction.oracle import difference, histories, rounds


@pytest.mark.parametrize("history", histories())
def test_each_round_leaves_what_kafka_leaves(history: str) -> None:
    names = [name for name in rounds() if name.partition("/")[0] == history]
    assert {name: difference(name) for name in names} == dict.fromkeys(names)


def test_rounds_of_all_kinds_are_compared() -> None:
    assert len(histories()) == 60
    assert len(rounds()) == 171
