"""Settings: parsing, bounds, fallbacks from topic to broker to default."""

from __future__ import annotations

import pytest

from tidelog.base.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    Source,
    Synonym,
    TopicSettings,
    check_group_settings,
    check_topic_setting,
    check_topic_settings,
    group_number,
    resolve_topic_setting,
)
from tidelog.base.group_rows import COORDINATOR_ROWS
from tidelog.base.setting import InvalidSetting


def topic(broker: dict[str, str], **overrides: str) -> TopicSettings:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    return TopicSettings(BrokerSettings(broker), named)


def test_the_defaults_are_kafka_s() -> None:
    settings = topic({})
    assert (settings.segment_bytes, settings.index_interval_bytes) == (1 << 30, 4_096)
    assert settings.retention_ms == settings.segment_ms == 7 * 24 * 3_600_000
    assert (settings.retention_bytes, settings.max_message_bytes) == (-1, 1_048_588)
    assert (settings.is_deleted, settings.is_compacted) == (True, False)
    assert (settings.codec_name, settings.uses_append_time) == ("producer", False)
    assert settings.flush_messages == settings.flush_ms == 2**63 - 1


def test_a_topic_s_own_setting_wins_over_the_broker_s() -> None:
    broker = {"log.segment.bytes": "5000"}
    assert topic(broker).segment_bytes == 5_000
    assert topic(broker, segment_bytes="6000").segment_bytes == 6_000


def test_the_finer_unit_wins_over_the_coarser() -> None:
    assert topic({"log.retention.hours": "2"}).retention_ms == 7_200_000
    assert topic({"log.retention.hours": "2", "log.retention.minutes": "3"}).retention_ms == 180_000
    finest = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert topic(finest).retention_ms == 4


def test_minus_one_hours_is_for_ever_and_not_minus_an_hour() -> None:
    assert topic({"log.retention.hours": "-1"}).retention_ms == -1


def test_kafka_s_old_names_are_known() -> None:
    settings = BrokerSettings({"broker.id": "7", "log.dir": "a, b"})
    assert settings.number("node.id") == 7 and settings.words("log.dirs") == ("a", "b")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("node.id", "x", "whole number"),
        ("node.id", "-1", "from 0"),
        ("node.id", "2147483648", "to 2147483647"),
        ("log.segment.bytes", "1023", "from 1024"),
        ("delete.topic.enable", "yes", "true or false"),
        ("log.cleanup.policy", "delete,compress", "one of delete, compact"),
        ("compression.type", "brotli", "one of"),
        ("log.segment.byte", "1", "did you mean log.segment.bytes"),
        ("nonsense", "1", "no such setting"),
    ],
)
def test_a_bad_setting_is_refused_with_what_would_be_right(key: str, value: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words) as refused:
        BrokerSettings({key: value})
    assert key in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("segment.bytes", "1023"), ("retention.ms", "-2"), ("cleanup.policy", "x"), ("no.such", "1")],
)
def test_a_bad_topic_setting_is_refused_under_its_own_name(key: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=key):
        check_topic_setting(key, value)


def test_flags_are_read_whatever_their_case() -> None:
    assert BrokerSettings({"auto.create.topics.enable": "False"}).flag("auto.create.topics.enable") is False
    assert BrokerSettings({}).flag("auto.create.topics.enable") is True


def test_uncompressed_is_a_codec_of_the_topic_and_producer_is_none() -> None:
    assert topic({}, compression_type="uncompressed").codec_name == "none"
    assert topic({"compression.type": "lz4"}).codec_name == "lz4"


def test_every_default_passes_its_own_check_and_every_fallback_has_one() -> None:
    for row in BROKER_SETTINGS.values():
        text = row.format(row.default)
        assert text is None or row.parse(text) == row.default
    for name in TOPIC_SETTINGS:
        assert resolve_topic_setting(BrokerSettings({}), {}, name) is not None


def test_a_setting_of_kafka_s_that_does_nothing_is_taken_checked_and_told() -> None:
    settings = BrokerSettings({"num.io.threads": "8", "listener.name.x.ssl.keystore.location": "f"})
    assert settings.idle() == ["num.io.threads"]
    assert BROKER_SETTINGS["num.io.threads"].meaning.startswith("Has no effect.")
    with pytest.raises(InvalidSetting, match="whole number"):
        BrokerSettings({"num.io.threads": "many"})


