"""`tidelog demo kills`, smaller than by default."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import Message

from tests.cli.conftest import Tidelog
from tidelog.cli.demo_kills import Ledger, Tally


def test_the_demo_survives_its_kills_and_says_so(offline: Tidelog) -> None:
    shown = offline("demo", "kills", "--records", "30000", "--kills", "2")
    assert shown.exit_code == 0, shown.out + shown.error
    counts = dict(
        re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in shown.lines if "  " in line.strip()
    )
    assert counts["records acknowledged"] == "30,000"
    assert counts["kills (SIGKILL)"] == "2"
    assert counts["acknowledged but missing"] == counts["duplicated"] == "0"
    assert "nothing acknowledged is missing" in shown.out


def test_as_json_the_demo_prints_its_facts_and_nothing_else(offline: Tidelog) -> None:
    facts = json.loads(offline("demo", "kills", "--records", "2000", "--kills", "0", "--format", "json").out)
    assert (facts["records_acknowledged"], facts["acknowledged_but_missing"], facts["kills"]) == (2000, 0, 0)


@pytest.mark.parametrize(
    ("places", "missing", "duplicated"),
    [
        ([(0, 0, 0), (1, 0, 1)], 0, 0),
        ([(0, 0, 0)], 1, 0),
        ([(0, 0, 0), (1, 0, 1), (1, 0, 2)], 0, 1),
        ([(0, 0, 0), (1, 0, 2)], 1, 0),
        ([(0, 0, 0), (1, 1, 1)], 1, 0),
    ],
)
def test_the_tally_sees_what_is_missing_moved_or_doubled(
    places: list[tuple[int, int, int]], missing: int, duplicated: int
) -> None:
    ledger = Ledger(2)
    for number in range(2):
        ledger.on_delivery(None, Message(partition=0, offset=number, value=b"%d" % number))
    tally = Tally(ledger)
    for number, partition, offset in places:
        tally.add(Message(partition=partition, offset=offset, value=b"%d" % number))
    assert (tally.missing_count, tally.duplicated_count) == (missing, duplicated)
