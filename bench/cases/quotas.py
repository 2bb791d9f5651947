"""A producer at ten times its quota, and what another client sees of it."""

from __future__ import annotations

from kio.schema.alter_client_quotas.v1 import request as alter_request
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.static.primitive import f64

from bench.arena import Sample, Topic, fresh_topic
from bench.cases.latency import percentile
from bench.load.admin import Admin, Refused
from bench.load.batches import build_batch
from bench.load.frames import produce_frame, produce_layout
from bench.load.quotas import over
from bench.load.synchronous import Caller
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

QUOTA = 1_000_000  # bytes a second
TIMES = 10
RECORD_SIZE = 100_000
CLIENT_ID = "over-quota"
FIRST_S = 1.0  # the burst of ten seconds that a quota allows at first
ALONE_S = 10.0  # before and after
BLOCK = 200
ROWS: tuple[tuple[str, Target | None], ...] = (
    ("let through, in quotas", Target(ratio_min=0.9, ratio_max=1.1, tidelog_max=1.35)),
    ("another's p50, in that of being alone", None),
    ("another's p99, in that of being alone", Target(tidelog_max=1.2)),
)
METHOD = (
    f"quotas: one connection offers {TIMES} × its producer_byte_rate of {QUOTA:,} B/s in requests of"
    f" {RECORD_SIZE:,} B for 34 s; what it gets through is counted from the second second on. Another client"
    " sends one record of 100 B at a time: alone for ten seconds before and ten after, and beside the first"
    " from its second second on",
)


def run(run: Run) -> list[Row]:
    found: dict[str, tuple[float, float, float]] = {}
    for broker in run.arena.alternate(1):
        with fresh_topic(broker, 1) as topic:
            found[broker.name] = _measure(topic, broker, run.scale.quota_seconds)
    return [_row(found, place, name, target) for place, (name, target) in enumerate(ROWS)]


def _row(found: dict[str, tuple[float, float, float]], place: int, name: str, target: Target | None) -> Row:
    samples = {broker: Sample(values[place]) for broker, values in found.items()}
    case = f"producer at {TIMES} × its quota, {name}"
    return Row(case, "×", samples.get("Tidelog"), samples.get("Kafka"), target)


def _measure(topic: Topic, broker: RunningBroker, seconds: float) -> tuple[float, float, float]:
    _set_quota(broker)
    layout = produce_layout(topic.name)
    large, small = build_batch(1, RECORD_SIZE), build_batch(1, 100)
    caller = Caller(topic.address, produce_frame(topic.name, 0, small), layout)
    _latencies(caller, 3.0)
    alone = _latencies(caller, ALONE_S)
    frame = produce_frame(topic.name, 0, large, client_id=CLIENT_ID)
    interval_s = len(frame) / (TIMES * QUOTA)
    process, told = over(topic.address, frame, layout, interval_s, seconds + FIRST_S)
    _latencies(caller, FIRST_S)
    beside = _latencies(caller, seconds - 1)
    came = told.recv()
    process.join()
    alone += _latencies(caller, ALONE_S)
    caller.close()
    sent = sum(len(frame) for at_s in came if at_s >= FIRST_S)
    median, tail = (percentile(beside, share) / percentile(alone, share) for share in (0.5, 0.99))
    return sent / seconds / QUOTA, median, tail


def _latencies(caller: Caller, seconds: float) -> list[int]:
    taken: list[int] = []
    left_ns = seconds * 1e9
    while left_ns > 0:
        block = caller.latencies(BLOCK)
        taken += block
        left_ns -= sum(block)
    return taken


def _set_quota(broker: RunningBroker) -> None:
    entry = alter_request.EntryData(
        entity=(alter_request.EntityData(entity_type="client-id", entity_name=CLIENT_ID),),
        ops=(alter_request.OpData(key="producer_byte_rate", value=f64(float(QUOTA)), remove=False),),
    )
    request = alter_request.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    with Admin(broker.host, broker.port) as admin:
        for altered in admin.call(request, AlterClientQuotasResponse).entries:
            if altered.error_code:
                raise Refused(f"setting a quota: {altered.error_message}")
