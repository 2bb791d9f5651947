"""One setting: which texts are taken, as Kafka takes them, and what is said of the others."""

from __future__ import annotations

import pytest

from tidelog.base import setting
from tidelog.base.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from tidelog.base.forms import read_address_limits
from tidelog.base.limits import CONNECTIONS_MAX, SETTING_SIZE_MAX
from tidelog.base.setting import InvalidSetting, Kind, Setting, nearest_name

REPLICAS = TOPIC_SETTINGS["leader.replication.throttled.replicas"]
RESET = GROUP_SETTINGS["share.auto.offset.reset"]
OVERRIDES = BROKER_SETTINGS["max.connections.per.ip.overrides"]


def is_taken(row: Setting, text: str) -> bool:
    try:
        row.parse(text)
    except InvalidSetting as problem:
        assert row.name in str(problem)
        return False
    return True


@pytest.mark.parametrize("name", ["retention.ms", "segment.bytes", "min.cleanable.dirty.ratio"])
@pytest.mark.parametrize("text", ["1_048_576", "0_0.5", "", "1__0", "_1"])
def test_a_number_has_no_underscores(name: str, text: str) -> None:
    assert not is_taken(TOPIC_SETTINGS[name], text)


def test_a_fraction_has_the_digits_that_kafka_reads() -> None:
    ratio = TOPIC_SETTINGS["min.cleanable.dirty.ratio"]
    assert [is_taken(ratio, text) for text in ("0.5", ".5", "1e-1", "+0.5")] == [True] * 4
    assert [is_taken(ratio, text) for text in ("\u0660.\u0665", "nan", "inf", "1.1")] == [False] * 4


@pytest.mark.parametrize("text", [",", "compact,", ",compact", "compact,,delete"])
def test_a_list_has_a_word_between_any_two_commas(text: str) -> None:
    assert not is_taken(TOPIC_SETTINGS["cleanup.policy"], text)


def test_a_list_may_be_empty_and_have_blanks_around_its_words() -> None:
    assert TOPIC_SETTINGS["cleanup.policy"].parse("") == ()
    assert TOPIC_SETTINGS["cleanup.policy"].parse(" compact , delete ") == ("compact", "delete")


@pytest.mark.parametrize(
    ("name", "text", "taken"),
    [
        ("local.retention.ms", "-2", True),
        ("local.retention.ms", "-3", False),
        ("local.retention.bytes", "-2", True),
        ("local.retention.bytes", "-3", False),
        ("retention.bytes", "-3", True),
        ("retention.bytes", "-9223372036854775808", True),
        ("retention.bytes", "-9223372036854775809", False),
        ("retention.ms", "-1", True),
        ("retention.ms", "-2", False),
    ],
)
def test_numbers_have_the_bounds_that_kafka_gives_them(name: str, text: str, taken: bool) -> None:
    assert is_taken(TOPIC_SETTINGS[name], text) == taken


@pytest.mark.parametrize("text", ["", "*", "*,", ",*", "* , ", "0:1", "0:1,", "0:1,,1:2", " 0:1 , 1:2 ", ","])
def test_throttled_replicas_are_all_or_some(text: str) -> None:
    assert is_taken(REPLICAS, text)


@pytest.mark.parametrize("text", ["*,*", "*,0:1", "0:1,*", "0", "0:", "\u0663:1", "0:1 1:2"])
def test_throttled_replicas_are_not_all_and_some(text: str) -> None:
    assert not is_taken(REPLICAS, text)


@pytest.mark.parametrize(
    "text",
    [
        "latest",
        " earliest ",
        "by_duration:PT1H",
        "by_duration:P1DT2H3M4.5S",
        "by_duration:P1D",
        "by_duration:pt1h",
        "by_duration:PT0S",
        "by_duration:PT5.S",
        "by_duration:+PT1S",
        "by_duration:PT4,5S",
    ],
)
def test_a_share_group_begins_at_an_end_or_some_time_ago(text: str) -> None:
    assert is_taken(RESET, text)


