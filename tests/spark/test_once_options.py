"""The options of writing exactly once: each with a good value, a bad one and its default; and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidelog.spark.once_options import ONCE_ROWS
from tidelog.spark.options import OptionError, WriteOptions, option_table

BROKERS = {"kafka.bootstrap.servers": "b:9092"}


class Case(NamedTuple):
    field: str
    default: Any
    good: str
    value: Any
    bad: str
    words: str


CASES = {
    "kafka.transaction.timeout.ms": Case("timeout_ms", 900_000, "1000", 1_000, "0", "a whole number from 1"),
    "transactionalIdPrefix": Case("id_prefix", "tidelog-spark", "team-a", "team-a", "", "the beginning"),
    "markerTopic": Case("marker_topic", None, "marks", "marks", "", "the name of a topic"),
    "exactlyOnce.resumeAt": Case("resume_at", None, "7", 7, "-1", "a whole number"),
    "exactlyOnce.tornBatch": Case("torn_batch", None, "skip", "skip", "stop", "rewrite or skip"),
    "exactlyOnce.marker": Case(
        "marker", None, "assume-written", "assume-written", "yes", "assume-written or assume-not-written"
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_row_has_its_default_takes_a_good_value_and_refuses_a_bad_one(name: str, streaming: bool) -> None:
    case = CASES[name]
    assert getattr(WriteOptions.parse(BROKERS, streaming=streaming).once, case.field) == case.default
    parsed = WriteOptions.parse(BROKERS | {name: case.good}, streaming=streaming)
    assert getattr(parsed.once, case.field) == case.value
    with pytest.raises(OptionError) as refused:
        WriteOptions.parse(BROKERS | {name: case.bad}, streaming=streaming)
    assert str(refused.value).startswith(f"{name}={case.bad}: expected ")
    assert case.words in str(refused.value)


@pytest.mark.parametrize(
    ("given", "guarantee"),
    [
        ({}, "exactly-once"),
        ({"deliveryGuarantee": "at-least-once"}, "at-least-once"),
        ({"kafka.acks": "1"}, "at-least-once"),
        ({"kafka.enable.idempotence": "false"}, "at-least-once"),
    ],
)
def test_exactly_once_gives_way_unless_it_was_asked_for(given: dict[str, str], guarantee: str) -> None:
    parsed = WriteOptions.parse(BROKERS | given, streaming=True)
    assert parsed.guarantee == guarantee
    if guarantee != "exactly-once" and "deliveryGuarantee" not in given:
        with pytest.raises(OptionError, match=r"deliveryGuarantee=exactly-once: expected .*acks=all"):
            WriteOptions.parse(BROKERS | given | {"deliveryGuarantee": "exactly-once"}, streaming=True)


def test_a_version_needs_its_application() -> None:
    both = {"txnAppId": "a", "txnVersion": "3"}
    parsed = WriteOptions.parse(BROKERS | both, streaming=False).once
    assert (parsed.app_id, parsed.version) == ("a", 3)
    for name, other in (("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")):
        with pytest.raises(OptionError, match=f"{name}={both[name]}: expected {other} with it"):
            WriteOptions.parse(BROKERS | {name: both[name]}, streaming=False)
    with pytest.raises(OptionError, match="txnAppId=a/b: expected a name without /"):
        WriteOptions.parse(BROKERS | both | {"txnAppId": "a/b"}, streaming=False)


def test_every_row_is_tried_and_on_the_page() -> None:
    others = {"deliveryGuarantee", "txnAppId", "txnVersion"}
    assert {row.name for row in ONCE_ROWS} == CASES.keys() | others
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    assert option_table(ONCE_ROWS) in page.read_text()
