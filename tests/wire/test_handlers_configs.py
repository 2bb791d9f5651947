"""DescribeConfigs and ListConfigResources in every version, and what cannot be described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness, parts
from tidelog.base import limits
from tidelog.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from tidelog.handlers import configs
from tidelog.protocol.messages import encode_part

DESCRIBE_CONFIGS, LIST_CONFIG_RESOURCES = 32, 74
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
VERSIONS = pytest.mark.parametrize("version", range(1, 5))


REPLICAS = "leader.replication.throttled.replicas"


def resources_of(version: int, *asked: Any) -> tuple[Any, ...]:
    part = parts(DESCRIBE_CONFIGS, version)
    return tuple(
        part.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys[0] if keys else None
        )
        for kind, name, *keys in asked
    )


def described(harness: Harness, version: int, *asked: Any) -> Any:
    """The answer as it was sent."""
    values = {"include_synonyms": True, "include_documentation": True}
    harness.send(DESCRIBE_CONFIGS, version, resources=resources_of(version, *asked), **values)
    (answer,) = harness.answers()
    return answer


def describe(harness: Harness, version: int, *asked: Any, synonyms: bool = True, docs: bool = True) -> Any:
    resources = resources_of(version, *asked)
    values = {"resources": resources, "include_synonyms": synonyms, "include_documentation": docs}
    return harness.ask(DESCRIBE_CONFIGS, version, **values).results


def rows(result: Any) -> dict[str, Any]:
    assert result.error_code == 0, result
    return {row.name: row for row in result.configs}


@VERSIONS
def test_a_topic_has_every_setting_and_tells_its_own(harness: Harness, version: int) -> None:
    harness.create_topic("t", retention_ms="1000")
    (result,) = describe(harness, version, (TOPIC, "t"))
    found = rows(result)
    assert {*found} == {*TOPIC_SETTINGS} and result.resource_name == "t"
    own, other = found["retention.ms"], found["max.message.bytes"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("1000", 1, False, False)
    assert (other.value, other.config_source) == ("1048588", 5)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [("retention.ms", "1000", 1)]
    assert [(s.name, s.source) for s in other.synonyms] == [("message.max.bytes", 5)]
    if version >= 3:
        assert own.config_type == 5 and own.documentation


@VERSIONS
def test_a_broker_describes_itself_with_what_is_read_only(harness: Harness, version: int) -> None:
    found = rows(describe(harness, version, (BROKER, "1"))[0])
    assert {*found} == {*BROKER_SETTINGS, "broker.id", "log.dir"}
    assert found["node.id"].read_only and not found["message.max.bytes"].read_only
    assert found["broker.id"].value == "1"
    assert found["ssl.key.password"].is_sensitive and found["ssl.key.password"].value is None


def test_keys_choose_and_synonyms_and_words_are_told_if_asked_for(harness: Harness) -> None:
    harness.create_topic("t")
    (result,) = describe(harness, 4, (TOPIC, "t", ("segment.ms", "no.such")), synonyms=False, docs=False)
    (row,) = result.configs
    assert (row.name, row.synonyms, row.documentation) == ("segment.ms", (), None)
    assert len(describe(harness, 4, (TOPIC, "t", ()))[0].configs) == len(TOPIC_SETTINGS)


def test_groups_client_metrics_and_the_logger_can_be_described(harness: Harness) -> None:
    group, metrics, logger, default = describe(
        harness, 4, (GROUP, "g"), (CLIENT_METRICS, "m"), (LOGGER, "1"), (BROKER, "")
    )
    assert {*rows(group)} == {*GROUP_SETTINGS}
    assert {name: row.value for name, row in rows(metrics).items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }
    assert {name: row.value for name, row in rows(logger).items()} == {"root": "INFO"}
    assert rows(default) == {}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "none", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (TOPIC, "", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (BROKER, "9" * 30, ErrorCode.invalid_request),
        (LOGGER, "", ErrorCode.invalid_request),
        (LOGGER, "2", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (CLIENT_METRICS, "", ErrorCode.invalid_request),
        (3, "x", ErrorCode.invalid_request),
        (-7, "x", ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_described_is_an_error_of_its_own(
    harness: Harness, kind: int, name: str, error: ErrorCode
) -> None:
    (result,) = describe(harness, 4, (kind, name))
    assert (result.error_code, result.configs) == (error, ())
    assert (result.resource_type, result.resource_name) == (kind, name)


def test_a_type_that_there_is_not_spoils_the_whole_request(harness: Harness) -> None:
    harness.create_topic("t")
    results = describe(harness, 4, (3, "x"), (TOPIC, "t"))
    assert [result.error_code for result in results] == [ErrorCode.invalid_request] * 2


def test_topics_that_set_the_same_are_encoded_once_and_told_apart(harness: Harness) -> None:
    for name in ("a", "b", "c"):
        harness.create_topic(name, 1, **({"retention_ms": "5"} if name == "b" else {}))
    found = describe(harness, 4, (TOPIC, "a"), (TOPIC, "b"), (TOPIC, "c"))
    assert [result.resource_name for result in found] == ["a", "b", "c"]
    assert [rows(result)["retention.ms"].value for result in found] == ["604800000", "5", "604800000"]
    assert found[0].configs == found[2].configs


@VERSIONS
def test_an_answer_has_a_bound(harness: Harness, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    asked = [(GROUP, f"g{number}") for number in range(100)] + [(GROUP, "g0")] * 100
    whole = len(described(harness, version, *asked))
    limit = whole // 4
    monkeypatch.setattr(configs, "CONFIGS_DESCRIBED_BYTES_MAX", limit)
    results = describe(harness, version, *asked)
    codes = [result.error_code for result in results]
    assert codes == [0] * codes.count(0) + [ErrorCode.invalid_request] * (200 - codes.count(0))
    assert 0 < codes.count(0) <= 50
    refusals_size = 200 * 120
    assert len(described(harness, version, *asked)) <= limit + refusals_size < whole // 2
    assert limits.CONFIGS_DESCRIBED_BYTES_MAX == 32 * limits.MIB


def test_a_row_is_encoded_once_whoever_asks_for_it(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, retention in (("a", "5"), ("b", "6"), ("c", "5")):
        harness.create_topic(name, 1, retention_ms=retention)
    encoded: list[str] = []

    def encode(part: Any) -> bytes:
        encoded.append(part.name)
        return encode_part(part)

    monkeypatch.setattr(configs, "encode_part", encode)
    topics = describe(harness, 4, *[(TOPIC, name) for name in ("a", "b", "c", "a")])
    assert [rows(result)["retention.ms"].value for result in topics] == ["5", "6", "5", "5"]
    assert sorted(encoded) == sorted([*TOPIC_SETTINGS, "retention.ms"])
    encoded.clear()
    found = describe(harness, 4, *[(BROKER, "1", (name, "no.such")) for name in BROKER_SETTINGS])
    assert [[*rows(result)] for result in found] == [[name] for name in BROKER_SETTINGS]
    assert encoded == [*BROKER_SETTINGS]


def test_a_key_named_twice_is_told_once(harness: Harness) -> None:
    (result,) = describe(harness, 4, (BROKER, "1", ("node.id", "broker.id", "node.id")))
    assert [row.name for row in result.configs] == ["node.id", "broker.id"]


@VERSIONS
@pytest.mark.parametrize("kind", [TOPIC, BROKER, LOGGER, GROUP, CLIENT_METRICS])
def test_a_name_of_any_length_has_an_answer(harness: Harness, version: int, kind: int) -> None:
    (result,) = describe(harness, version, (kind, "x" * 32_760))
    assert result.resource_name == "x" * 32_760
    assert len(result.error_message) <= 1_000


@VERSIONS
def test_what_another_version_took_can_be_described_and_is_left_out(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path)
    path = f"/topics/{harness.create_topic('t').hex()}"
    own = {"retention.ms": "-7", "future.key": "1", "segment.ms": "5000", REPLICAS: "1:1," * 20_000}
    harness.store.put(path, json.dumps({"name": "t", "config": own}).encode())
    for name, config in {
        "brokers/default": {"log.retention.ms": "0", "node.id": "5", "no.such": "1", "log.roll.ms": "9"},
        "groups/g": {"consumer.session.timeout.ms": "x"},
        "client-metrics/m": {"interval.ms": "x", "metrics": "a" * 40_000},
    }.items():
        harness.store.put(f"/config/{name}", json.dumps(config).encode())
    harness.start()
    topic, default, broker, group, metrics = describe(
        harness, version, (TOPIC, "t"), (BROKER, ""), (BROKER, "1"), (GROUP, "g"), (CLIENT_METRICS, "m")
    )
    found = {name: (row.value, row.config_source) for name, row in rows(topic).items()}
    assert (found["retention.ms"], found["segment.ms"]) == (("604800000", 5), ("5000", 1))
    assert found[REPLICAS] == ("", 5)
    assert {name: row.value for name, row in rows(default).items()} == {"log.roll.ms": "9"}
    assert (rows(broker)["node.id"].value, rows(broker)["log.roll.ms"].value) == ("1", "9")
    assert rows(group)["consumer.session.timeout.ms"].value == "45000"
    assert rows(metrics)["metrics"].value == "" and rows(metrics)["interval.ms"].value == "300000"


@pytest.mark.parametrize("version", [0, 1])
def test_resources_are_listed_by_type(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    answer = harness.ask(LIST_CONFIG_RESOURCES, version, resource_types=())
    found = [
        (row.resource_name, getattr(row, "resource_type", CLIENT_METRICS)) for row in answer.config_resources
    ]
    assert found == ([] if version == 0 else [("t", TOPIC), ("1", BROKER), ("1", LOGGER)])


def test_listing_a_type_that_there_is_not_is_unsupported(harness: Harness) -> None:
    answer = harness.ask(LIST_CONFIG_RESOURCES, 1, resource_types=(TOPIC, 3))
    assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())


def test_static_settings_are_told_as_such(tmp_path: Path) -> None:
    harness = Harness(tmp_path, message_max_bytes="5000")
    harness.create_topic("t")
    broker, topic = describe(harness, 4, (BROKER, "1"), (TOPIC, "t"))
    assert (rows(broker)["message.max.bytes"].value, rows(broker)["message.max.bytes"].config_source) == (
        "5000",
        4,
    )
    assert [(s.value, s.source) for s in rows(topic)["max.message.bytes"].synonyms] == [
        ("5000", 4),
        ("1048588", 5),
    ]