def test_an_authorizer_is_refused_and_not_silently_left_out() -> None:
    with pytest.raises(InvalidSetting, match="authorizer"):
        BrokerSettings({"authorizer.class.name": "org.example.Mine"})


def test_a_secret_is_in_no_message_and_no_answer() -> None:
    row = BROKER_SETTINGS["ssl.key.password"]
    assert row.format("hunter2") is None
    assert BrokerSettings({"ssl.key.password": "hunter2"}).synonyms(row.name)[0].text is None


def test_what_was_changed_at_run_time_wins_the_broker_s_own_first() -> None:
    settings = BrokerSettings({"message.max.bytes": "3000"})
    settings.set_dynamic({"message.max.bytes": "1000"}, {"message.max.bytes": "2000"})
    assert settings.number("message.max.bytes") == 1_000
    assert settings.synonyms("message.max.bytes") == [
        Synonym("message.max.bytes", "1000", Source.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "2000", Source.DYNAMIC_DEFAULT),
        Synonym("message.max.bytes", "3000", Source.STATIC),
        Synonym("message.max.bytes", "1048588", Source.DEFAULT),
    ]
    settings.set_dynamic({}, {"message.max.bytes": "2000"})
    assert settings.number("message.max.bytes") == 2_000
    settings.set_dynamic({}, {})
    assert settings.number("message.max.bytes") == 3_000


def test_a_refused_change_leaves_what_was_in_force() -> None:
    settings = BrokerSettings({})
    settings.set_dynamic({"message.max.bytes": "1000"}, {})
    with pytest.raises(InvalidSetting):
        settings.set_dynamic({"message.max.bytes": "x"}, {})
    assert settings.number("message.max.bytes") == 1_000


def test_what_is_read_at_the_start_is_not_changed_by_what_the_store_has() -> None:
    settings = BrokerSettings({"node.id": "3"})
    settings.set_dynamic({"node.id": "4", "message.max.bytes": "1000"}, {"broker.rack": "a"})
    assert (settings.number("node.id"), settings.text("broker.rack")) == (3, "")
    assert settings.number("message.max.bytes") == 1_000
    assert [synonym.source for synonym in settings.synonyms("node.id")] == [Source.STATIC, Source.DEFAULT]


