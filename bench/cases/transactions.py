"""Transactions: how much is committed when they take 1, 10 or 100 ms, and when each has one record."""

from __future__ import annotations

from functools import partial

from bench.arena import Sample, fresh_topic
from bench.load.batches import build_batch
from bench.load.transactions import Load, transact
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

BATCH_RECORDS, VALUE_SIZE = 75, 200  # 16 kB: what a Java producer sends
SINGLE_VALUE_SIZE = 100
TIMES_MS = (1, 10, 100)
SHORT_MS_MAX = 10
ID_COUNTS = (1, 8)
METHOD = (
    "transactions: each transactional id has a connection and a partition of its own and sends batches of"
    f" {BATCH_RECORDS} × {VALUE_SIZE} B, five in flight, until its time is over; then EndTxn, and"
    " the next transaction after its answer (Produce 12, EndTxn 5: `transaction.version=2`). Counted are"
    " records whose commit was told; the log end is checked against them and a marker for each transaction."
    " The target of 100 ms is the ratio of the same load without transactions",
)


def run(run: Run) -> list[Row]:
    rows = []
    batch = build_batch(BATCH_RECORDS, VALUE_SIZE)
    for id_count in ID_COUNTS:
        ids = "1 id" if id_count == 1 else f"{id_count} ids"
        row = partial(_row, run, id_count)
        plain = row(f"no transactions, {ids.replace('id', 'producer')}", Load(batch, None), None)
        rows.append(plain)
        for time_ms in TIMES_MS:
            floor = 1.3 if time_ms <= SHORT_MS_MAX else plain.ratio
            target = None if floor is None else Target(ratio_min=round(floor, 2))
            rows.append(row(f"transactions of {time_ms} ms, {ids}", Load(batch, time_ms), target))
        single = Load(build_batch(1, SINGLE_VALUE_SIZE), 0, is_single=True)
        rows.append(row(f"transactions of one record, {ids}", single, Target(ratio_min=5)))
    return rows


def _row(run: Run, id_count: int, case: str, load: Load, target: Target | None) -> Row:
    def measure(broker: RunningBroker) -> Sample:
        with fresh_topic(broker, id_count) as topic:
            return transact(topic, load, id_count, run.scale.small_seconds)

    samples = run.arena.compare(measure)
    return Row(case, "msg/s", samples.get("Tidelog"), samples.get("Kafka"), target)
