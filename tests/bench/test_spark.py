"""The Spark case without Spark: what is warm, what is counted, what is noticed; the queries are faked."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.arena import Sample, Topic
from bench.cases import spark as case
from bench.cases import spark_latency
from bench.load.admin import Admin
from bench.load.pipeline import BadAnswer, Span
from bench.load.spark_process import spark_process
from bench.load.spark_queries import offsets_text
from bench.peers.process import PeerFailed, PeerMissing
from bench.report import Target
from bench.run import Scale
from confluent_kafka import Producer

from bench import __main__ as program
from tidelog.spark import java
from tidelog.testing import Broker

SCALE = Scale(rounds=2, spark_rows=10_000)
SHAPE = case.Shape(100, 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with Broker() as running:
        yield SimpleNamespace(
            name="Tidelog",
            host="127.0.0.1",
            port=running.port,
            cpu_seconds=lambda: 0.0,
            site=SimpleNamespace(log_directory=Path("nowhere"), directory=Path("nowhere")),
        )


@dataclass
class FakeSpark:
    """Answers each question with the next answer."""

    answers: Sequence[dict[str, Any]]
    asked: list[dict[str, Any]]

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        self.asked.append({"do": do} | question)
        return self.answers[(len(self.asked) - 1) % len(self.answers)]

    def cpu_seconds(self) -> float:
        return 0.0


def contest(broker: Any, *answers: dict[str, Any]) -> case.Contest:
    spark: Any = FakeSpark(answers, [])
    return case.Contest(SCALE, broker, spark)


def asked(contest: case.Contest) -> list[dict[str, Any]]:
    spark: Any = contest._spark
    return [*spark.asked]


FEW = [100.0] * (case.WARM_UP_RUNS_MIN - 2)


def test_a_connector_is_warm_when_it_has_run_often_and_is_not_faster_any_more() -> None:
    assert not case.is_warm([*FEW, 90.0])
    assert not case.is_warm([*FEW, 120.0, 140.0])
    assert case.is_warm([*FEW, 120.0, 121.0])
    assert case.is_warm([*FEW, 120.0, 90.0])


def test_only_who_gets_faster_is_warmed_up_further() -> None:
    rates = {"tidelog": iter([*FEW, 200.0, 200.0]), "kafka": iter([*FEW, 200.0, 300.0, 400.0, 400.0])}
    case.warm_up(lambda connector, rows: Span(1, 1 / next(rates[connector]), 0.0), 10)
    assert [*rates["tidelog"], *rates["kafka"]] == []


def test_who_never_stops_getting_faster_is_warm_in_the_end() -> None:
    runs: list[str] = []

    def query(connector: str, rows: int) -> Span:
        runs.append(connector)
        return Span(len(runs) ** 2, 1.0, 0.0)

    case.warm_up(query, 10)
    assert runs == ["tidelog", "kafka"] * case.WARM_UP_RUNS_MAX


def test_the_first_micro_batch_is_not_counted_but_its_rows_are_checked() -> None:
    assert case.steady_span([(50, 9.0), (50, 1.0), (50, 3.0)], 150) == Span(100, 4.0, 0.0)
    with pytest.raises(BadAnswer):
        case.steady_span([(50, 9.0), (50, 1.0)], 150)
    with pytest.raises(BadAnswer):
        case.steady_span([(150, 9.0)], 150)


def test_a_case_has_a_row_of_rows_with_the_target_and_one_of_bytes() -> None:
    samples = {"Tidelog": Sample(4e6), "Kafka": Sample(1e6)}
    rows, megabytes = case.rows_of("read", SHAPE, samples, Target(ratio_min=4))
    assert rows.verdict == "reached" and rows.cells()[1:3] == ("4.00 M rows/s", "1.00 M rows/s")
    assert megabytes.verdict == "" and megabytes.cells()[1:3] == ("400 MB/s", "100 MB/s")


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_topic_is_filled_evenly_in_each_codec(broker: Any, codec: str) -> None:
    topic = contest(broker).fill(case.Shape(100, 1, codec))
    assert topic.end_offset() >= SCALE.spark_rows
    messages = spark_latency.read_all(
        f"127.0.0.1:{broker.port}", topic.name, topic.end_offset() // case.PARTITION_COUNT
    )
    assert {len(message.value() or b"") for message in messages} == {100}


def test_rows_that_a_connector_does_not_read_are_noticed(broker: Any) -> None:
    topic = Topic("uncounted", case.PARTITION_COUNT, broker)
    with Admin(*topic.address) as admin:
        admin.create_topic(topic.name, case.PARTITION_COUNT)
    nothing = {"rows": 0, "offsets": 0, "bytes": 0}
    contest(broker, nothing)._check_counts(SHAPE, topic)
    with pytest.raises(BadAnswer, match="kafka read"):
        contest(broker, nothing, nothing | {"rows": 1})._check_counts(SHAPE, topic)


def test_rows_that_are_not_in_the_log_after_a_write_are_noticed(broker: Any) -> None:
    with pytest.raises(BadAnswer, match="tidelog wrote 10 rows, and the topic has 0"):
        contest(broker, {"rows": 10}, {"seconds": 1.0})._write(100, "at-least-once", "tidelog", 10)


def test_the_connectors_take_turns_with_the_same_options(broker: Any) -> None:
    topic = Topic("turns", case.PARTITION_COUNT, broker)
    reading = contest(broker, {"seconds": 2.0})
    samples = reading._compare(lambda connector, rows: reading._read(topic, connector, rows), 10_000)
    assert {name: sample.value for name, sample in samples.items()} == {"Tidelog": 5_000, "Kafka": 5_000}
    questions = asked(reading)
    connectors = [question.pop("format") for question in questions]
    assert connectors[-4:] == ["tidelog", "kafka", "kafka", "tidelog"]
    assert all(question == questions[-1] for question in questions[-4:])
    assert questions[-1]["options"] == {"endingOffsets": offsets_text("turns", [2_500] * 4)}


def test_a_stream_reads_the_last_micro_batches_of_the_topic(broker: Any) -> None:
    streaming = contest(broker)
    topic = streaming.fill(case.Shape(1_000, 1))
    size = topic.end_offset() // case.PARTITION_COUNT // case.MICRO_BATCHES_OF_A_TOPIC * case.PARTITION_COUNT
    spark: Any = streaming._spark
    spark.answers = [{"batches": [(size, 1.0)] * case.MICRO_BATCHES}]
    assert streaming._stream(topic, "kafka", SCALE.spark_rows).frame_count == size * 2
    assert asked(streaming)[0]["options"]["maxOffsetsPerTrigger"] == size
    spark.answers = [{"batches": [(size, 1.0)] * 2}]
    assert streaming._stream(topic, "kafka", SCALE.spark_rows // 4).frame_count == size


def test_the_latency_of_an_event_is_that_of_its_copy(broker: Any) -> None:
    bootstrap = f"127.0.0.1:{broker.port}"
    with Admin("127.0.0.1", broker.port) as admin:
        admin.create_topic("events", 1, {"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(3):
        spark_latency.send_event(producer, "events")
        producer.flush()
    latencies = spark_latency.latencies_of(spark_latency.read_all(bootstrap, "events", 3))
    assert len(latencies) == 3 and all(latency >= 0 for latency in latencies)


def test_latencies_are_in_the_order_of_events_and_a_copy_that_comes_twice_is_noticed() -> None:
    def message(sent_ms: int, appended_ms: int) -> Any:
        value = str(sent_ms * 1_000_000).ljust(100).encode()
        return SimpleNamespace(value=lambda: value, timestamp=lambda: (2, appended_ms))

    assert spark_latency.latencies_of([message(200, 230), message(100, 230)]) == [130, 30]
    with pytest.raises(BadAnswer):
        spark_latency.latencies_of([message(100, 230), message(100, 231)])


def test_a_spark_that_does_not_come_up_is_told_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="No module named"), spark_process(tmp_path, "bench.load.nothing"):
        pass


def test_without_pyspark_or_java_the_case_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_found() -> Path:
        raise java.JavaMissing("Spark needs Java")

    monkeypatch.setattr(java, "find_java", none_found)
    with pytest.raises(PeerMissing, match="Spark needs Java"):
        case.require()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PeerMissing, match="PySpark is not installed"):
        case.require()


def test_the_benchmark_says_at_once_that_spark_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise PeerMissing("PySpark is not installed")

    monkeypatch.setattr(case, "require", missing)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "spark"])
    assert program.main() == 1
    assert "no benchmark: PySpark is not installed" in capsys.readouterr().out
