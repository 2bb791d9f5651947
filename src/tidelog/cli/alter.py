"""`tidelog topic alter`: more partitions, other settings.

**Invariant:** if both are requested, the broker has checked both before either is changed.
"""

from __future__ import annotations

from typing import Annotated

import typer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.config import change, changes_json, print_changes
from tidelog.cli.connection import open_admin
from tidelog.cli.failure import BadWord, Failure, raise_failures
from tidelog.cli.nodes import await_controller
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    PARTITIONS_MAX,
    BootstrapServer,
    DryRun,
    TableFormat,
    TableOrJson,
    TopicName,
    Unset,
)
from tidelog.cli.outcomes import await_topics
from tidelog.cli.screen import print_json
from tidelog.cli.settings import Change, Resource, parse_changes


def alter(
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=PARTITIONS_MAX, help="The new number of partitions, more than now."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting (may be repeated).", show_default=False),
    ] = None,
    unset: Unset = None,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Add partitions to a topic, or change its settings."""
    topic = Resource("topic", name)
    changes = parse_changes(settings or [], unset or [], "--set ")
    if partitions is None and not changes:
        raise BadWord("nothing to change; write --partitions N, --set key=value or --unset key")
    admin = open_admin(bootstrap_server)
    await_controller(bootstrap_server)
    if changes and partitions is not None and not dry_run:
        change(bootstrap_server, topic, changes, dry_run=True)
    if partitions is not None:
        _grow(admin, bootstrap_server, name, partitions, dry_run)
    failures: list[Failure] = []
    try:
        if changes:
            change(bootstrap_server, topic, changes, dry_run)
    except Failure as failure:
        changes = []
        failures.append(failure)
    if partitions is not None or changes:
        _print(topic, partitions, changes, dry_run, format)
    raise_failures(failures)


def _print(
    topic: Resource, partitions: int | None, changes: list[Change], dry_run: bool, format: TableFormat
) -> None:
    if format is TableFormat.JSON:
        print_json({"topic": topic.name, "partitions": partitions} | changes_json(topic, changes, dry_run))
        return
    if partitions is not None:
        print(f"{topic}: {partitions} partitions" + (" (dry run: nothing changed)" if dry_run else ""))
    print_changes(topic, changes, dry_run)


def _grow(admin: AdminClient, bootstrap_server: str, name: str, partitions: int, dry_run: bool) -> None:
    grown = NewPartitions(name, partitions)
    futures = admin.create_partitions([grown], validate_only=dry_run, request_timeout=ANSWER_TIMEOUT_S)
    await_topics(futures, bootstrap_server)
