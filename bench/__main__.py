"""`python -m bench`: start the peers, ask every case, print the table, write `bench/RESULTS.md`.

`--only` runs some of the cases and `--quick` runs them small; neither touches RESULTS.md, because figures
to keep come from one whole run. `--before` has an earlier version of Tidelog measured in Kafka's place: what
a change costs shows only when both are measured in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench.cases import (
    clients,
    cluster,
    compaction,
    groups,
    growth,
    latency,
    load,
    memory,
    opening,
    quotas,
    replication,
    retention,
    scale,
    sizes,
    small,
    spark,
    start,
    throughput,
    transactions,
)
from bench.peers.kafka import Kafka
from bench.peers.process import Peer, PeerFailed, PeerMissing
from bench.peers.tidelog import Tidelog
from bench.report import KAFKA, Report, Row
from bench.run import FULL, QUICK, Run, opened

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
TABLE_WIDTH = 160
Case = Callable[[Run], list[Row]]
CASES: dict[str, tuple[Case, Sequence[str]]] = {
    "throughput": (throughput.run, throughput.METHOD),
    "small": (small.run, small.METHOD),
    "latency": (latency.run, latency.METHOD),
    "transactions": (transactions.run, transactions.METHOD),
    "clients": (clients.run, clients.METHOD),
    "memory": (memory.run, memory.METHOD),
    "start": (start.run, start.METHOD),
    "opening": (opening.run, opening.METHOD),
    "load": (load.run, load.METHOD),
    "groups": (groups.run, groups.METHOD),
    "scale": (scale.run, scale.METHOD),
    "retention": (retention.run, retention.METHOD),
    "compaction": (compaction.run, compaction.METHOD),
    "sizes": (sizes.run, sizes.METHOD),
    "growth": (growth.run, growth.METHOD),
    "quotas": (quotas.run, quotas.METHOD),
    "replication": (replication.run, replication.METHOD),
    "cluster": (cluster.run, cluster.METHOD),
    "spark": (spark.run, spark.METHOD),
}
PEERS: dict[str, Callable[[], Tidelog | Kafka]] = {"tidelog": Tidelog, "kafka": Kafka}
SETTING = (
    "Both brokers run for the whole time on one machine and its disk, one broker each, loopback, default"
    " settings; each is paused (SIGSTOP) while the other is measured, and they take turns",
    "Both are warmed up first with throwaway load of every kind",
    "Requests are built beforehand and sent over plain sockets; every answer is checked for errors, and the"
    " log end offset against what was acknowledged",
)


def main() -> int:
    options = _options()
    scale = QUICK if options.quick else FULL
    console = Console() if sys.stdout.isatty() else Console(width=TABLE_WIDTH)
    names = options.only.split(",") if options.only else list(CASES)
    try:
        if "spark" in names:
            spark.require()  # it comes last: nobody should hear after an hour that there is no Java
        peers = _peers(options)
        report = Report(scale.rounds, _kafka_version(peers), [*SETTING])
        report.beside = "before" if options.before else KAFKA
        with opened(peers, scale) as run:
            _ask(run, names, report, console)
    except (PeerMissing, PeerFailed) as error:
        console.print(f"no benchmark: {error}", style="red", markup=False)
        return 1
    report.print(console)
    is_whole = names == list(CASES) and len(peers) == len(PEERS)
    if is_whole and not options.quick and not options.before:
        report.write(RESULTS)
        console.print(f"written to {RESULTS.parent.name}/{RESULTS.name}")
    return 0


def _ask(run: Run, names: Sequence[str], report: Report, console: Console) -> None:
    for name in names:
        started = time.monotonic()
        case, method = CASES[name]
        with console.status(f"measuring {name}"):
            report.rows += case(run)
        report.method = [*report.method, *method]
        console.print(f"{name}: {time.monotonic() - started:.0f} s")


def _peers(options: argparse.Namespace) -> list[Peer]:
    """By the names of their columns; an earlier Tidelog stands in that of Kafka."""
    if options.before:
        return [Tidelog(), Tidelog(Path(options.before).absolute(), KAFKA)]
    return [PEERS[name]() for name in options.peers.split(",")]


def _kafka_version(peers: Sequence[Peer]) -> str:
    for peer in peers:
        if isinstance(peer, Kafka):
            return peer.version()
    return "no Kafka in this run"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", default="", help=f"cases, with commas between: {','.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="little of everything, to try a change")
    parser.add_argument("--peers", default="tidelog,kafka", help="leave one out to work on the other")
    parser.add_argument(
        "--before", default="", help="the tidelog command of an earlier checkout, instead of Kafka"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.only.split(",") if name and name not in CASES]:
        parser.error(f"no such case: {unknown[0]}; there are {', '.join(CASES)}")
    if unknown := [name for name in options.peers.split(",") if name not in PEERS]:
        parser.error(f"no such peer: {unknown[0]}; there are {', '.join(PEERS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
