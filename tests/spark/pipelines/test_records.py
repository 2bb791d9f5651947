"""What becomes of records that cannot be read, or come too late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import Row, frame_of
from tidelog.spark.pipelines.activity.events import fields, judged_events
from tidelog.spark.pipelines.activity.topics import CLICKS, DEAD_LETTERS, LATE, ORDERS, PAGE_VIEWS, SEARCHES
from tidelog.spark.pipelines.metrics.measurements import judged_measurements
from tidelog.spark.pipelines.metrics.topics import MEASUREMENTS
from tidelog.spark.pipelines.records import Tolerance, as_records, day_of, punctual, rejected, sound

NOW_MS = 1_772_000_000_000
TOLERANCE = Tolerance()
VIEW = b'{"user":"a","time":1772000000000,"page":"/","item":null}'
ORDER = (
    b'{"user":"a","time":1772000000000,"order":"1","items":[{"item":"i","quantity":1,"price":5}],"total":5}'
)
MEASURED = b'{"name":"cpu","tags":{"a":"1","b":"2"},"value":1.5,"time":1772000000000}'

ACTIVITY_FAULTS = [
    (PAGE_VIEWS, VIEW, None),
    (ORDERS, ORDER, None),
    (SEARCHES, b'{"user":"a","time":1772000000000,"query":"x","unknown":{"deep":[1]}}', None),
    (PAGE_VIEWS, None, "the value is null"),
    (PAGE_VIEWS, b"", "the value is not JSON of the expected shape"),
    (PAGE_VIEWS, b"\xff" + VIEW, "the value is not UTF-8"),
    (PAGE_VIEWS, VIEW[:20], "the value is not JSON of the expected shape"),
    (PAGE_VIEWS, b"[" + VIEW + b"]", "the value is not JSON of the expected shape"),
    (PAGE_VIEWS, b'"text"', "the value is not JSON of the expected shape"),
    (PAGE_VIEWS, VIEW.replace(b"1772000000000", b'"noon"'), "the value is not JSON of the expected shape"),
    (PAGE_VIEWS, VIEW.replace(b"1772000000000", b"null"), "time is missing or out of range"),
    (PAGE_VIEWS, VIEW.replace(b"1772000000000", b"-1"), "time is missing or out of range"),
    (PAGE_VIEWS, VIEW.replace(b"1772000000000", b"9223372036854775807"), "time is missing or out of range"),
    (PAGE_VIEWS, VIEW.replace(b"1772", b"1773"), "time is after the arrival of the record"),
    (PAGE_VIEWS, VIEW.replace(b'"user":"a",', b""), "user is missing"),
    (PAGE_VIEWS, VIEW.replace(b'"page":"/",', b""), "page is missing"),
    (CLICKS, VIEW.replace(b'"page":"/",', b""), "page is missing"),
    (SEARCHES, VIEW, "query is missing"),
    (ORDERS, VIEW, "order or total is missing"),
    (ORDERS, ORDER.replace(b'{"item":"i","quantity":1,"price":5}', b""), "items are missing"),
    (ORDERS, ORDER.replace(b'"item":"i"', b'"item":null'), "items are missing"),
    (ORDERS, ORDER.replace(b'"total":5', b'"total":-5'), "total is out of range"),
    (ORDERS, ORDER.replace(b'"total":5', b'"total":9223372036854775807'), "total is out of range"),
]
MEASUREMENT_FAULTS = [
    (MEASUREMENTS, MEASURED, None),
    (MEASUREMENTS, b'{"name":"cpu","value":2,"time":1772000000000}', None),
    (MEASUREMENTS, MEASURED.replace(b'"name":"cpu",', b""), "name is missing"),
    (MEASUREMENTS, MEASURED.replace(b'"value":1.5,', b""), "value is missing"),
    (MEASUREMENTS, MEASURED.replace(b"1.5", b"NaN"), "value is not finite"),
    (MEASUREMENTS, MEASURED.replace(b"1.5", b"-Infinity"), "value is not finite"),
    (MEASUREMENTS, MEASURED.replace(b"1.5", b"1e999"), "value is not finite"),
    (MEASUREMENTS, MEASURED.replace(b'"1"', b"null"), "a tag has no value"),
    (MEASUREMENTS, MEASURED.replace(b'"b"', b'"a"'), "a tag stands twice"),
]


def rows_of(examples: Sequence[tuple[str, bytes | None, str | None]]) -> list[Row]:
    return [Row(topic, 0, offset, b"k", value, NOW_MS) for offset, (topic, value, _) in enumerate(examples)]


@pytest.mark.parametrize("whole", [True, False], ids=["all columns", "few columns"])
def test_every_faulty_event_is_told_apart_by_its_fault(spark: SparkSession, whole: bool) -> None:
    """Whatever else is asked for: Spark reads less of the JSON when less is asked."""
    judged = judged_events(frame_of(spark, rows_of(ACTIVITY_FAULTS)), TOLERANCE)
    found = judged.orderBy("offset").select(*(judged.columns if whole else ["fault"])).collect()
    assert [row["fault"] for row in found] == [fault for _, _, fault in ACTIVITY_FAULTS]


@pytest.mark.parametrize("whole", [True, False], ids=["all columns", "few columns"])
def test_every_faulty_measurement_is_told_apart_by_its_fault(spark: SparkSession, whole: bool) -> None:
    judged = judged_measurements(frame_of(spark, rows_of(MEASUREMENT_FAULTS)), TOLERANCE)
    found = judged.orderBy("offset").select(*(judged.columns if whole else ["fault"])).collect()
    assert [row["fault"] for row in found] == [fault for _, _, fault in MEASUREMENT_FAULTS]


def test_a_record_is_counted_or_in_a_topic_and_never_both(spark: SparkSession) -> None:
    rows = oracle.some_rows(3)
    events, broken = oracle.read(rows)
    judged = judged_events(frame_of(spark, rows), TOLERANCE)
    on_time = {
        tuple(row) for row in punctual(judged, TOLERANCE).select("topic", "partition", "offset").collect()
    }
    assert on_time == {event.row.position for event in events if not event.late}
    all_read = {tuple(row) for row in fields(sound(judged)).select("topic", "partition", "offset").collect()}
    assert all_read == {event.row.position for event in events}

    refused = rejected(judged, DEAD_LETTERS, LATE, "count").collect()
    late = [event.row.position for event in events if event.late]
    assert len(late) > 5 and len(broken) > 0
    assert sorted(origin_of(row.headers) for row in refused if row.topic == LATE) == sorted(late)
    dead = [row for row in refused if row.topic == DEAD_LETTERS]
    assert sorted(origin_of(row.headers) for row in dead) == sorted(row.position for row in broken)
    assert {bytes(row.value) for row in dead} == {row.value for row in broken}


def origin_of(headers: list[tuple[str, bytes]]) -> tuple[str, int, int]:
    told = {name: bytes(value).decode() for name, value in headers}
    assert told["tidelog.reason"]
    return told["tidelog.topic"], int(told["tidelog.partition"]), int(told["tidelog.offset"])


def test_lateness_begins_after_the_tolerance(spark: SparkSession) -> None:
    ten_minutes = 600_000
    rows = [
        Row(PAGE_VIEWS, 0, 0, b"a", VIEW, NOW_MS + ten_minutes),
        Row(PAGE_VIEWS, 0, 1, b"a", VIEW, NOW_MS + ten_minutes + 1),
        Row(PAGE_VIEWS, 0, 2, b"a", VIEW, NOW_MS - ten_minutes // 2),
        Row(PAGE_VIEWS, 0, 3, b"a", VIEW, NOW_MS - ten_minutes // 2 - 1),
    ]
    found = judged_events(frame_of(spark, rows), TOLERANCE).orderBy("offset").collect()
    assert [row.late for row in found] == [False, True, False, False]
    assert [row.fault is not None for row in found] == [False, False, False, True]


def test_the_watermark_covers_early_and_late_together() -> None:
    tolerance = Tolerance(late=timedelta(seconds=90), early=timedelta(seconds=30))
    assert tolerance.watermark == "120000 milliseconds"


def test_records_for_a_topic_have_times_in_milliseconds(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 5, None)], "user STRING, seconds INT, item STRING")
    told = as_records(frame.withColumn("at", F.timestamp_seconds("seconds")), "at", "user", "at", "item")
    (row,) = told.collect()
    assert (row.key, json.loads(row.value)) == ("5000", {"user": "a", "at": 5000, "item": None})


def test_a_day_is_a_day_in_utc_whatever_the_session_thinks(spark: SparkSession) -> None:
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    frame = elsewhere.createDataFrame([(0,), (86_399,), (86_400,)], "seconds BIGINT")
    days = frame.select(day_of(F.timestamp_seconds("seconds")).cast("string")).collect()
    assert [row[0] for row in days] == ["1970-01-01", "1970-01-01", "1970-01-02"]