def test_a_coarser_unit_is_told_behind_the_finer_one_only() -> None:
    settings = BrokerSettings({"log.retention.hours": "2"})
    assert settings.synonyms("log.retention.ms") == []
    settings = BrokerSettings({"log.retention.hours": "2", "log.retention.ms": "5"})
    assert settings.synonyms("log.retention.ms") == [
        Synonym("log.retention.ms", "5", Source.STATIC),
        Synonym("log.retention.hours", "2", Source.STATIC),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_topic_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="at most"):
        check_topic_settings({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    check_topic_settings({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "10"})


def test_the_level_of_a_codec_is_that_of_the_topic_s_codec() -> None:
    assert topic({}, compression_type="zstd", compression_zstd_level="7").codec_level == 7
    assert topic({}, compression_type="gzip").codec_level == -1
    assert topic({}, compression_type="snappy").codec_level is None


def test_no_time_at_all_is_for_topics_and_not_for_brokers_to_keep_records() -> None:
    assert topic({}, retention_ms="0").retention_ms == 0
    assert topic({"log.retention.ms": "-3"}).retention_ms < 0
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        with pytest.raises(InvalidSetting, match="other than 0"):
            BrokerSettings({key: "0"})


CONSUMER_NUMBERS = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")


def test_the_settings_of_groups_do_something_and_have_kafka_s_defaults() -> None:
    settings = BrokerSettings({})
    assert settings.number("group.initial.rebalance.delay.ms") == 3_000
    assert [settings.number(f"group.consumer.{name}") for name in CONSUMER_NUMBERS] == [5_000, 45_000, 1_000]
    assert settings.words("group.consumer.assignors") == ("uniform", "range")
    assert settings.words("group.coordinator.rebalance.protocols") == ("classic", "consumer", "streams")
    assert settings.number("offsets.topic.replication.factor") == 3
    idle = [row.name for row in COORDINATOR_ROWS if not row.has_effect]
    assert idle == ["offsets.topic.compression.codec"]
    dynamic = [row.name for row in COORDINATOR_ROWS if row.is_dynamic]
    assert dynamic == ["group.consumer.assignment.interval.ms"]
    assert not any("No groups are served" in row.meaning for row in BROKER_SETTINGS.values())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("group.max.size", "0", "from 1"),
        ("group.consumer.session.timeout.ms", "0", "from 1"),
        ("group.consumer.min.assignment.interval.ms", "-1", "from 0"),
        ("group.consumer.assignors", "sticky", "one of uniform, range"),
        ("group.consumer.assignors", "", "at least one"),
        ("group.consumer.assignors", "range,range", "without duplicates"),
        ("group.consumer.migration.policy", "sideways", "one of bidirectional"),
        ("group.coordinator.rebalance.protocols", "consumer", "classic among them"),
        ("group.coordinator.rebalance.protocols", "classic,share", "one of classic"),
        ("offsets.retention.minutes", "0", "from 1"),
        ("offsets.topic.segment.bytes", "1023", "from 1024"),
        ("offsets.topic.compression.codec", "5", "to 4"),
    ],
)
def test_a_bad_setting_of_groups_is_refused(key: str, value: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words) as refused:
        BrokerSettings({key: value})
    assert key in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (
            {"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
            "group.min.session.timeout.ms=9: expected at most group.max.session.timeout.ms=8",
        ),
        (
            {"group.consumer.min.heartbeat.interval.ms": "16000"},
            "group.consumer.min.heartbeat.interval.ms=16000: "
            "expected at most group.consumer.max.heartbeat.interval.ms=15000",
        ),
        (
            {"group.consumer.session.timeout.ms": "44999"},
            "group.consumer.session.timeout.ms=44999: "
            "expected at least group.consumer.min.session.timeout.ms=45000",
        ),
        (
            {"group.consumer.assignment.interval.ms": "15001"},
            "group.consumer.assignment.interval.ms=15001: "
            "expected at most group.consumer.max.assignment.interval.ms=15000",
        ),
        (
            {"group.consumer.session.timeout.ms": "5000", "group.consumer.min.session.timeout.ms": "1"},
            "group.consumer.session.timeout.ms=5000: expected more than "
            "group.consumer.heartbeat.interval.ms=5000",
        ),
    ],
)
def test_settings_of_groups_that_contradict_each_other_are_refused_at_the_start(
    properties: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        BrokerSettings(properties)
    assert str(refused.value) == words


def test_a_group_s_own_number_wins_within_the_broker_s_bounds() -> None:
    settings, key = BrokerSettings({}), "consumer.session.timeout.ms"
    assert group_number(settings, {}, key) == 45_000
    assert group_number(settings, {key: "50000"}, key) == 50_000
    assert group_number(settings, {key: "70000"}, key) == 60_000
    assert group_number(settings, {key: "1"}, key) == 45_000
    assert group_number(settings, {key: "not a number"}, key) == 45_000


def test_a_broker_s_number_that_was_set_before_its_bounds_is_kept_within_them() -> None:
    settings = BrokerSettings({"group.consumer.max.assignment.interval.ms": "2000"})
    settings.set_dynamic({}, {"group.consumer.assignment.interval.ms": "9000"})
    assert group_number(settings, {}, "consumer.assignment.interval.ms") == 2_000


def test_a_group_s_session_must_be_longer_than_its_heartbeat_interval_whoever_set_which() -> None:
    wide = BrokerSettings({"group.consumer.min.session.timeout.ms": "1"})
    with pytest.raises(InvalidSetting, match=r"more than consumer\.heartbeat\.interval\.ms=5000"):
        check_group_settings(wide, {"consumer.session.timeout.ms": "5000"})
    check_group_settings(wide, {"consumer.session.timeout.ms": "5001"})
    beat = {"consumer.session.timeout.ms": "9000", "consumer.heartbeat.interval.ms": "9000"}
    with pytest.raises(InvalidSetting, match=r"consumer\.session\.timeout\.ms=9000"):
        check_group_settings(wide, beat)


@pytest.mark.parametrize("package", ["", "org.apache.kafka.common.replica."])
def test_a_selector_of_replicas_that_there_is_not_is_refused(package: str) -> None:
    for name in ("RackAwareReplicaSelector", "LeaderSelector"):
        assert BrokerSettings({"replica.selector.class": package + name}).text("replica.selector.class")
    with pytest.raises(InvalidSetting, match=r"replica\.selector\.class=com\.acme\.Nearest: "):
        BrokerSettings({"replica.selector.class": "com.acme.Nearest"})
