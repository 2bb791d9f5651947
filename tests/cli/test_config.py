"""`tidelog config` against a real broker: what is set can be read, and what cannot be is said in a line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Tidelog


def settings_of(tidelog: Tidelog, resource: str, *words: str) -> dict[str, dict[str, Any]]:
    shown = tidelog("config", "describe", resource, "--format", "json", *words)
    assert shown.exit_code == 0, shown.error
    described = json.loads(shown.out)
    assert described["resource"] == resource
    return {setting["key"]: setting for setting in described["settings"]}


def test_only_what_differs_from_its_default_is_shown_unless_all_is_asked_for(
    tidelog: Tidelog, topic: str
) -> None:
    assert tidelog("config", "set", f"topic/{topic}", "segment.bytes=20000").exit_code == 0
    own = settings_of(tidelog, f"topic/{topic}")
    everything = settings_of(tidelog, f"topic/{topic}", "--all")
    assert {"retention.ms", "segment.bytes"} <= own.keys() < everything.keys()
    assert own["segment.bytes"] == {
        "key": "segment.bytes",
        "value": "20000",
        "default": "1073741824",
        "source": "dynamic_topic_config",
        "type": "int",
        "is_default": False,
        "is_read_only": False,
        "is_sensitive": False,
        "has_effect": True,
    }
    assert everything["flush.messages"]["is_default"]
    assert [*everything] == sorted(everything)


def test_verbose_adds_what_a_setting_means_and_where_it_may_come_from(tidelog: Tidelog, topic: str) -> None:
    described = settings_of(tidelog, f"topic/{topic}", "--all", "--verbose")["segment.bytes"]
    assert described["documentation"]
    assert [synonym["key"] for synonym in described["synonyms"]] == ["log.segment.bytes"]
    shown = tidelog("config", "describe", f"topic/{topic}", "--verbose").out
    assert "retention.ms = -1\n    long, from topic" in shown


def test_a_setting_without_effect_is_said_to_have_none(tidelog: Tidelog, topic: str) -> None:
    described = settings_of(tidelog, f"topic/{topic}", "--all")
    assert not described["remote.storage.enable"]["has_effect"]
    lines = tidelog("config", "describe", f"topic/{topic}", "--all").lines
    assert next(line for line in lines if "remote.storage.enable" in line).rstrip().endswith("no effect")


def test_a_topic_with_nothing_of_its_own_says_so(tidelog: Tidelog, topic: str) -> None:
    assert tidelog("config", "set", f"topic/{topic}", "--unset", "retention.ms").exit_code == 0
    assert "--all shows the defaults" in tidelog("config", "describe", f"topic/{topic}").out


def test_get_prints_values_and_nothing_else(tidelog: Tidelog, topic: str) -> None:
    resource = f"topic/{topic}"
    assert tidelog("config", "get", resource, "retention.ms").out == "-1\n"
    several = tidelog("config", "get", resource, "retention.ms", "segment.bytes")
    assert several.lines == ["retention.ms=-1", "segment.bytes=1073741824"]
    shown = tidelog("config", "get", resource, "retention.ms", "--format", "json")
    assert json.loads(shown.out) == {"retention.ms": "-1"}


@pytest.mark.parametrize(
    ("resource", "words", "meant"),
    [
        ("topic/{topic}", ["retain.ms=1"], "retention.ms"),
        ("topic/{topic}", ["--unset", "retenton.ms"], "retention.ms"),
        ("topic/{topic}", ["flush.ms=1", "retain.ms=1"], "retention.ms"),
        ("broker/1", ["retention.ms=1"], "log.retention.ms"),
        ("broker/default", ["log.retenton.ms=1"], "log.retention.ms"),
    ],
)
def test_the_setting_that_was_meant_is_named(
    tidelog: Tidelog, topic: str, resource: str, words: list[str], meant: str
) -> None:
    ended = tidelog("config", "set", resource.format(topic=topic), *words)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (2, "", 1)
    assert ended.error.endswith(f"did you mean {meant}?\n")


def test_a_key_that_does_not_exist_hides_no_other(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("config", "get", f"topic/{topic}", "retenton.ms", "retention.ms")
    assert (ended.exit_code, ended.out) == (2, "retention.ms=-1\n")
    assert "did you mean retention.ms?" in ended.error


def test_set_changes_appends_subtracts_and_unsets(tidelog: Tidelog, topic: str) -> None:
    resource = f"topic/{topic}"
    done = tidelog(
        "config", "set", resource, "segment.bytes=30000", "cleanup.policy+=compact", "--unset", "retention.ms"
    )
    assert done.lines == [
        f"{resource}: segment.bytes=30000",
        f"{resource}: cleanup.policy+=compact",
        f"{resource}: retention.ms unset",
    ]
    own = settings_of(tidelog, resource)
    assert {key: own[key]["value"] for key in own} == {
        "segment.bytes": "30000",
        "cleanup.policy": "delete,compact",
    }
    assert tidelog("config", "set", resource, "cleanup.policy-=delete").exit_code == 0
    assert tidelog("config", "get", resource, "cleanup.policy").out == "compact\n"


def test_a_dry_run_changes_nothing_but_refuses_what_is_wrong(tidelog: Tidelog, topic: str) -> None:
    resource = f"topic/{topic}"
    tried = tidelog("config", "set", resource, "retention.ms=7", "--dry-run", "--format", "json")
    assert json.loads(tried.out) == {
        "resource": resource,
        "set": {"retention.ms": "7"},
        "appended": {},
        "subtracted": {},
        "unset": [],
        "dry_run": True,
    }
    assert tidelog("config", "get", resource, "retention.ms").out == "-1\n"
    assert tidelog("config", "set", resource, "retention.ms=x", "--dry-run").exit_code == 2


def test_one_wrong_setting_leaves_the_others_as_they_were(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("config", "set", f"topic/{topic}", "segment.bytes=40000", "retention.ms=x")
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)
    assert "segment.bytes" not in settings_of(tidelog, f"topic/{topic}")


def test_a_broker_s_settings_and_those_of_all_brokers_are_kept_apart(tidelog: Tidelog) -> None:
    key = "log.cleaner.delete.retention.ms"
    broker = f"broker/{json.loads(tidelog('broker', 'list', '--format', 'json').out)[0]['id']}"
    try:
        assert tidelog("config", "set", "broker/default", f"{key}=1111").exit_code == 0
        assert tidelog("config", "get", broker, key).out == "1111\n"
        assert settings_of(tidelog, broker)[key]["source"] == "dynamic_default_broker_config"
        assert tidelog("config", "set", broker, f"{key}=2222").exit_code == 0
        assert tidelog("config", "get", broker, key).out == "2222\n"
        assert tidelog("config", "get", "broker/default", key).out == "1111\n"
    finally:
        tidelog("config", "set", broker, "--unset", key)
        tidelog("config", "set", "broker/default", "--unset", key)
    assert key not in settings_of(tidelog, broker)


def test_client_metrics_are_listed_once_they_have_settings(tidelog: Tidelog, topic: str) -> None:
    resource = f"client-metrics/{topic}"
    assert resource not in tidelog("config", "list").lines
    assert tidelog("config", "set", resource, "interval.ms=30000").exit_code == 0
    assert {resource, f"topic/{topic}"} <= set(json.loads(tidelog("config", "list", "--format", "json").out))
    assert tidelog("config", "get", resource, "interval.ms").out == "30000\n"
    assert tidelog("config", "set", resource, "--unset", "interval.ms").exit_code == 0


@pytest.mark.parametrize(
    ("words", "exit_code", "named"),
    [
        (["describe", "topic/no-such-topic"], 1, "'no-such-topic' does not exist"),
        (["describe", "broker/4711"], 1, "broker 4711 is not in the cluster"),
        (["get", "topic/{topic}", "retention.msx"], 2, "did you mean retention.ms?"),
        (["get", "topic/{topic}", "qqq"], 2, "config describe topic/{topic} --all"),
        (["get", "broker/default", "log.retention.ms"], 2, "broker/default has no value"),
        (["set", "topic/{topic}", "no.such.key=1"], 2, "no.such.key"),
        (["set", "topic/no-such-topic", "retention.ms=1"], 1, "'no-such-topic' does not exist"),
    ],
)
def test_what_is_not_there_is_one_line(
    tidelog: Tidelog, topic: str, words: list[str], exit_code: int, named: str
) -> None:
    ended = tidelog("config", *(word.format(topic=topic) for word in words))
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (exit_code, "", 1)
    assert named.format(topic=topic) in ended.error
