"""AlterConfigs and IncrementalAlterConfigs: what is changed, at once and for good, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import PRODUCE, Harness, batch_of, parts
from tests.wire.requests import produce, produce_values
from tests.wire.test_handlers_configs import BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC, describe, rows
from tidelog.base.limits import CONFIG_RESOURCES_CHANGED_MAX
from tidelog.cluster.store import Refused, StoreReply
from tidelog.handlers import configs_alteration
from tidelog.handlers.configs_revision import apply_operations

ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 33, 44
SET, DELETE, APPEND, SUBTRACT = range(4)
Operation = tuple[str, int, str | None]
LONG = ",".join(f"{number}:1" for number in range(8_000))


def resource(version: int, kind: int, name: str, *operations: Operation) -> Any:
    part = parts(INCREMENTAL_ALTER_CONFIGS, version)
    configs = tuple(
        part.AlterableConfig(name=key, config_operation=operator, value=value)
        for key, operator, value in operations
    )
    return part.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def alter(
    harness: Harness, kind: int, name: str, *operations: Operation, version: int = 1, dry: bool = False
) -> Any:
    """The code of the one resource."""
    asked = (resource(version, kind, name, *operations),)
    answer = harness.ask(INCREMENTAL_ALTER_CONFIGS, version, resources=asked, validate_only=dry)
    (part,) = answer.responses
    assert (part.resource_type, part.resource_name) == (kind, name)
    assert (part.error_code == 0) == (part.error_message is None)
    return part.error_code


def replace(
    harness: Harness, version: int, kind: int, name: str, dry: bool = False, **config: str | None
) -> Any:
    part = parts(ALTER_CONFIGS, version)
    configs = tuple(
        part.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in config.items()
    )
    asked = (part.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs),)
    (answer,) = harness.ask(ALTER_CONFIGS, version, resources=asked, validate_only=dry).responses
    return answer.error_code


@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_s_setting_takes_effect_at_once_and_outlives_a_restart(
    harness: Harness, version: int
) -> None:
    harness.create_topic("t")
    assert produce(harness, 9, "t", batch_of(1, b"x" * 500)).error_code == 0
    assert alter(harness, TOPIC, "t", ("max.message.bytes", SET, "200"), version=version) == 0
    assert produce(harness, 9, "t", batch_of(1, b"x" * 500)).error_code == ErrorCode.message_too_large
    harness.broker.stop()
    harness.start()
    assert harness.partition("t").log.settings.max_message_bytes == 200
    assert alter(harness, TOPIC, "t", ("max.message.bytes", DELETE, None), version=version) == 0
    assert produce(harness, 9, "t", batch_of(1, b"x" * 500)).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_call_replaces_all_that_was_set(harness: Harness, version: int) -> None:
    harness.create_topic("t", retention_ms="5", segment_bytes="2000")
    assert replace(harness, version, TOPIC, "t", dry=True, retention_ms="7") == 0
    assert harness.broker.image.topics["t"].config == {"retention.ms": "5", "segment.bytes": "2000"}
    assert replace(harness, version, TOPIC, "t", retention_ms="6") == 0
    assert harness.broker.image.topics["t"].config == {"retention.ms": "6"}
    assert replace(harness, version, TOPIC, "t") == 0
    assert harness.broker.image.topics["t"].config == {}
    assert replace(harness, version, TOPIC, "t", retention_ms=None) == ErrorCode.invalid_request
    assert replace(harness, version, LOGGER, "1", root="DEBUG") == ErrorCode.invalid_request


def test_lists_are_appended_to_and_subtracted_from(harness: Harness) -> None:
    harness.create_topic("t")
    config = harness.broker.image.topics
    assert alter(harness, TOPIC, "t", ("cleanup.policy", APPEND, "compact,delete")) == 0
    assert config["t"].config == {"cleanup.policy": "delete,compact"}
    assert alter(harness, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert config["t"].config == {"cleanup.policy": "compact"}
    assert harness.partition("t").log.settings.is_compacted


class Word(str):
    """Counts how often it is compared."""

    compared_count = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Word.compared_count += 1
        return str.__eq__(self, other)


class Words(str):
    __slots__ = ()

    def split(self, *separator: Any, **options: Any) -> list[Any]:
        return [Word(part) for part in super().split(*separator, **options)]


@pytest.mark.parametrize(("operator", "left_count"), [(APPEND, 3_000), (SUBTRACT, 1_000)])
def test_a_long_list_is_not_compared_word_by_word_with_another(operator: int, left_count: int) -> None:
    before = Words(",".join(str(number) for number in range(2_000)))
    operand = Words(",".join(str(number) for number in range(1_000, 3_000)))
    Word.compared_count = 0
    entry = SimpleNamespace(name="cleanup.policy", config_operation=operator, value=operand)
    found = apply_operations(
        SimpleNamespace(resource_type=TOPIC, configs=[entry]), {"cleanup.policy": before}
    )
    assert isinstance(found, dict)
    assert found["cleanup.policy"] == ",".join(str(number) for number in range(left_count))
    assert Word.compared_count <= 10_000


def test_validating_changes_nothing(harness: Harness) -> None:
    harness.create_topic("t")
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "5"), dry=True) == 0
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "x"), dry=True) == ErrorCode.invalid_config
    assert harness.broker.image.topics["t"].config == {}


@pytest.mark.parametrize(
    ("kind", "name", "operations", "error"),
    [
        (TOPIC, "t", [("segment.ms", SET, "x")], ErrorCode.invalid_config),
        (TOPIC, "t", [("segment.ms", SET, None)], ErrorCode.invalid_request),
        (TOPIC, "t", [("segment.ms", APPEND, "5")], ErrorCode.invalid_config),
        (TOPIC, "t", [("segment.ms", 9, "5")], ErrorCode.invalid_request),
        (TOPIC, "t", [("no.such", SET, "5")], ErrorCode.invalid_config),
        (TOPIC, "t", [("no.such", APPEND, "5")], ErrorCode.invalid_config),
        (TOPIC, "t", [("segment.ms", SET, "5"), ("segment.ms", SET, "6")], ErrorCode.invalid_request),
        (TOPIC, "none", [("segment.ms", SET, "5")], ErrorCode.unknown_topic_or_partition),
        (TOPIC, "none", [("segment.ms", SET, "x")], ErrorCode.invalid_config),
        (TOPIC, "", [("segment.ms", SET, "5")], ErrorCode.invalid_request),
        (TOPIC, "a b", [("segment.ms", SET, "5")], ErrorCode.invalid_topic_exception),
        (TOPIC, "t", [("remote.storage.enable", SET, "true")], ErrorCode.invalid_config),
        (TOPIC, "t", [("leader.replication.throttled.replicas", SET, "zz")], ErrorCode.invalid_config),
        (BROKER, "1", [("log.retention.ms", SET, "x")], ErrorCode.invalid_request),
        (BROKER, "1", [("node.id", SET, "5")], ErrorCode.invalid_request),
        (BROKER, "1", [("no.such.key", SET, "5")], ErrorCode.invalid_request),
        (BROKER, "2", [("log.retention.ms", SET, "5")], ErrorCode.invalid_request),
        (BROKER, "x", [("log.retention.ms", SET, "5")], ErrorCode.invalid_request),
        (BROKER, "1", [("log.retention.ms", 7, "5")], ErrorCode.invalid_request),
        (BROKER, "1", [("log.retention.ms", APPEND, "5")], ErrorCode.invalid_config),
        (LOGGER, "1", [("root", SET, "debug")], ErrorCode.invalid_config),
        (LOGGER, "1", [("root", DELETE, None)], ErrorCode.invalid_request),
        (LOGGER, "1", [("root", APPEND, "DEBUG")], ErrorCode.invalid_request),
        (LOGGER, "1", [("root", 77, "DEBUG")], ErrorCode.invalid_request),
        (LOGGER, "1", [("zoo", SET, "DEBUG")], ErrorCode.invalid_config),
        (LOGGER, "", [("root", SET, "DEBUG")], ErrorCode.invalid_request),
        (TOPIC, "t", [("cleanup.policy", SET, "compact,")], ErrorCode.invalid_config),
        (TOPIC, "t", [("retention.ms", SET, "1_000")], ErrorCode.invalid_config),
        (TOPIC, "t", [("leader.replication.throttled.replicas", SET, LONG)], ErrorCode.invalid_config),
        (TOPIC, "t", [("leader.replication.throttled.replicas", APPEND, LONG)], ErrorCode.invalid_config),
        (TOPIC, "t", [(f"key.{number}", DELETE, None) for number in range(1_001)], ErrorCode.invalid_request),
        (BROKER, "", [("config.providers", SET, LONG)], ErrorCode.invalid_request),
        (BROKER, "", [("listener.name.a.ssl.key", SET, "x")], ErrorCode.invalid_request),
        (BROKER, "1", [("max.connections.per.ip.overrides", SET, "nonsense")], ErrorCode.invalid_request),
        (CLIENT_METRICS, "m", [("metrics", SET, LONG)], ErrorCode.invalid_config),
        (CLIENT_METRICS, "m", [("metrics", SET, "a,")], ErrorCode.invalid_config),
        (GROUP, "g", [("share.auto.offset.reset", SET, "x")], ErrorCode.invalid_config),
        (CLIENT_METRICS, "", [("interval.ms", SET, "1000")], ErrorCode.invalid_request),
        (CLIENT_METRICS, "m", [("no.such", SET, "1000")], ErrorCode.invalid_request),
        (CLIENT_METRICS, "m", [("interval.ms", SET, "x")], ErrorCode.invalid_config),
        (CLIENT_METRICS, "m", [("interval.ms", SET, "10")], ErrorCode.invalid_request),
        (CLIENT_METRICS, "m", [("match", SET, "client_id=[")], ErrorCode.invalid_config),
        (CLIENT_METRICS, "m", [("match", SET, "colour=red")], ErrorCode.invalid_config),
        (CLIENT_METRICS, "m", [("metrics", APPEND, "a")], ErrorCode.invalid_config),
        (CLIENT_METRICS, "m" * 1_001, [("metrics", SET, "a")], ErrorCode.policy_violation),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "45000")], ErrorCode.invalid_request),
        (GROUP, "g", [("no.such", SET, "1")], ErrorCode.invalid_config),
        (3, "x", [("a", SET, "1")], ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_changed_is_refused_and_changes_nothing(
    harness: Harness, kind: int, name: str, operations: list[Operation], error: ErrorCode
) -> None:
    harness.create_topic("t")
    before = dict(harness.broker.image.versions)
    assert alter(harness, kind, name, *operations) == error
    assert harness.broker.image.versions == before


def test_one_bad_key_keeps_the_others_of_its_resource_back(harness: Harness) -> None:
    harness.create_topic("t")
    operations: list[Operation] = [("segment.ms", SET, "5"), ("retention.ms", SET, "x")]
    assert alter(harness, TOPIC, "t", *operations) == ErrorCode.invalid_config
    assert harness.broker.image.topics["t"].config == {}


def test_a_resource_named_twice_is_refused_twice_and_the_others_go_on(harness: Harness) -> None:
    for name in ("a", "b"):
        harness.create_topic(name)
    change: Operation = ("segment.ms", SET, "5000")
    asked = tuple(resource(1, TOPIC, name, change) for name in ("a", "b", "a"))
    answer = harness.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)
    codes = [(part.resource_name, part.error_code) for part in answer.responses]
    refused = ErrorCode.invalid_request
    assert codes == [("a", refused), ("b", ErrorCode.none), ("a", refused)]
    assert harness.broker.image.topics["b"].config == {"segment.ms": "5000"}


def test_a_broker_s_setting_reaches_every_topic_that_has_none_of_its_own(harness: Harness) -> None:
    harness.create_topic("own", max_message_bytes="900")
    harness.create_topic("fallen")
    assert alter(harness, BROKER, "", ("message.max.bytes", SET, "300")) == 0
    assert alter(harness, BROKER, "1", ("message.max.bytes", SET, "200")) == 0
    sizes = [harness.partition(name).log.settings.max_message_bytes for name in ("own", "fallen")]
    assert sizes == [900, 200]
    harness.create_topic("later")
    assert harness.partition("later").log.settings.max_message_bytes == 200
    harness.broker.stop()
    harness.start()
    assert harness.partition("fallen").log.settings.max_message_bytes == 200
    assert alter(harness, BROKER, "1", ("message.max.bytes", DELETE, None)) == 0
    assert harness.partition("fallen").log.settings.max_message_bytes == 300
    found = rows(describe(harness, 4, (BROKER, "1"))[0])["message.max.bytes"]
    assert [(synonym.value, synonym.source) for synonym in found.synonyms] == [("300", 3), ("1048588", 5)]
    assert [*rows(describe(harness, 4, (BROKER, ""))[0])] == ["message.max.bytes"]


def test_fsyncs_begin_as_soon_as_they_are_asked_for(harness: Harness) -> None:
    harness.create_topic("t")
    produce(harness, 9, "t", batch_of(3))
    partition = harness.partition("t")
    assert partition.log.recovery_point == 0
    assert alter(harness, TOPIC, "t", ("flush.messages", SET, "1")) == 0
    assert partition.log.recovery_point == 3


def test_readers_see_what_waited_for_an_fsync_when_none_is_asked_for_any_more(harness: Harness) -> None:
    harness.create_topic("t", flush_messages="1")
    harness.holds_flushes = True
    harness.send(PRODUCE, 9, **produce_values(harness, 9, {"t": [(0, batch_of(1))]}))
    partition = harness.partition("t")
    assert partition.high_watermark == 0
    alter_all = resource(1, TOPIC, "t", ("flush.messages", DELETE, None))
    harness.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=(alter_all,), validate_only=False)
    assert partition.high_watermark == 0  # until the store knows that a power cut may cost something
    harness.advance(100)
    assert partition.high_watermark == 1


def test_a_bad_level_keeps_the_good_one_back(harness: Harness) -> None:
    operations: list[Operation] = [("root", SET, "DEBUG"), ("zoo", SET, "WARN")]
    assert alter(harness, LOGGER, "1", *operations) == ErrorCode.invalid_config
    assert harness.broker.logger_level == "INFO"


def test_the_settings_of_a_listener_are_taken_and_not_kept(harness: Harness) -> None:
    operations: list[Operation] = [
        ("listener.name.a.ssl.keystore.location", SET, "f"),
        ("message.max.bytes", SET, "300"),
    ]
    assert alter(harness, BROKER, "1", *operations) == 0
    assert harness.broker.image.configs["brokers"] == {"1": {"message.max.bytes": "300"}}
    assert alter(harness, BROKER, "1", operations[0]) == 0
    assert harness.broker.image.versions["/config/brokers/1"] == 0


def test_passwords_are_taken_and_not_kept(harness: Harness) -> None:
    secrets: list[Operation] = [("ssl.keystore.password", SET, "hush"), ("sasl.jaas.config", SET, "hush")]
    assert alter(harness, BROKER, "1", *secrets, ("message.max.bytes", SET, "300")) == 0
    assert harness.broker.image.configs["brokers"] == {"1": {"message.max.bytes": "300"}}
    assert alter(harness, BROKER, "1", secrets[0]) == 0
    assert harness.broker.image.versions["/config/brokers/1"] == 0


def alter_groups(harness: Harness, *names: str) -> list[int]:
    change: Operation = ("share.isolation.level", SET, "read_committed")
    asked = tuple(resource(1, GROUP, name, change) for name in names)
    harness.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)
    if harness.holds_store:
        return []
    answer = harness.answer(INCREMENTAL_ALTER_CONFIGS, 1)
    return [part.error_code for part in answer.responses]


def test_no_more_groups_are_kept_than_there_is_room_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs_alteration, "CONFIG_RESOURCES_MAX", 3)
    refused = ErrorCode.policy_violation
    assert alter_groups(harness, "a") == [0]
    assert alter_groups(harness, "b", "a", "c", "d") == [0, 0, 0, refused]
    assert alter_groups(harness, "e", "a") == [refused, 0]
    assert [*harness.broker.image.configs["groups"]] == ["a", "b", "c"]


def test_what_the_store_has_not_answered_counts_too(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs_alteration, "CONFIG_RESOURCES_MAX", 3)
    harness.holds_store = True
    alter_groups(harness, "a", "b")
    alter_groups(harness, "c", "d")
    assert len(harness.held_requests) == 3
    harness.release_store()
    assert [*harness.broker.image.configs["groups"]] == ["a", "b", "c"]


def test_a_request_changes_a_thousand_groups_at_most(harness: Harness) -> None:
    limit = CONFIG_RESOURCES_CHANGED_MAX
    codes = alter_groups(harness, *(f"g{number}" for number in range(limit + 1)))
    assert codes == [ErrorCode.policy_violation] * (limit + 1)
    assert alter_groups(harness, *(f"g{number}" for number in range(limit))) == [0] * limit


def test_the_logger_s_level_holds_until_the_broker_stops(harness: Harness) -> None:
    assert alter(harness, LOGGER, "1", ("root", SET, "DEBUG"), dry=True) == 0
    assert harness.broker.logger_level == "INFO"
    assert alter(harness, LOGGER, "1", ("root", SET, "DEBUG")) == 0
    assert rows(describe(harness, 4, (LOGGER, "1"))[0])["root"].value == "DEBUG"
    harness.start()
    assert harness.broker.logger_level == "INFO"


def test_names_of_groups_may_hold_anything(harness: Harness) -> None:
    name = "../a/b %2F\n\u00e9"
    assert alter(harness, GROUP, name, ("consumer.session.timeout.ms", SET, "50000")) == 0
    harness.start()
    found = rows(describe(harness, 4, (GROUP, name))[0])["consumer.session.timeout.ms"]
    assert (found.value, found.config_source) == ("50000", 8)


def test_of_two_changes_at_once_none_is_lost(harness: Harness) -> None:
    harness.create_topic("t")
    harness.holds_store = True
    for key in ("segment.ms", "retention.ms"):
        asked = (resource(1, TOPIC, "t", (key, SET, "5000")),)
        harness.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)
    harness.release_store()
    assert harness.broker.image.topics["t"].config == {"segment.ms": "5000", "retention.ms": "5000"}
    assert len(harness.answers()) == 2


def test_a_change_that_is_always_overtaken_ends_as_a_time_out(harness: Harness) -> None:
    harness.create_topic("t")
    harness.holds_store = True
    asked = (resource(1, TOPIC, "t", ("segment.ms", SET, "5000")),)
    harness.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)
    while harness.held_requests:
        (held,) = harness.held_requests
        harness.held_requests = []
        harness.broker.on_store_event(StoreReply(held.ticket, Refused(0, "overtaken")))
        harness.settle()
    answer = harness.answer(INCREMENTAL_ALTER_CONFIGS, 1)
    assert answer.responses[0].error_code == ErrorCode.request_timed_out


def test_a_setting_that_this_version_does_not_take_is_left_out_at_the_start(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", segment_ms="5000")
    assert alter(harness, BROKER, "1", ("message.max.bytes", SET, "300")) == 0
    for path, node in harness.store.nodes.items():
        data = node.data.replace(b'"segment.ms":"5000"', b'"segment.ms":"never"').replace(b'"300"', b'"many"')
        if data != node.data:
            harness.store.put(path, data)
    harness.start()
    assert harness.partition("t").log.settings.max_message_bytes == 1_048_588
    assert produce(harness, 9, "t", batch_of(1)).error_code == 0


BOUNDED = (
    ("consumer.session.timeout.ms", "44999"),
    ("consumer.session.timeout.ms", "60001"),
    ("consumer.heartbeat.interval.ms", "4999"),
    ("consumer.heartbeat.interval.ms", "15001"),
    ("consumer.assignment.interval.ms", "15001"),
    ("consumer.assignment.interval.ms", "-1"),
)


@pytest.mark.parametrize(("key", "value"), BOUNDED)
def test_a_group_s_number_out_of_the_broker_s_bounds_is_refused(
    harness: Harness, key: str, value: str
) -> None:
    assert alter(harness, GROUP, "g", (key, SET, value)) == ErrorCode.invalid_config
    assert "g" not in harness.broker.image.configs["groups"]


def test_a_group_s_number_within_the_broker_s_bounds_is_kept_and_told(harness: Harness) -> None:
    changes = (
        ("consumer.session.timeout.ms", SET, "50000"),
        ("consumer.heartbeat.interval.ms", SET, "15000"),
    )
    assert alter(harness, GROUP, "g", *changes) == 0
    found = rows(describe(harness, 4, (GROUP, "g"))[0])
    assert [found[key].value for key, *_ in changes] == ["50000", "15000"]
    assert found["consumer.assignment.interval.ms"].value == "1000"


def test_the_assignment_interval_of_all_groups_is_changed_within_its_bounds(harness: Harness) -> None:
    key = "group.consumer.assignment.interval.ms"
    for name in ("", "1"):
        assert alter(harness, BROKER, name, (key, SET, "15001")) == ErrorCode.invalid_request
        assert alter(harness, BROKER, name, (key, SET, "2000")) == 0
    assert harness.broker.settings.number(key) == 2_000
    read_only = ("group.consumer.session.timeout.ms", SET, "50000")
    assert alter(harness, BROKER, "1", read_only) == ErrorCode.invalid_request
