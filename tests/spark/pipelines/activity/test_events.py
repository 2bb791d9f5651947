"""Events of the four topics in one shape."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import frame_of
from tidelog.spark.pipelines.activity.events import FIELDS, fields, judged_events
from tidelog.spark.pipelines.records import Tolerance, sound


def test_an_event_has_the_fields_that_its_record_had(spark: SparkSession) -> None:
    rows = oracle.some_rows(4)
    events = fields(sound(judged_events(frame_of(spark, rows), Tolerance())))
    found = {(row.topic, row.partition, row.offset): row for row in events.collect()}
    by_hand, broken = oracle.read(rows)
    assert len(found) == len(by_hand) == len(rows) - len(broken)
    for event in by_hand:
        row = found[event.row.position].asDict(recursive=True)
        assert (row["kind"], row["user"]) == (event.kind, event.user)
        assert {name: row[name] for name in FIELDS} == {name: event.value.get(name) for name in FIELDS}
        assert row["time"].timestamp() * 1000 == event.time
        assert row["timestamp"].timestamp() * 1000 == event.row.timestamp_ms
