"""Resident memory: after the start, and after all the load of the run."""

from __future__ import annotations

from bench.arena import Sample
from bench.report import Row, Target
from bench.run import IDLE_SECONDS, Run

METHOD = (
    f"memory: VmRSS of the process; idle is {IDLE_SECONDS:.0f} s after it serves, after load is when the"
    " throughput cases are done",
)


def run(run: Run) -> list[Row]:
    loaded = {broker.name: Sample(broker.resident_bytes() / 1e6) for broker in run.arena.brokers}
    idle_target = Target(ratio_max=0.2, tidelog_max=80)
    load_target = Target(ratio_max=0.2)
    idle = run.idle_megabytes
    return [
        Row("resident memory, idle", "MB", idle.get("Tidelog"), idle.get("Kafka"), idle_target),
        Row("resident memory, after load", "MB", loaded.get("Tidelog"), loaded.get("Kafka"), load_target),
    ]
