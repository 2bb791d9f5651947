"""What `/metrics` says of a broker's state: names, values, and how much of it is made at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kio.index import load_request_schema
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.server.wire_client import fetch_values, produce_values
from tests.wire.harness import API_VERSIONS, DELETE_TOPICS, FETCH, PRODUCE, Harness, batch_of, seconds
from tidelog.base.limits import API_KEY_MAX, API_VERSION_BITS
from tidelog.base.metrics import RECENT_TURNS
from tidelog.broker.broker import Broker
from tidelog.protocol.apis import APIS
from tidelog.server.disk_space import DiskSpace, Space
from tidelog.server.watch import scrape as scrape_module
from tidelog.server.watch.scrape import PER_PARTITION, TRAFFIC, Watched, expose, request_name
from tidelog.server.watch.vitals import Vitals

TOPIC_METRICS = "kafka_server_brokertopicmetrics_"


def spacious(spaces: dict[str, Space]) -> DiskSpace:
    space = DiskSpace([], print, print)
    space.note(spaces)
    return space


class ThreeClients:
    counts: Mapping[str, int] = {"PLAINTEXT": 3}
    buffered_size = 40
    unsent_size = 50


def watching(broker: Broker) -> Watched:
    """A broker without a shell around it."""
    return Watched(broker, Vitals(), ThreeClients(), spacious({"/data": Space(20, 100)}))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    for partition in harness.broker.partitions.all():
        partition.log.close(clean=False)


def scrape(watched: Watched) -> dict[str, Metric]:
    text = "".join(expose(watched, 17))
    metrics = list(text_string_to_metric_families(text))
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len({*names}), "the samples of a family stand together"
    assert all(metric.type != "unknown" and metric.documentation for metric in metrics)
    return {metric.name: metric for metric in metrics}


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    for metric in metrics.values():
        for sample in metric.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no {name} of {labels}")


def values_of_topics(watched: Watched, topic: str | None) -> list[float]:
    labels = {} if topic is None else {"topic": topic}
    metrics = scrape(watched)
    names = ["messagesin", "bytesin", "bytesout", "totalproducerequests", "failedproducerequests"]
    names += ["totalfetchrequests", "failedfetchrequests"]
    return [value(metrics, f"{TOPIC_METRICS}{name}_total", **labels) for name in names]


def produce(harness: Harness, topic: str, batch: bytearray) -> None:
    harness.send(PRODUCE, 9, **produce_values(topic, batch))
    harness.answers()


def fetch(harness: Harness, topic: str, offset: int) -> None:
    harness.send(FETCH, 12, **fetch_values(topic, offset))
    harness.answers()


def test_requests_have_the_names_that_kafka_gives_them() -> None:
    for api in APIS:
        schema = load_request_schema(api.key, api.newest_version)
        assert f"{request_name(api.key)}Request" == schema.__name__
        assert api.key <= API_KEY_MAX and api.newest_version < 1 << API_VERSION_BITS


def test_a_topic_tells_what_went_in_and_out(harness: Harness) -> None:
    watched = watching(harness.broker)
    harness.create_topic("tides", 2)
    batch = batch_of(5)
    produce(harness, "tides", batch)
    produce(harness, "tides", batch)
    produce(harness, "tides", batch[:-1])
    fetch(harness, "tides", 0)
    fetch(harness, "tides", 99)
    size = len(batch)
    assert values_of_topics(watched, "tides") == [10, 2 * size, 2 * size, 3, 1, 2, 1]
    assert values_of_topics(watched, None) == [10, 2 * size, 2 * size, 3, 1, 2, 1]


def test_the_total_of_all_topics_outlives_a_topic(harness: Harness) -> None:
    watched = watching(harness.broker)
    for topic in ("tides", "winds"):
        harness.create_topic(topic)
        produce(harness, topic, batch_of(5))
    before = values_of_topics(watched, None)
    harness.ask(DELETE_TOPICS, 5, topic_names=("tides",), timeout=seconds(1))
    assert values_of_topics(watched, None) == before
    assert values_of_topics(watched, "winds")[0] == 5
    with pytest.raises(AssertionError, match="tides"):
        values_of_topics(watched, "tides")


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_topic_that_is_deleted_while_the_page_is_made_is_in_the_totals_once(
    harness: Harness, is_waited_for: bool
) -> None:
    watched = watching(harness.broker)
    for topic in ("tides", "winds"):
        harness.create_topic(topic)
        produce(harness, topic, batch_of(5))
    if is_waited_for:
        harness.send(FETCH, 12, **fetch_values("tides", 5))  # and counts a read when the topic is gone
    page = ""
    has_deleted = False
    for piece in expose(watched, None):
        page += piece
        if not has_deleted and "# TYPE kafka_server_brokertopicmetrics_" in piece:
            harness.send(DELETE_TOPICS, 5, topic_names=("tides",), timeout=seconds(1))
            harness.answers()
            has_deleted = True
    meanwhile = {metric.name: metric for metric in text_string_to_metric_families(page)}
    afterwards = scrape(watched)
    for name in [family.name for family, _ in TRAFFIC]:
        assert value(meanwhile, name) == value(afterwards, name), name
    assert value(meanwhile, f"{TOPIC_METRICS}messagesin_total") == 10


def test_a_duplicate_batch_is_not_counted_twice(harness: Harness) -> None:
    harness.create_topic("tides")
    batch = batch_of(2, producer_id=7, producer_epoch=0, base_sequence=0)
    produce(harness, "tides", bytearray(batch))
    produce(harness, "tides", bytearray(batch))
    assert values_of_topics(watching(harness.broker), "tides")[0] == 2


def test_a_fetch_that_waits_counts_its_bytes_once_and_is_seen_waiting(harness: Harness) -> None:
    watched = watching(harness.broker)
    harness.create_topic("tides")
    batch = batch_of()
    harness.send(FETCH, 12, **fetch_values("tides", 0, max_wait_ms=1_000, min_bytes=len(batch) + 1))
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert value(scrape(watched), purgatory, delayedOperation="Fetch") == 1
    assert value(scrape(watched), "tidelog_requests_parked", request="Fetch") == 1
    produce(harness, "tides", bytearray(batch))
    assert values_of_topics(watched, "tides")[2] == 0, "too little was found to be sent"
    harness.advance(1_000)
    assert values_of_topics(watched, "tides")[2] == len(batch)
    assert value(scrape(watched), purgatory, delayedOperation="Fetch") == 0


def test_a_partition_tells_of_its_log(harness: Harness) -> None:
    harness.create_topic("tides", 2)
    batch = batch_of(5)
    produce(harness, "tides", batch)
    metrics = scrape(watching(harness.broker))
    place = {"topic": "tides", "partition": "0"}
    told = [value(metrics, f"kafka_log_log_{name}", **place) for name in ("size", "logstartoffset")]
    assert told == [len(batch), 0]
    assert value(metrics, "kafka_log_log_logendoffset", **place) == 5
    assert value(metrics, "kafka_log_log_numlogsegments", **place) == 1
    assert value(metrics, "kafka_log_log_logendoffset", topic="tides", partition="1") == 0
    assert value(metrics, "kafka_cluster_partition_atminisr", **place) == 1
    assert value(metrics, "kafka_cluster_partition_underminisr", **place) == 0


def test_replicas_that_are_missing_are_counted(harness: Harness) -> None:
    harness.create_topic("few", min_insync_replicas="2")
    harness.create_topic("tides", 2)
    harness.broker.image.topics["tides"].partitions[0].replicas.append(9)
    metrics = scrape(watching(harness.broker))
    under = "kafka_server_replicamanager_underminisrpartitioncount"
    assert value(metrics, under) == 0  # no more are needed than it has replicas
    harness.broker.image.topics["few"].partitions[0].replicas.append(9)
    harness.partition("few").note_rules()
    metrics = scrape(watching(harness.broker))
    replicas = "kafka_server_replicamanager_"
    names = ["partitioncount", "leadercount", "underreplicatedpartitions", "underminisrpartitioncount"]
    assert [value(metrics, replicas + name) for name in names] == [3, 3, 2, 1]
    assert value(metrics, f"{replicas}atminisrpartitioncount") == 2


def test_a_directory_that_failed_shows(harness: Harness) -> None:
    harness.create_topic("tides", 2)
    (directory,) = harness.broker.disks.directories
    watched = watching(harness.broker)
    assert value(scrape(watched), "kafka_server_kafkaserver_brokerstate") == 3
    harness.broker.disks.fail(directory, OSError(5, "Input/output error"))
    metrics = scrape(watched)
    assert value(metrics, "kafka_server_kafkaserver_brokerstate") == 6
    assert value(metrics, "kafka_controller_kafkacontroller_offlinepartitionscount") == 2
    assert value(metrics, "kafka_server_replicamanager_offlinereplicacount") == 2
    assert value(metrics, "kafka_server_replicamanager_leadercount") == 0
    assert value(metrics, "kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert value(metrics, "kafka_log_logmanager_logdirectoryoffline", logDirectory=directory.path) == 1


def test_requests_are_counted_by_version_and_a_fetch_also_by_who_fetches(harness: Harness) -> None:
    harness.create_topic("tides")
    for version in (3, 3, 4):
        harness.ask(API_VERSIONS, version, client_software_name="x", client_software_version="1")
    fetch(harness, "tides", 0)
    metrics = scrape(watching(harness.broker))
    total = "kafka_network_requestmetrics_requests_total"
    assert value(metrics, total, request="ApiVersions", version="3") == 2
    assert value(metrics, total, request="ApiVersions", version="4") == 1
    assert value(metrics, total, request="Fetch", version="12") == 1
    assert value(metrics, total, request="FetchConsumer", version="12") == 1


def test_times_are_histograms_in_seconds_and_quantiles_in_milliseconds(harness: Harness) -> None:
    watched = watching(harness.broker)
    for milliseconds in (1, 1, 1, 90):
        watched.vitals.request_times[FETCH].observe(milliseconds * 1_000_000)
        watched.vitals.fsync_times.observe(milliseconds * 1_000_000)
    metrics = scrape(watched)
    assert value(metrics, "tidelog_request_seconds_bucket", request="Fetch", le="0.001") == 3
    assert value(metrics, "tidelog_request_seconds_sum", request="Fetch") == 0.093
    assert value(metrics, "tidelog_fsync_seconds_count") == 4
    for request in ("Fetch", "FetchConsumer"):
        name = "kafka_network_requestmetrics_totaltimems"
        assert 0.5 < value(metrics, name, request=request, quantile="0.50") <= 1
        assert 50 < value(metrics, name, request=request, quantile="0.99") <= 100
        assert value(metrics, f"{name}_count", request=request) == 4
    assert value(metrics, "kafka_log_logflushstats_logflushrateandtimems", quantile="0.99") > 50


def test_the_recent_past_moves_on_with_the_minutes() -> None:
    vitals = Vitals()
    vitals.request_times[0].observe(90_000_000)
    for turn in range(7):
        vitals.turn()
        is_recent = turn < RECENT_TURNS - 1
        assert (vitals.recent_requests[0].quantile(0.5) > 0) == is_recent, turn
    assert 0 <= vitals.idle_share <= 1


def test_what_the_shell_knows_is_told(harness: Harness) -> None:
    metrics = scrape(watching(harness.broker))
    listener = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    for spelling in ("socketservermetrics", "socket_server_metrics"):
        assert value(metrics, f"kafka_server_{spelling}_connection_count", **listener) == 3
    assert value(metrics, "tidelog_received_bytes_buffered") == 40
    assert value(metrics, "tidelog_answer_bytes_unsent") == 50
    assert value(metrics, "process_open_fds") == 17
    assert value(metrics, "process_cpu_seconds_total") > 0


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    harness = Harness(tmp_path / 'a "quoted" \\ folder')
    metrics = scrape(watching(harness.broker))
    (directory,) = harness.broker.disks.directories
    assert value(metrics, "kafka_log_logmanager_logdirectoryoffline", logDirectory=directory.path) == 0


def test_a_piece_is_small_however_many_partitions_there_are(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape_module, "SERIES_PER_PIECE", 10)
    for number in range(5):
        harness.create_topic(f"t{number}", 10)
    pieces = list(expose(watching(harness.broker), None))
    of_partitions = [piece for piece in pieces if "partition=" in piece]
    assert len(of_partitions) == 5 * len(PER_PARTITION)
    assert max(piece.count("\n") for piece in of_partitions) == 10
    of_topics = [piece for piece in pieces if 'topic="t' in piece and piece not in of_partitions]
    assert len(of_topics) == 5 * len(TRAFFIC)
    assert pieces.count("") >= 5, "counting partitions is done in parts too"


def test_every_name_is_explained_to_operators(harness: Harness) -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")
    harness.create_topic("tides")
    text = "".join(expose(watching(harness.broker), 17))
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) > 40
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_room_of_each_disk_is_told(harness: Harness) -> None:
    metrics = scrape(watching(harness.broker))
    assert value(metrics, "tidelog_disk_free_bytes", logDirectory="/data") == 20
    assert value(metrics, "tidelog_disk_size_bytes", logDirectory="/data") == 100
