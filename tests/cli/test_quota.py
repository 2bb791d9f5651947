"""`tidelog quota` against a real broker: what is set is listed, and what counts for a client is said."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Tidelog

FAR_AWAY = "1000000000000"  # nobody in this suite is throttled by it


def test_quotas_are_set_listed_described_and_removed(tidelog: Tidelog) -> None:
    of_ann = ("--user", "ann", "--client", "etl/1")
    shown = tidelog("quota", "set", *of_ann, f"producer_byte_rate={FAR_AWAY}", "request_percentage=12.5")
    assert shown.lines == [
        f"user ann, client etl/1: producer_byte_rate={FAR_AWAY}",
        "user ann, client etl/1: request_percentage=12.5",
    ]
    assert tidelog("quota", "set", "--user-default", f"producer_byte_rate={FAR_AWAY}1").exit_code == 0
    listed = json.loads(tidelog("quota", "list", "--format", "json").out)
    own = {"client-id": "etl/1", "user": "ann"}
    quotas = {"producer_byte_rate": float(FAR_AWAY), "request_percentage": 12.5}
    assert {"entity": own, "quotas": quotas} in listed
    assert {"entity": {"user": None}, "quotas": {"producer_byte_rate": float(FAR_AWAY + "1")}} in listed
    assert any("user (default)" in line for line in tidelog("quota", "list").lines)
    described = json.loads(tidelog("quota", "describe", *of_ann, "--format", "json").out)
    assert described["producer_byte_rate"] == {"value": float(FAR_AWAY), "entity": own}
    described = json.loads(tidelog("quota", "describe", "--client", "etl/1", "--format", "json").out)
    assert described["producer_byte_rate"]["entity"] == {"user": None}
    unset = ("--unset", "producer_byte_rate")
    assert tidelog("quota", "set", *of_ann, *unset, "--unset", "request_percentage").exit_code == 0
    assert tidelog("quota", "set", "--user-default", *unset).exit_code == 0
    assert json.loads(tidelog("quota", "list", "--format", "json").out) == []
    assert tidelog("quota", "list").lines == ["no quotas are set"]
    assert "no quota counts for user ann" in tidelog("quota", "describe", "--user", "ann").out


def test_a_dry_run_sets_nothing(tidelog: Tidelog) -> None:
    shown = tidelog("quota", "set", "--client", "x", f"consumer_byte_rate={FAR_AWAY}", "--dry-run")
    assert shown.lines == [f"client x: consumer_byte_rate={FAR_AWAY} (dry run: nothing changed)"]
    assert tidelog("quota", "list").lines == ["no quotas are set"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["producer_byte_rate=1"], "nobody is named"),
        (["--user", "a", "--user-default", "producer_byte_rate=1"], "exclude each other"),
        (["--user", "a"], "nothing to change"),
        (["--user", "a", "producer_byte_rate=much"], "not a number"),
        (["--user", "a", "producer_byte_rat=1"], "no such quota"),
        (["--user", "a", "producer_byte_rate+=1"], "one number"),
        (["--user", "a", "connection_creation_rate=1"], "a quota of addresses"),
        (["--ip", "10.0.0.1", "producer_byte_rate=1"], "a quota of users"),
        (["--ip", "localhost", "connection_creation_rate=1"], "not a valid IP address"),
        (["--user", "a", "producer_byte_rate=0"], "must be greater than 0"),
        (["--user", "a", "producer_byte_rate=1.5"], "fractional"),
    ],
)
def test_what_cannot_be_set_is_said_in_a_line(tidelog: Tidelog, words: list[str], said: str) -> None:
    refused = tidelog("quota", "set", *words)
    assert refused.exit_code == 2
    assert said in refused.error and len(refused.error.splitlines()) == 1