@pytest.mark.parametrize("text", ["", "none", "Latest", "x", "by_duration", "BY_DURATION:PT1H"])
@pytest.mark.parametrize(
    "duration",
    [
        "",
        ":",
        ":P",
        ":PT",
        ":-PT1H",
        ":PT-1H",
        ":P1W",
        ":PT1.5H",
        ":P1DT",
        ":PT.5S",
        ": PT1H",
        f":PT{'9' * 20}S",
    ],
)
def test_a_share_group_begins_nowhere_else(text: str, duration: str) -> None:
    assert not is_taken(RESET, text)
    assert not is_taken(RESET, f"by_duration{duration}")


def test_addresses_may_have_limits_of_their_own() -> None:
    text = "127.0.0.1:5, ::1:7,10.0.0.1: 0,127.0.0.1:6,"
    assert is_taken(OVERRIDES, text)
    assert read_address_limits(text) == {"127.0.0.1": 6, "::1": 7, "10.0.0.1": 0}
    assert read_address_limits("0:0:0:0:0:0:0:1:9999999999") == {"::1": CONNECTIONS_MAX}
    assert read_address_limits("") == {}


@pytest.mark.parametrize(
    "text", ["nonsense", "127.0.0.1:x", "127.0.0.1:", ":5", "a b:5", "[::1]:5", "localhost:5"]
)
def test_limits_of_nobody_are_refused(text: str) -> None:
    assert not is_taken(OVERRIDES, text)


@pytest.mark.parametrize("kind", [Kind.STRING, Kind.LIST, Kind.PASSWORD, Kind.INT])
def test_a_value_has_a_length_that_every_version_can_tell(kind: Kind) -> None:
    row = Setting("a.key", kind, None, "")
    for text in ("1" + " " * SETTING_SIZE_MAX, "\u00e9" * (SETTING_SIZE_MAX // 2 + 1)):
        with pytest.raises(InvalidSetting, match=f"at most {SETTING_SIZE_MAX} bytes") as refused:
            row.parse(text)
        assert len(str(refused.value)) < 200
    assert is_taken(row, "1" + " " * (SETTING_SIZE_MAX - 1))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.retention.mss", "log.retention.ms"),
        ("log.retention.m", "log.retention.ms"),
        ("log.retetnion.ms", "log.retention.ms"),
        ("log.retention.mz", "log.retention.ms"),
        ("LOG_RETENTION_MS", "log.retention.ms"),
        ("logRetentionHours", "log.retention.hours"),
    ],
)
def test_a_misspelt_name_is_answered_with_what_was_meant(name: str, meant: str) -> None:
    assert nearest_name(name, BROKER_SETTINGS) == f"; did you mean {meant}?"


def test_a_name_that_is_too_long_is_not_looked_up() -> None:
    known = ["a" * 101]
    assert nearest_name("a" * 100, known) == f"; did you mean {known[0]}?"
    assert nearest_name("a" * 102, known) == ""


@pytest.mark.parametrize("name", ["", "zoo", "log", "log.retention.ms" * 10])
def test_a_name_that_is_far_from_all_is_not_guessed(name: str) -> None:
    assert nearest_name(name, BROKER_SETTINGS) == ""


def test_what_a_name_is_looked_up_in_is_made_once() -> None:
    """Ten thousand names in one request would hold everybody up."""
    nearest_name("first", BROKER_SETTINGS)
    before = setting._misspelt.cache_info()
    for number in range(100):
        nearest_name(f"no.such.{number}", BROKER_SETTINGS)
    after = setting._misspelt.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 100)


def test_what_nobody_reads_is_said_to_have_no_effect() -> None:
    for row in (BROKER_SETTINGS["replica.high.watermark.checkpoint.interval.ms"],):
        assert not row.has_effect and "Has no effect" in row.meaning
