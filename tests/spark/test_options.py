"""Option by option: what each row takes, what it is without it, and what is said of each bad value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import TopicPartition
from tidelog.spark.option_forms import (
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Subscribe,
    SubscribePattern,
)
from tidelog.spark.option_rows import (
    FORBIDDEN_TO_READ,
    FORBIDDEN_TO_WRITE,
    READ_ROWS,
    SELECTIONS,
    WRITE_ROWS,
    Option,
)
from tidelog.spark.options import OptionError, ReadOptions, WriteOptions, option_table

LONG = "from -9223372036854775808 to 9223372036854775807"
T0, T1, U2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 2)
PER_PARTITION = 'an offset for each partition, e.g. {"clicks":{"0":23,"1":-2}}'
PER_TIME = 'expected milliseconds for each partition, e.g. {"clicks":{"0":1700000000000}}'
ASSIGNED = 'expected partitions by topic, e.g. {"clicks":[0,1],"views":[2]}'
BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
SUBSCRIBED = BROKERS | {"subscribe": "t"}


class Case(NamedTuple):
    field: str  # of the parsed options
    default: Any
    good: dict[str, Any]
    bad: dict[str, str]
    streaming: bool = False


def numbers(field: str, default: int | None, least: int, most: int, streaming: bool = False) -> Case:
    words = f"expected a whole number from {least} to {most}"
    bad = ["", "x", "1.5", "1_0", "0x1", "١", str(least - 1), str(most + 1), "9" * 5000]
    good = {"+7": 7, " 12 ": 12, str(most): most, str(least): least}
    return Case(field, default, good, dict.fromkeys(bad, words), streaming)


def booleans(field: str, default: bool) -> Case:
    return Case(
        field,
        default,
        {"true": True, "TRUE": True, "false": False, " False ": False},
        dict.fromkeys(["", "yes", "1", "maybe"], "expected true or false"),
    )


INT, WIDE = 2**31 - 1, 2**63 - 1
READ = {
    "assign": Case(
        "selection",
        None,
        {
            '{"u":[2],"t":[1,0,1]}': Assign((T0, T1, U2)),
            "{}": Assign(()),
        },
        dict.fromkeys(
            [
                "",
                "t",
                "[0]",
                '{"t":["0"]}',
                '{"t":0}',
                '{"t":[-1]}',
                '{"t":[1.5]}',
                '{"t":[null]}',
                '{"t":[2147483648]}',
            ],
            ASSIGNED,
        ),
    ),
    "subscribe": Case(
        "selection",
        None,
        {"t": Subscribe(("t",)), " b, a ,,b": Subscribe(("b", "a"))},
        dict.fromkeys(["", " , "], "expected names of topics, separated by commas"),
    ),
    "subscribePattern": Case(
        "selection",
        None,
        {"clicks.*": SubscribePattern("clicks.*"), " a|b ": SubscribePattern("a|b")},
        {"": "expected a regular expression", "(": "expected a regular expression, and there is missing )"},
    ),
    "kafka.bootstrap.servers": Case(
        "properties",
        {"bootstrap.servers": "localhost:9092"},
        {"a:1,b:2": {"bootstrap.servers": "a:1,b:2"}},
        {"": "expected host:port", "  ": "expected host:port"},
    ),
    "startingTimestamp": Case(
        "starting",
        Edge.EARLIEST,
        {"1000": AtTimestamp(1000), " 0 ": AtTimestamp(0)},
        dict.fromkeys(["", "now", "1.5"], f"expected a whole number {LONG}"),
    ),
    "startingOffsetsByTimestamp": Case(
        "starting",
        Edge.EARLIEST,
        {'{"t":{"1":5,"0":7}}': AtTimestamps({T0: 7, T1: 5})},
        dict.fromkeys(["", "5", '{"t":5}', '{"t":{"x":5}}', '{"t":{"0":"now"}}'], PER_TIME),
    ),
    "startingOffsets": Case(
        "starting",
        Edge.LATEST,
        {
            "Earliest": Edge.EARLIEST,
            " latest ": Edge.LATEST,
            '{"t":{"1":23,"0":-2},"u":{"2":-1}}': AtOffsets({T0: -2, T1: 23, U2: -1}),
        },
        dict.fromkeys(
            [
                "",
                "newest",
                '{"t":{"0":-3}}',
                '{"t":{"-1":0}}',
                '{"t":{"0":1.5}}',
                '{"t":{"0":"5"}}',
                '{"t":{"0":null}}',
                "[" * 9999,
            ],
            f"expected earliest, latest, or {PER_PARTITION}",
        ),
        streaming=True,
    ),
    "startingOffsetsByTimestampStrategy": Case(
        "strategy",
        "error",
        {"error": "error", "LATEST": "latest"},
        dict.fromkeys(["", "earliest"], "expected error or latest"),
    ),
    "endingTimestamp": Case(
        "ending", Edge.LATEST, {"1000": AtTimestamp(1000)}, {"later": f"expected a whole number {LONG}"}
    ),
    "endingOffsetsByTimestamp": Case(
        "ending", Edge.LATEST, {'{"t":{"0":5}}': AtTimestamps({T0: 5})}, {'{"t":[5]}': PER_TIME}
    ),
    "endingOffsets": Case(
        "ending",
        Edge.LATEST,
        {"LATEST": Edge.LATEST, '{"t":{"0":5,"1":-1}}': AtOffsets({T0: 5, T1: -1})},
        {
            "earliest": "a batch cannot end at the earliest offset; expected latest, or an offset for each",
            '{"t":{"0":-2,"1":4}}': "a batch cannot end at the earliest offset (-2) of t-0; expected latest",
            "5": f"expected earliest, latest, or {PER_PARTITION}",
        },
    ),
    "failOnDataLoss": booleans("fail_on_data_loss", True),
    "kafkaConsumer.pollTimeoutMs": numbers("poll_timeout_ms", 120_000, 1, WIDE),
    "fetchOffset.numRetries": numbers("fetch_offset_num_retries", 3, 1, INT),
    "fetchOffset.retryIntervalMs": numbers("fetch_offset_retry_interval_ms", 1000, 0, WIDE),
    "maxOffsetsPerTrigger": numbers("max_offsets_per_trigger", None, 1, WIDE, streaming=True),
    "minOffsetsPerTrigger": numbers("min_offsets_per_trigger", None, 0, WIDE, streaming=True),
    "maxTriggerDelay": Case(
        "max_trigger_delay_ms",
        900_000,
        {"15m": 900_000, "90S": 90_000, "250": 250, "3min": 180_000, "2h": 7_200_000, "1d": 86_400_000}
        | {"7ms": 7, "1999us": 1},
        dict.fromkeys(
            ["", "m", "1.5m", "-1s", "5 m", "2w"], "expected a number of us, ms, s, m, min, h or d"
        ),
        streaming=True,
    ),
    "minPartitions": numbers("split.min_partitions", None, 1, INT),
    "maxRecordsPerPartition": numbers("split.max_records_per_partition", None, 1, WIDE),
    "groupIdPrefix": Case(
        "group_id_prefix", "spark-kafka-relation", {"mine": "mine"}, {"": "expected the beginning of a group"}
    ),
    "kafka.group.id": Case("group_id", None, {"g": "g"}, {"": "expected the name of a group"}),
    "includeHeaders": booleans("include_headers", False),
    "kafka.isolation.level": Case(
        "read_committed",
        False,
        {"read_committed": True, "READ_UNCOMMITTED": False},
        {"serializable": "expected read_uncommitted or read_committed"},
    ),
    "logDirs": Case(
        "log_dirs", (), {"/a, /b": ("/a", "/b")}, {" ,": "expected directories, separated by commas"}
    ),
    "commitGroup": Case(
        "commit_group", None, {"g": "g", "true": None, "false": None, "": None}, {}, streaming=True
    ),
    "pushFilters": booleans("push_filters", False),
}
WRITE = {
    "kafka.bootstrap.servers": READ["kafka.bootstrap.servers"],
    "topic": Case("topic", None, {" t ": "t"}, {"": "expected the name of a topic"}),
    "includeHeaders": booleans("include_headers", False),
    "kafka.acks": Case(
        "acks", -1, {"all": -1, "ALL": -1, "-1": -1, "1": 1, "0": 0}, {"2": "expected all, 1 or 0"}
    ),
    "kafka.compression.type": Case(
        "compression_type",
        "none",
        {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")},
        {"brotli": "expected none or gzip or snappy or lz4 or zstd"},
    ),
    "kafka.batch.size": numbers("batch_size", 524288, 0, INT),
    "kafka.linger.ms": numbers("linger_ms", 5, 0, WIDE),
    "kafka.enable.idempotence": booleans("enable_idempotence", True),
    "kafka.max.in.flight.requests.per.connection": numbers("max_in_flight", 5, 1, INT),
    "kafka.retries": numbers("retries", INT, 0, INT),
    "kafka.delivery.timeout.ms": Case(
        "delivery_timeout_ms",
        120_000,
        {"30005": 30_005},
        {
            "-1": f"expected a whole number from 0 to {INT}",
            "30004": "expected at least 30005, which is kafka.linger.ms and kafka.request.timeout.ms",
        },
    ),
    "kafka.request.timeout.ms": numbers("request_timeout_ms", 30_000, 0, INT),
    "kafka.max.request.size": numbers("max_request_size", 1_048_576, 0, INT),
}
SELECTION_NAMES = {row.name for row in SELECTIONS}


def parse_read(name: str, text: str, streaming: bool) -> ReadOptions:
    rest = BROKERS if name in SELECTION_NAMES else SUBSCRIBED
    return ReadOptions.parse(rest | {name: text}, streaming=streaming)


def picked(parsed: Any, field: str) -> Any:
    for part in field.split("."):
        parsed = getattr(parsed, part)
    return parsed


def test_every_row_is_tried() -> None:
    assert [row.name for row in READ_ROWS] == list(READ)
    assert [row.name for row in WRITE_ROWS] == list(WRITE)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in READ for text in READ[name].good])
def test_a_good_value_of_a_read_is_taken(name: str, text: str) -> None:
    case = READ[name]
    assert picked(parse_read(name, text, case.streaming), case.field) == case.good[text]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in READ for text in READ[name].bad])
def test_a_bad_value_of_a_read_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_read(name, text, READ[name].streaming)
    assert str(refused.value).startswith(f"{name}={text}: ")
    assert READ[name].bad[text] in str(refused.value)


@pytest.mark.parametrize("name", sorted(READ.keys() - SELECTION_NAMES))
def test_a_read_has_the_connector_s_defaults(name: str) -> None:
    case = READ[name]
    assert picked(ReadOptions.parse(SUBSCRIBED, streaming=case.streaming), case.field) == case.default


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in WRITE for text in WRITE[name].good])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_good_value_of_a_write_is_taken(name: str, text: str, streaming: bool) -> None:
    parsed = WriteOptions.parse(BROKERS | {name: text}, streaming=streaming)
    assert picked(parsed, WRITE[name].field) == WRITE[name].good[text]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in WRITE for text in WRITE[name].bad])
def test_a_bad_value_of_a_write_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(OptionError) as refused:
        WriteOptions.parse(BROKERS | {name: text}, streaming=False)
    assert str(refused.value).startswith(f"{name}={text}: ")
    assert WRITE[name].bad[text] in str(refused.value)


@pytest.mark.parametrize("name", WRITE)
def test_a_write_has_the_defaults_of_its_row(name: str) -> None:
    assert picked(WriteOptions.parse(BROKERS, streaming=True), WRITE[name].field) == WRITE[name].default


@pytest.mark.parametrize("name", FORBIDDEN_TO_READ)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_property_that_breaks_a_read_is_refused_with_what_to_do(name: str, streaming: bool) -> None:
    with pytest.raises(OptionError) as refused:
        ReadOptions.parse(SUBSCRIBED | {f"Kafka.{name.upper()}": "x"}, streaming=streaming)
    assert str(refused.value) == f"kafka.{name}=x: not allowed; {FORBIDDEN_TO_READ[name]}"


@pytest.mark.parametrize("name", FORBIDDEN_TO_WRITE)
def test_a_property_that_breaks_a_write_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(OptionError) as refused:
        WriteOptions.parse(BROKERS | {f"kafka.{name}": "x"}, streaming=True)
    assert str(refused.value) == f"kafka.{name}=x: not allowed; {FORBIDDEN_TO_WRITE[name]}"


def test_the_connector_s_forbidden_names_are_all_there() -> None:
    read = {"auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit"}
    assert read | {"interceptor.classes"} == FORBIDDEN_TO_READ.keys()
    assert {"key.serializer", "value.serializer"} <= FORBIDDEN_TO_WRITE.keys()
    assert "startingOffsets" in FORBIDDEN_TO_READ["auto.offset.reset"]
    assert "commitGroup" in FORBIDDEN_TO_READ["enable.auto.commit"]


def refusal(raw: dict[str, str], streaming: bool = False) -> str:
    with pytest.raises(OptionError) as refused:
        ReadOptions.parse(raw, streaming=streaming)
    return str(refused.value)


def test_exactly_one_selection_must_be_given() -> None:
    names = "assign, subscribe, subscribePattern"
    assert refusal(BROKERS) == f"one of {names} is missing; name the topics to read"
    assert refusal(SUBSCRIBED | {"subscribePattern": "t.*"}) == (
        f"subscribe=t and subscribePattern=t.*: expected only one of {names}"
    )


def test_brokers_must_be_named_but_not_for_files() -> None:
    missing = "kafka.bootstrap.servers is missing; name at least one broker as host:port"
    assert refusal({"subscribe": "t"}) == missing
    assert ReadOptions.parse({"subscribe": "t", "logDirs": "/d"}, streaming=False).properties == {}
    with pytest.raises(OptionError, match="servers is missing"):
        WriteOptions.parse({"topic": "t"}, streaming=False)


def test_a_stream_starts_at_latest_and_a_batch_at_earliest() -> None:
    assert ReadOptions.parse(SUBSCRIBED, streaming=True).starting is Edge.LATEST
    assert ReadOptions.parse(SUBSCRIBED, streaming=False).starting is Edge.EARLIEST


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    said = refusal(SUBSCRIBED | {name: "latest"}, streaming=True)
    assert said == f"{name}=latest: not allowed; a stream has no end, read a batch instead"


def test_a_batch_does_not_start_at_latest() -> None:
    said = refusal(SUBSCRIBED | {"startingOffsets": "latest"})
    assert said == (
        "startingOffsets=latest: a batch cannot start at the latest offset; "
        "expected earliest, or an offset for each partition"
    )
    assert "the latest offset (-1) of t-0, u-2;" in refusal(
        SUBSCRIBED | {"startingOffsets": '{"t":{"0":-1,"1":5},"u":{"2":-1}}'}
    )


def test_timestamps_go_before_offsets_and_one_timestamp_before_many() -> None:
    every = {"startingOffsets": "not read", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert ReadOptions.parse(SUBSCRIBED | every, streaming=True).starting == AtTimestamps({T0: 5})
    every |= {"startingTimestamp": "0", "startingOffsetsByTimestamp": "not read"}
    assert ReadOptions.parse(SUBSCRIBED | every, streaming=True).starting == AtTimestamp(0)
    ends = {"endingTimestamp": "7", "endingOffsetsByTimestamp": "no", "endingOffsets": "no"}
    assert ReadOptions.parse(SUBSCRIBED | ends, streaming=False).ending == AtTimestamp(7)


def test_a_start_behind_its_end_is_refused() -> None:
    ends = {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":8}}'}
    assert refusal(SUBSCRIBED | ends) == "startingOffsets=9 of t-0: expected no more than endingOffsets, 8"
    times = {"startingOffsetsByTimestamp": '{"t":{"0":9}}', "endingOffsetsByTimestamp": '{"t":{"0":8}}'}
    assert "expected no more than endingOffsetsByTimestamp, 8" in refusal(SUBSCRIBED | times)
    latest = {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":-1}}'}
    assert ReadOptions.parse(SUBSCRIBED | latest, streaming=False).ending == AtOffsets({T0: -1})


def test_start_and_end_must_name_the_same_partitions() -> None:
    ends = {"startingOffsets": '{"t":{"0":1,"1":1}}', "endingOffsets": '{"t":{"0":8},"u":{"2":5}}'}
    assert refusal(SUBSCRIBED | ends) == (
        "startingOffsets and endingOffsets: expected the same partitions in both, but not so t-1, u-2"
    )


def test_a_minimum_above_the_maximum_is_refused() -> None:
    limits = {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}
    for streaming in (True, False):
        said = refusal(SUBSCRIBED | limits, streaming)
        assert said == "minOffsetsPerTrigger=11: expected no more than maxOffsetsPerTrigger, 10"
    same = limits | {"minOffsetsPerTrigger": "10"}
    assert ReadOptions.parse(SUBSCRIBED | same, streaming=True).min_offsets_per_trigger == 10


def test_what_means_nothing_to_a_query_is_only_noted() -> None:
    batch = ReadOptions.parse(
        SUBSCRIBED | {"maxOffsetsPerTrigger": "x", "maxtriggerdelay": "x", "commitGroup": "g"},
        streaming=False,
    )
    assert batch.ignored == ("maxOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")
    assert batch.max_offsets_per_trigger is None and not batch.commits
    stream = ReadOptions.parse(SUBSCRIBED | {"endingTimestamp": "5", "pushFilters": "true"}, streaming=True)
    assert stream.ignored == ("endingTimestamp", "pushFilters") and not stream.push_filters


def test_unknown_options_are_let_be() -> None:
    plain = ReadOptions.parse(SUBSCRIBED, streaming=True)
    assert ReadOptions.parse(SUBSCRIBED | {"path": "x", "checkpointLocation": "y"}, streaming=True) == plain


@given(st.randoms(), st.booleans())
def test_the_case_of_names_does_not_matter(random: Any, streaming: bool) -> None:
    raw = SUBSCRIBED | {
        "failOnDataLoss": "false",
        "kafka.SSL.keystore.location": "/Some/Path",
        "minPartitions": "3",
    }
    mixed = {
        "".join(random.choice([letter.upper(), letter.lower()]) for letter in name): text
        for name, text in raw.items()
    }
    parsed = ReadOptions.parse(mixed, streaming=streaming)
    assert parsed == ReadOptions.parse(raw, streaming=streaming)
    assert parsed.properties == {"bootstrap.servers": "localhost:9092", "ssl.keystore.location": "/Some/Path"}


@pytest.mark.parametrize(
    ("raw", "commits", "group"),
    [
        ({}, True, None),
        ({"kafka.group.id": "k"}, True, "k"),
        ({"kafka.group.id": "k", "commitGroup": "c"}, True, "c"),
        ({"kafka.group.id": "k", "commitGroup": "true"}, True, "k"),
        ({"kafka.group.id": "k", "commitGroup": "FALSE"}, False, None),
        ({"commitGroup": ""}, False, None),
    ],
)
def test_progress_goes_to_the_group_that_was_named(
    raw: dict[str, str], commits: bool, group: str | None
) -> None:
    parsed = ReadOptions.parse(SUBSCRIBED | raw, streaming=True)
    assert (parsed.commits, parsed.commit_group) == (commits, group)


def test_the_made_up_group_begins_as_in_the_connector() -> None:
    assert ReadOptions.parse(SUBSCRIBED, streaming=True).group_id_prefix == "spark-kafka-source"


@pytest.mark.parametrize(
    ("raw", "lacking"),
    [
        ({"kafka.acks": "1"}, "kafka.acks=all"),
        ({"kafka.retries": "0"}, "kafka.retries above 0"),
        (
            {"kafka.max.in.flight.requests.per.connection": "6"},
            "kafka.max.in.flight.requests.per.connection of at most 5",
        ),
    ],
)
def test_idempotence_gives_way_unless_it_was_asked_for(raw: dict[str, str], lacking: str) -> None:
    assert not WriteOptions.parse(BROKERS | raw, streaming=False).enable_idempotence
    with pytest.raises(OptionError) as refused:
        WriteOptions.parse(BROKERS | raw | {"kafka.enable.idempotence": "true"}, streaming=False)
    assert str(refused.value) == f"kafka.enable.idempotence=true: expected {lacking} with it"


def test_a_delivery_that_nobody_bounded_has_time_for_one_request() -> None:
    parsed = WriteOptions.parse(BROKERS | {"kafka.request.timeout.ms": "200000"}, streaming=False)
    assert parsed.delivery_timeout_ms == 200_005


@pytest.mark.parametrize("rows", [READ_ROWS, WRITE_ROWS])
def test_the_table_has_a_line_for_each_row(rows: Any) -> None:
    lines = option_table(rows).splitlines()
    assert lines[:2] == ["| option | default | for | meaning |", "|---|---|---|---|"]
    assert [line.split("`")[1] for line in lines[2:]] == [row.name for row in rows]
    assert all(line.count("|") == 5 for line in lines)


def test_the_table_says_default_and_use() -> None:
    lines = option_table(READ_ROWS).splitlines()
    assert any(line.startswith("| `failOnDataLoss` | `true` | batch, streaming | Whether") for line in lines)
    assert any(line.startswith("| `maxOffsetsPerTrigger` |  | streaming | The approximate") for line in lines)
    assert any(line.startswith("| `endingOffsets` | `latest` | batch | `latest`, or") for line in lines)


@pytest.mark.parametrize("options", [READ_ROWS, WRITE_ROWS])
def test_the_page_about_spark_shows_the_rows(options: Sequence[Option[Any]]) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    assert option_table(options) in page.read_text()
