"""`tidelog cluster describe | health | elect | reassign | restored`: a cluster as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.cluster_elect import elect
from tidelog.cli.cluster_health import find_problems, print_problems
from tidelog.cli.cluster_partitions import Partition, Picture, take_picture
from tidelog.cli.cluster_reassign import reassign
from tidelog.cli.cluster_restored import restored
from tidelog.cli.failure import BadWord
from tidelog.cli.nodes import Node
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    examples,
)
from tidelog.cli.properties import parse_setting
from tidelog.cli.screen import print_json, print_table

app = typer.Typer(
    help="Start a cluster on this machine; show a cluster and its problems, move leaders and replicas."
)

UNHEALTHY = 1


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "tidelog cluster --brokers 3 --dir ./cluster",
        "tidelog cluster --brokers 3 --dir ./cluster --racks a,b,c",
        "tidelog serve --config ./cluster/broker-2/server.properties",
        "tidelog cluster describe",
    ),
)
def start(
    context: typer.Context,
    brokers: Annotated[
        int | None, typer.Option(help="Number of brokers to start, each in its own process.", min=1)
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The folder for all files of the cluster.")
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the first broker; 0: free ports.", min=0, max=65_000)
    ] = 0,
    zookeepers: Annotated[int, typer.Option(help="How many ZooKeeper servers: 1 or 3.")] = 1,
    racks: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Racks, assigned to the brokers in turn."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="A setting of every broker.")
    ] = None,
) -> None:
    """Start ZooKeeper and brokers until SIGTERM or Ctrl-C; or run one of the commands below."""
    if context.invoked_subcommand is not None:
        return
    if not brokers and directory is None:
        print(context.get_help())
        return
    if not brokers or directory is None:
        raise BadWord(
            "tidelog cluster: --brokers and --dir are needed together; or name a command, see --help"
        )
    if zookeepers not in (1, 3):
        raise BadWord(f"--zookeepers {zookeepers}: unsupported number; write 1 or 3")
    from tidelog.cli.cluster_start import start_cluster

    own = dict(map(parse_setting, settings or []))
    start_cluster(brokers, directory, port, zookeepers, _racks(racks), own)


def _racks(words: str | None) -> list[str]:
    if words is None:
        return []
    named = [word.strip() for word in words.split(",")]
    if not all(named):
        raise BadWord(f"--racks {words}: a rack without a name; write --racks a,b,c")
    return named


@app.command(epilog=examples("tidelog cluster describe", "tidelog cluster describe --verbose --format json"))
def describe(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="With every partition.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show the brokers with their leaders and replicas, and the partitions with problems."""
    picture = take_picture(bootstrap_server)
    if format is TableFormat.JSON:
        print_json(_json(picture, verbose))
    else:
        _print(picture, verbose)


@app.command(epilog=examples("tidelog cluster health || echo 'somebody should look'"))
def health(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, format: TableOrJson = TableFormat.TABLE
) -> None:
    """Print one line if the cluster is healthy; otherwise its problems, their meaning and remedy, with exit
    code 1."""
    picture = take_picture(bootstrap_server)
    problems = find_problems(picture)
    if format is TableFormat.JSON:
        facts = {"cluster_id": picture.cluster.id, "is_healthy": not problems}
        print_json(facts | {"problems": [problem.facts() for problem in problems]})
    elif problems:
        print_problems(picture, problems)
    else:
        print(f"cluster {picture.cluster.id} is healthy: {_counts(picture)}, all led and in sync")
    if problems:
        raise typer.Exit(UNHEALTHY)


