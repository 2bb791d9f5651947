"""`tidelog topic create | list | describe | delete`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tidelog.cli.connection import (
    ANSWER_TIMEOUT_S,
    cluster_metadata,
    explain,
    open_admin,
    open_consumer,
    topic_metadata,
)
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, TableFormat, TableOrJson
from tidelog.cli.screen import print_json, print_table

app = typer.Typer(help="Create, list, describe and delete topics.")

_WRONG_WORDS = (
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.TOPIC_EXCEPTION,
)


@app.command()
def create(
    name: str,
    partitions: Annotated[int, typer.Option(help="How many; -1: the broker's num.partitions.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="Copies of each; -1: the broker's default.")] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of the topic.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Create a topic."""
    new = NewTopic(
        name,
        num_partitions=_count("--partitions", partitions),
        replication_factor=_count("--replication-factor", replication_factor),
        config=dict(_setting(word) for word in config or []),
    )
    admin = open_admin(bootstrap_server)
    _await(admin.create_topics([new], request_timeout=ANSWER_TIMEOUT_S), bootstrap_server)
    if format is TableFormat.JSON:
        print_json({"created": [name]})
    else:
        print(f"created topic {name}")


@app.command("list")
def list_topics(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, format: TableOrJson = TableFormat.TABLE
) -> None:
    """List all topics."""
    topics = cluster_metadata(open_admin(bootstrap_server), bootstrap_server).topics
    rows = []
    for name in sorted(topics):
        partitions = topics[name].partitions.values()
        copies = max((len(partition.replicas) for partition in partitions), default=0)
        rows.append((name, len(partitions), copies))
    if format is TableFormat.JSON:
        print_json([{"topic": row[0], "partitions": row[1], "replication_factor": row[2]} for row in rows])
    else:
        print_table(("topic", "partitions", "replication factor"), rows)


@app.command()
def describe(
    name: str,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show a topic's partitions: leader, replicas, in-sync replicas, first and end offset."""
    consumer = open_consumer(bootstrap_server)
    try:
        partitions = []
        for number, partition in sorted(topic_metadata(consumer, bootstrap_server, name).partitions.items()):
            low, high = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=ANSWER_TIMEOUT_S)
            partitions.append(
                {
                    "partition": number,
                    "leader": partition.leader,
                    "replicas": list(partition.replicas),
                    "in_sync_replicas": list(partition.isrs),
                    "log_start_offset": low,
                    "high_watermark": high,
                }
            )
    except KafkaException as error:
        raise explain(error, bootstrap_server) from None
    finally:
        consumer.close()
    if format is TableFormat.JSON:
        print_json({"topic": name, "partitions": partitions})
    else:
        _print_partitions(partitions)


@app.command()
def delete(
    names: list[str],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Delete topics and all their records."""
    admin = open_admin(bootstrap_server)
    _await(admin.delete_topics(names, request_timeout=ANSWER_TIMEOUT_S), bootstrap_server)
    if format is TableFormat.JSON:
        print_json({"deleted": names})
    else:
        print("deleted " + ", ".join(names))


def _print_partitions(partitions: list[dict[str, Any]]) -> None:
    columns = ("partition", "leader", "replicas", "in-sync replicas", "log start offset", "high watermark")
    rows = [
        [", ".join(map(str, value)) if isinstance(value, list) else value for value in partition.values()]
        for partition in partitions
    ]
    print_table(columns, rows)


def _await(futures: Mapping[str, Future[None]], bootstrap_server: str) -> None:
    """Wait for all; what failed is named in one line, what succeeded stays done."""
    failures: list[Failure] = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            failures.append(_explain_topic(name, error, bootstrap_server))
    if failures:
        kind = BadWord if any(isinstance(failure, BadWord) for failure in failures) else Failure
        raise kind("; ".join(str(failure) for failure in failures))


def _explain_topic(name: str, error: KafkaException, bootstrap_server: str) -> Failure:
    cause: KafkaError = error.args[0]
    code = cause.code()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return Failure(f"topic {name!r} does not exist; see 'tidelog topic list'")
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return Failure(f"topic {name!r} already exists")
    if code in _WRONG_WORDS:
        return BadWord(f"topic {name!r}: {cause.str()}")
    explained = explain(error, bootstrap_server)
    return Failure(f"topic {name!r}: {explained}")


def _count(option: str, value: int) -> int:
    if value == 0 or value < -1:
        raise BadWord(f"{option} {value}: must be 1 or more (or -1 for the broker's default)")
    return value


def _setting(word: str) -> tuple[str, str]:
    key, separator, value = word.partition("=")
    if not separator or not key:
        raise BadWord(f"--config {word}: not a setting; write --config key=value")
    return key, value
