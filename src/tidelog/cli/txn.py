"""`tidelog txn list | describe | find-hanging | abort`: transactions, and those that nobody will end."""

from __future__ import annotations

import time
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from tidelog.cli.failure import Failure, raise_failures
from tidelog.cli.group import partitions_text
from tidelog.cli.group_members import Partition
from tidelog.cli.group_options import TopicWords, partitions_of
from tidelog.cli.group_target import parse_duration
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    examples,
    unique,
)
from tidelog.cli.screen import console, print_json, print_table
from tidelog.cli.txn_abort import abort
from tidelog.cli.txn_coordinators import (
    Filters,
    Transaction,
    TransactionCoordinators,
    list_transactions,
    no_such_id,
)
from tidelog.cli.txn_producers import Found, Hanging, Leaders, find_hanging

app = typer.Typer(help="Show transactions; find those that nobody will end, and end them.")

DEFAULT_AGE = "15m"  # the default of transaction.max.timeout.ms


class State(StrEnum):
    """The states of a transaction, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


@app.command(
    "list",
    epilog=examples(
        "tidelog txn list --state ongoing --longer-than 10m", "tidelog txn list --pattern 'etl-.*'"
    ),
)
def list_all(
    state: Annotated[
        list[State] | None,
        typer.Option(help="Only ids in this state (may be repeated).", case_sensitive=False),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Only of this producer (may be repeated).", show_default=False, min=0),
    ] = None,
    longer_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Only begun so long ago, such as 10m.", show_default=False)
    ] = "",
    pattern: Annotated[
        str, typer.Option(metavar="REGEX", help="Only ids that match as a whole.", show_default=False)
    ] = "",
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """List transactional ids: coordinator, producer id, state."""
    age_ms = parse_duration(longer_than, "--longer-than") if longer_than else -1
    filters = Filters(tuple(state or ()), tuple(producer_id or ()), age_ms, pattern)
    found, failures = list_transactions(bootstrap_server, filters)
    if format is TableFormat.JSON:
        print_json([asdict(each) for each in found])
    else:
        rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found]
        print_table(("transactional id", "coordinator", "producer id", "state"), rows)
    raise_failures(failures)


def complete_id(context: typer.Context, incomplete: str) -> list[str]:
    try:
        listed, _ = list_transactions(context.params["bootstrap_server"])
    except Exception:  # completion must never print errors
        return []
    return [each.transactional_id for each in listed if each.transactional_id.startswith(incomplete)]


@app.command(epilog=examples("tidelog txn describe etl-1", "tidelog txn describe etl-1 etl-2 --format json"))
def describe(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID…", help="Transactional ids.", show_default=False, autocompletion=complete_id
        ),
    ],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show transactions: state, producer, timeout, and the partitions whose end is not written yet."""
    with TransactionCoordinators(bootstrap_server) as coordinators:
        described = coordinators.describe(unique(ids))
    found: list[Transaction] = []
    failures: list[Failure] = []
    for name, answer in described.items():
        if isinstance(answer, Transaction):
            found.append(answer)
        else:
            failures.append(answer or no_such_id(name))
    if format is TableFormat.TABLE:
        for transaction in found:
            _print(transaction)
    elif found:
        print_json([_json(transaction) for transaction in found])
    raise_failures(failures)


def _json(transaction: Transaction) -> dict[str, Any]:
    facts = asdict(transaction)
    node = transaction.coordinator
    facts["coordinator"] = {"id": node.id, "host": node.host, "port": node.port}
    facts["partitions"] = [
        {"topic": partition.topic, "partition": partition.number} for partition in transaction.partitions
    ]
    return facts


def _print(transaction: Transaction) -> None:
    console().print(f"transactional id {transaction.transactional_id}", style="bold", markup=False)
    node = transaction.coordinator
    facts = [
        ("state", transaction.state),
        ("coordinator", f"broker {node.id} at {node.address}"),
        ("producer", f"{transaction.producer_id}, epoch {transaction.producer_epoch}"),
        ("timeout", f"{transaction.timeout_ms / 1_000:g} s"),
    ]
    if transaction.is_open and transaction.started_ms is not None:
        open_s = max(time.time() - transaction.started_ms / 1_000, 0)
        facts.append(("open for", f"{open_s:.1f} s"))
    facts.append(("partitions", partitions_text(transaction.partitions) or "none"))
    for name, value in facts:
        print(f"  {name:<12} {value}")


@app.command(
    "find-hanging",
    epilog=examples(
        "tidelog txn find-hanging",
        "tidelog txn find-hanging --topic orders:0,1 --max-timeout 1h",
        "tidelog txn find-hanging --broker 2 --format json",
    ),
)
def find(
    topic: TopicWords = None,
    broker: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only partitions that this broker leads.", show_default=False),
    ] = None,
    max_timeout: Annotated[
        str,
        typer.Option(metavar="DURATION", help="The longest timeout of producers: younger ones do not hang."),
    ] = DEFAULT_AGE,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Find open transactions that no coordinator will end: they hold the last stable offset for good."""
    age_ms = parse_duration(max_timeout, "--max-timeout")
    leaders = Leaders(bootstrap_server)
    found = find_hanging(leaders, _chosen(leaders, topic, broker), age_ms)
    if format is TableFormat.JSON:
        hanging = [
            each.transaction.json() | {"transactional_id": each.transactional_id} for each in found.hanging
        ]
        print_json({"partitions": found.partition_count, "hanging": hanging})
    else:
        _print_found(found)
    raise_failures(found.failures)


def _chosen(leaders: Leaders, words: list[str] | None, broker: int | None) -> list[Partition]:
    chosen = partitions_of(words, leaders.metadata) if words else leaders.partitions()
    if broker is None:
        return chosen
    node_id = leaders.cluster.node(broker).id
    return [partition for partition in chosen if leaders.leader_of(partition) == node_id]


def _print_found(found: Found) -> None:
    if not found.hanging:
        print(f"no hanging transactions found in {found.partition_count} partitions")
        return
    columns = (
        "topic",
        "partition",
        "start offset",
        "producer id",
        "epoch",
        "last record",
        "transactional id",
    )
    print_table(columns, map(_row, found.hanging))
    first = found.hanging[0].transaction
    place = f"--topic {first.partition.topic} --partition {first.partition.number}"
    print(f"end one: tidelog txn abort {place} --start-offset {first.start_offset}")


def _row(hanging: Hanging) -> tuple[object, ...]:
    each = hanging.transaction
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(each.last_timestamp, 0) / 1_000))
    return (
        each.partition.topic,
        each.partition.number,
        each.start_offset,
        each.producer_id,
        each.producer_epoch,
        moment if each.last_timestamp >= 0 else "",
        hanging.transactional_id or "",
    )


app.command(
    epilog=examples(
        "tidelog txn abort --topic orders --partition 0 --start-offset 712",
        "tidelog txn abort --topic orders --partition 0 --producer-id 4001 --producer-epoch 3",
    )
)(abort)