app.command(
    epilog=examples(
        "tidelog cluster elect --preferred",
        "tidelog cluster elect --preferred --topic orders --partition 0",
        "tidelog cluster elect --unclean --topic orders --partition 0",
    )
)(elect)
app.command(
    epilog=examples(
        "tidelog cluster reassign --rebalance --dry-run",
        "tidelog cluster reassign --rebalance --throttle 50000000",
        "tidelog cluster reassign --decommission 4",
        "tidelog cluster reassign --file plan.json --yes --no-wait",
        "tidelog cluster reassign --file plan.json --verify || echo 'not yet'",
    )
)(reassign)
app.command(
    epilog=examples(
        "tidelog cluster restored --config ./cluster/broker-1/server.properties",
        "tidelog cluster restored -o zookeeper.connect=localhost:2181 --yes",
    )
)(restored)


def _counts(picture: Picture) -> str:
    topics = len({partition.topic for partition in picture.partitions})
    return f"{_count(len(picture.live), 'broker')}, {_count(topics, 'topic')}, " + _count(
        len(picture.partitions), "partition"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lacking(picture: Picture) -> dict[str, tuple[Partition, ...]]:
    return {
        "offline": picture.where(lambda partition: partition.is_offline),
        "under_min_in_sync": picture.where(lambda partition: partition.is_under_min_in_sync),
        "under_replicated": picture.where(lambda partition: partition.is_under_replicated),
    }


def _broker(picture: Picture, node: Node) -> dict[str, Any]:
    held = picture.on(node.id)
    return {
        "id": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "is_controller": node.id == picture.cluster.controller_id,
        "is_fenced": node.is_fenced,
        "leaders": sum(partition.leader == node.id for partition in held),
        "replicas": len(held),
        "in_sync_replicas": sum(node.id in partition.in_sync for partition in held),
    }


def _json(picture: Picture, verbose: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "cluster_id": picture.cluster.id,
        "controller_id": picture.cluster.controller_id,
        "brokers": [_broker(picture, node) for node in picture.cluster.nodes],
        "topics": len({partition.topic for partition in picture.partitions}),
        "partition_count": len(picture.partitions),
    }
    for kind, partitions in _lacking(picture).items():
        facts[kind] = [{"topic": found.topic, "partition": found.number} for found in partitions]
    if verbose:
        facts["partitions"] = [_partition(partition) for partition in picture.partitions]
    return facts


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync_replicas": list(partition.in_sync),
        "eligible_leader_replicas": None if partition.eligible is None else list(partition.eligible),
        "min_in_sync_replicas": partition.min_in_sync,
    }


def _print(picture: Picture, verbose: bool) -> None:
    cluster = picture.cluster
    controller = "none" if cluster.controller_id < 0 else f"broker {cluster.controller_id}"
    lacking = _lacking(picture)
    print(f"cluster {cluster.id}: {_counts(picture)}; controller: {controller}")
    print("; ".join(f"{kind.replace('_', ' ')}: {len(found)}" for kind, found in lacking.items()))
    columns = ["broker", "address", "rack", "leaders", "replicas", "in sync", ""]
    print_table(columns, [_row(picture, node) for node in cluster.nodes])
    shown = picture.partitions if verbose else sorted({part for found in lacking.values() for part in found})
    if shown:
        columns = ["topic", "partition", "leader", "epoch", "replicas", "in sync", "eligible", ""]
        print_table(columns, map(_partition_row, shown))


def _row(picture: Picture, node: Node) -> tuple[object, ...]:
    found = _broker(picture, node)
    roles = ["controller"] * found["is_controller"] + ["fenced"] * node.is_fenced
    counts = found["leaders"], found["replicas"], found["in_sync_replicas"]
    return node.id, node.address, node.rack or "", *counts, ", ".join(roles)


def _partition_row(partition: Partition) -> tuple[object, ...]:
    words = (
        "offline" if partition.is_offline else "",
        "under min in sync" if partition.is_under_min_in_sync and not partition.is_offline else "",
        "under replicated" if partition.is_under_replicated else "",
    )
    return (
        partition.topic,
        partition.number,
        "none" if partition.is_offline else partition.leader,
        partition.leader_epoch,
        _ids(partition.replicas),
        _ids(partition.in_sync),
        _ids(partition.eligible or ()),
        ", ".join(filter(None, words)),
    )


def _ids(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))
