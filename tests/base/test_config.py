"""Settings: parsing, bounds, fallbacks from topic to broker to default."""

from __future__ import annotations

import pytest

from tidelog.base.config import (
    BROKER_ROWS,
    TOPIC_ROWS,
    BrokerSettings,
    InvalidSetting,
    TopicSettings,
    check_topic_setting,
    resolve_topic_setting,
)


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


def test_every_default_passes_its_own_check_and_every_fallback_exists() -> None:
    rows = {row.name: row for row in BROKER_ROWS}
    for row in BROKER_ROWS:
        if isinstance(row.default, int | str) and not isinstance(row.default, bool):
            assert row.parse(str(row.default)) == row.default
    for name, fallbacks in TOPIC_ROWS:
        assert all(key in rows for key, _ in fallbacks)
        assert rows[fallbacks[-1][0]].default is not None
        assert resolve_topic_setting(BrokerSettings({}), {}, name) is not None
