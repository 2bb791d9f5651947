"""Which metrics are wanted of whom: selectors, sums of subscriptions, and ids that change with them."""

from __future__ import annotations

import pytest

from tidelog.base.setting import InvalidSetting
from tidelog.broker.subscriptions import Wanted, parse_match, understand, wanted_of

ID = bytes(range(16))
CLIENT = {
    "client_instance_id": "AAECAwQFBgcICQoLDA0ODw",
    "client_id": "producer-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.3.1",
    "client_source_address": "10.0.0.7",
    "client_source_port": "40123",
}


def wanted(*resources: dict[str, str], client: dict[str, str] = CLIENT) -> Wanted:
    return wanted_of(client, ID, understand({str(n): each for n, each in enumerate(resources)}))


def test_without_subscriptions_nothing_is_wanted() -> None:
    nothing = wanted()
    assert (nothing.metrics, nothing.interval_ms) == ((), 300_000)


def test_a_subscription_without_selectors_is_for_everybody() -> None:
    asked = wanted({"metrics": "org.apache.kafka.producer., b", "interval.ms": "1000"})
    assert (asked.metrics, asked.interval_ms) == (("b", "org.apache.kafka.producer."), 1_000)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("client_id=producer-1", True),
        ("client_id=producer.*", True),
        ("client_id=producer", False),
        ("client_id=.*-1,client_software_name=apache.*", True),
        ("client_id=.*-1,client_software_name=librdkafka", False),
        (r"client_software_version=4\.3.*", True),
        ("client_source_address=10[.]0[.]0[.][0-9]+", True),
        ("client_source_port=40123", True),
        ("client_source_port=4012", False),
        ("client_instance_id=AAEC.*", True),
        (" client_id = producer-[0-9] ", True),
    ],
)
def test_a_pattern_must_fit_the_whole_value_and_all_of_them_must(match: str, fits: bool) -> None:
    assert bool(wanted({"metrics": "m", "match": match}).metrics) is fits


def test_a_client_without_an_id_fits_no_pattern_for_it() -> None:
    nameless = {name: text for name, text in CLIENT.items() if name != "client_id"}
    assert wanted({"metrics": "m", "match": "client_id=.*"}, client=nameless).metrics == ()


def test_subscriptions_add_up_and_the_most_eager_counts() -> None:
    asked = wanted(
        {"metrics": "b,a", "interval.ms": "5000"},
        {"metrics": "c,a", "interval.ms": "2000", "match": "client_id=.*"},
        {"metrics": "d", "interval.ms": "100", "match": "client_id=other"},
    )
    assert (asked.metrics, asked.interval_ms) == (("a", "b", "c"), 2_000)
    assert wanted({"metrics": "a", "interval.ms": "3600000"}).interval_ms == 300_000


def test_all_metrics_are_one_word() -> None:
    assert wanted({"metrics": "a,b"}, {"metrics": "*"}).metrics == ("*",)


def test_the_id_of_a_subscription_changes_with_what_is_wanted_and_of_whom() -> None:
    first = wanted({"metrics": "a,b"}).subscription_id
    assert first == wanted({"metrics": "b,a"}).subscription_id
    others = [
        wanted({"metrics": "a"}).subscription_id,
        wanted({"metrics": "a,b", "interval.ms": "1000"}).subscription_id,
        wanted_of(CLIENT, b"another client-1", understand({"x": {"metrics": "a,b"}})).subscription_id,
    ]
    assert len({first, *others}) == 4
    assert all(-(2**31) <= number < 2**31 for number in (first, *others))


def test_the_id_of_a_subscription_is_the_one_kafka_gives() -> None:
    instance_id = bytes.fromhex("0123456789abcdef0fedcba987654321")
    assert wanted_of(CLIENT, instance_id, []).subscription_id == -725132322


@pytest.mark.parametrize(
    "word",
    [
        "client_id",
        "client_id=",
        "=x",
        "unheard=x",
        "client_id=a=b",
        "client_id=(",
        "client_id=(?=x)",
        "client_id=" + "a" * 1_001,
        "client_id=((a{100}){100}){100}",
    ],
)
def test_what_is_no_selector_is_refused(word: str) -> None:
    with pytest.raises(InvalidSetting, match="Illegal client matching pattern"):
        parse_match([word])
    assert wanted({"metrics": "m", "match": word}).metrics == ()


def test_a_pattern_that_would_hang_others_does_not_hang() -> None:
    match = parse_match(["client_id=(a|a|aa)*b"])
    assert match["client_id"].fullmatch("a" * 200) is None
