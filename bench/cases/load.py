"""What a well-behaved client notices of others: many, busy, slow, half gone, in storms, byte by byte."""

from __future__ import annotations

from contextlib import ExitStack

from kio.schema.fetch.v12.response import FetchResponse

from bench.arena import Sample, Topic
from bench.cases.latency import percentile
from bench.load.admin import Admin, read_response
from bench.load.batches import build_batch
from bench.load.crowd import BUSY_REQUESTS_PER_SECOND, crowd
from bench.load.frames import fetch_frame, fetch_layout, produce_frame, produce_layout
from bench.load.pipeline import BadAnswer
from bench.load.produce import fill
from bench.load.synchronous import Caller
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

OWN_TOPIC = "bench-load-own"
OTHER_TOPIC = "bench-load-other"
BATCH = build_batch(1, 100)
WARM_UP_REQUESTS = 300
OTHERS_CHUNK = 16
OTHERS_CHUNKS = 4
TARGET = Target(tidelog_max=2)
CROWDS: tuple[tuple[str, dict[str, int]], ...] = (
    ("2,000 idle and 500 busy connections", {"idle": 2_000, "busy": 500}),
    ("50 slow readers", {"slow": 50}),
    ("500 half-open peers", {"half-open": 500}),
    ("a storm of 1,000 connections a second", {"storm": 1_000}),
    ("a client that sends a byte a second", {"dripping": 1}),
)
METHOD = (
    "load: one client sends a record of 100 B (acks=all), waits, fetches one, waits, and so on; blocks of it"
    " alone and among others take turns, the first 300 of each not counted; p99 of all; the others are a"
    f" process of their own, paced: a busy connection sends {BUSY_REQUESTS_PER_SECOND} records a second, a"
    " slow reader asks for 8 × 4 MB and reads nothing, a half-open peer has sent half a request, a connection"
    " of the storm is reset after 50 ms",
)


def run(run: Run) -> list[Row]:
    rows = []
    for name, kinds in CROWDS:
        alone: dict[str, list[int]] = {broker.name: [] for broker in run.arena.brokers}
        among: dict[str, list[int]] = {broker.name: [] for broker in run.arena.brokers}
        for broker in run.arena.alternate():
            with Client(broker) as client:
                for taken, others in ((alone, {}), (among, kinds), (alone, {})):
                    taken[broker.name] += client.latencies(run.scale.load_requests, others)
        rows += _rows(name, alone, among)
    return rows


def _rows(name: str, alone: dict[str, list[int]], among: dict[str, list[int]]) -> list[Row]:
    p99 = [{broker: percentile(v, 0.99) / 1_000 for broker, v in each.items()} for each in (alone, among)]
    ratio = {broker: Sample(p99[1][broker] / p99[0][broker]) for broker in alone}
    before, after = ({broker: Sample(value) for broker, value in each.items()} for each in p99)
    return [
        Row(f"p99 alone, by turns with {name}", "µs", before.get("Tidelog"), before.get("Kafka")),
        Row(f"p99 among {name}", "µs", after.get("Tidelog"), after.get("Kafka")),
        Row(f"p99 among {name} ÷ alone", "×", ratio.get("Tidelog"), ratio.get("Kafka"), TARGET),
    ]


class Client:
    """The one that is measured; the topic of the others is made with it."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        own = Topic(OWN_TOPIC, 1, broker)
        with Admin(*own.address) as admin:
            if admin.led_partition_count(OWN_TOPIC) == 0:
                admin.create_topic(OWN_TOPIC, 1)
                admin.create_topic(OTHER_TOPIC, 1)
                self._fill_others()
            admin.exchange(produce_frame(OWN_TOPIC, 0, BATCH))
            fetch = fetch_frame(OWN_TOPIC, [0], 1)
            answer = admin.exchange(fetch)
        records = read_response(answer, FetchResponse).responses[0].partitions[0].records
        if len(records or b"") != BATCH.size:
            raise BadAnswer(f"{broker.name} gave back something else than was written")
        self._producer = Caller(own.address, produce_frame(OWN_TOPIC, 0, BATCH), produce_layout(OWN_TOPIC))
        self._fetcher = Caller(own.address, fetch, fetch_layout(len(answer)))

    def _fill_others(self) -> None:
        """Something for slow readers to ask for."""
        chunk = produce_frame(OTHER_TOPIC, 0, build_batch(5_000, 180)) * OTHERS_CHUNK
        fill(Topic(OTHER_TOPIC, 1, self._broker), chunk, OTHERS_CHUNK, OTHERS_CHUNKS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._fetcher.close()

    def latencies(self, count: int, others: dict[str, int]) -> list[int]:
        address = (self._broker.host, self._broker.port)
        with ExitStack() as present:
            for kind, number in others.items():
                present.enter_context(crowd(kind, address, number, OTHER_TOPIC))
            self._alternate(WARM_UP_REQUESTS)
            return self._alternate(count)

    def _alternate(self, count: int) -> list[int]:
        taken = []
        for _ in range(count // 2):
            taken += self._producer.latencies(1)
            taken += self._fetcher.latencies(1)
        return taken
