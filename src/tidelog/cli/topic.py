"""`tidelog topic create | list | describe | alter | trim | delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from confluent_kafka.cimpl import NewTopic

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.alter import alter
from tidelog.cli.connection import cluster_metadata, open_admin, topic_metadata
from tidelog.cli.failure import BadWord, raise_failures
from tidelog.cli.nodes import await_controller
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    PARTITIONS_MAX,
    REPLICAS_MAX,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    TopicName,
    TopicNames,
    examples,
    unique,
)
from tidelog.cli.outcomes import await_all, await_topics, explain_topic, failed_json
from tidelog.cli.reading import explain_client, open_cluster
from tidelog.cli.screen import print_json, print_table
from tidelog.cli.start import limits_of
from tidelog.cli.trim import trim
from tidelog.client.errors import ClientError
from tidelog.replication.partition import INTERNAL_TOPICS

_UNKNOWN = (None, None)  # of a partition without a leader
app = typer.Typer(help="Create, list, describe, alter, trim and delete topics.")


@app.command(
    epilog=examples(
        "tidelog topic create orders --partitions 6",
        "tidelog topic create audit --set retention.ms=-1 --set min.insync.replicas=2",
    )
)
def create(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)],
    partitions: Annotated[
        int, typer.Option(help="Number of partitions; -1: the broker's num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas of each partition; -1: the broker's default.")
    ] = -1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "--config", metavar="KEY=VALUE", help="A setting (may be repeated)."),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Create a topic."""
    config = dict(_setting(word) for word in settings or [])
    new = NewTopic(
        name,
        num_partitions=_count("--partitions", partitions, PARTITIONS_MAX),
        replication_factor=_count("--replication-factor", replication_factor, REPLICAS_MAX),
        config=config,
    )
    admin = open_admin(bootstrap_server)
    await_controller(bootstrap_server)
    await_topics(admin.create_topics([new], request_timeout=ANSWER_TIMEOUT_S), bootstrap_server)
    if format is TableFormat.JSON:
        print_json({"created": [name]})
    else:
        print(f"created topic {name}")


@app.command("list", epilog=examples("tidelog topic list --no-internal --format json"))
def list_topics(
    no_internal: Annotated[bool, typer.Option("--no-internal", help="Leave out internal topics.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """List all topics."""
    topics = cluster_metadata(open_admin(bootstrap_server), bootstrap_server).topics
    rows = []
    for name in sorted(topics):
        if no_internal and name in INTERNAL_TOPICS:
            continue
        partitions = topics[name].partitions.values()
        copies = max((len(partition.replicas) for partition in partitions), default=0)
        rows.append((name, len(partitions), copies))
    if format is TableFormat.JSON:
        print_json([{"topic": row[0], "partitions": row[1], "replication_factor": row[2]} for row in rows])
    else:
        print_table(("topic", "partitions", "replication factor"), rows)


@app.command(epilog=examples("tidelog topic describe orders"))
def describe(
    name: TopicName,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show a topic's partitions: leader, replicas, in-sync replicas, first and end offset."""
    found = topic_metadata(open_admin(bootstrap_server), bootstrap_server, name).partitions
    led = [number for number, partition in sorted(found.items()) if partition.leader >= 0]
    with open_cluster(bootstrap_server) as cluster:
        try:
            limits: dict[int, tuple[int | None, int | None]] = {**limits_of(cluster.list_offsets, name, led)}
        except ClientError as error:
            raise explain_client(error, bootstrap_server) from None
    partitions = [
        {
            "partition": number,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "in_sync_replicas": list(partition.isrs),
            "log_start_offset": limits.get(number, _UNKNOWN)[0],
            "high_watermark": limits.get(number, _UNKNOWN)[1],
        }
        for number, partition in sorted(found.items())
    ]
    if format is TableFormat.JSON:
        print_json({"topic": name, "partitions": partitions})
    else:
        _print_partitions(partitions)


app.command(
    epilog=examples(
        "tidelog topic alter orders --partitions 12",
        "tidelog topic alter orders --set retention.ms=86400000 --unset segment.bytes",
    )
)(alter)
app.command(
    epilog=examples(
        "tidelog topic trim orders --before @2026-01-31T12:00:00",
        "tidelog topic trim orders --before 0:1500 --before 1:latest --dry-run",
    )
)(trim)


@app.command(epilog=examples("tidelog topic delete orders audit"))
def delete(
    names: TopicNames,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Delete topics and all their records."""
    admin = open_admin(bootstrap_server)
    await_controller(bootstrap_server)
    done, failed = await_all(
        admin.delete_topics(unique(names), request_timeout=ANSWER_TIMEOUT_S),
        lambda name, error: explain_topic(name, error, bootstrap_server),
    )
    if format is TableFormat.JSON:
        print_json({"deleted": list(done), "failed": failed_json("topic", failed)})
    elif done:
        print("deleted " + ", ".join(done))
    raise_failures(list(failed.values()))


def _print_partitions(partitions: list[dict[str, Any]]) -> None:
    columns = ("partition", "leader", "replicas", "in-sync replicas", "log start offset", "high watermark")
    print_table(columns, [list(map(_cell, partition.values())) for partition in partitions])


def _cell(value: Any) -> Any:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _count(option: str, value: int, maximum: int) -> int:
    if value == 0 or not -1 <= value <= maximum:
        raise BadWord(
            f"{option} {value}: out of range; write 1 to {maximum} (or -1 for the broker's default)"
        )
    return value


def _setting(word: str) -> tuple[str, str]:
    key, separator, value = word.partition("=")
    if not separator or not key:
        raise BadWord(f"--set {word}: not a setting; write --set key=value")
    return key, value
