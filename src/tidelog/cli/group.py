"""`tidelog group list | describe | lag | reset | delete`: consumer groups of both protocols."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from tidelog.cli.failure import raise_failures
from tidelog.cli.group_coordinators import GroupCoordinators, list_groups, no_such_group
from tidelog.cli.group_delete import delete
from tidelog.cli.group_lag import lag
from tidelog.cli.group_members import Group, Member, Partition
from tidelog.cli.group_options import GroupNames
from tidelog.cli.group_reset import reset
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    examples,
    unique,
)
from tidelog.cli.screen import console, fits_screen, print_json, print_table

app = typer.Typer(help="Show consumer groups and their lag, reset their offsets, delete them.")

_MEMBER_COLUMNS = ("member", "instance", "client", "host", "partitions")


class State(StrEnum):
    """The states of both protocols, by Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


class Type(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@app.command(
    "list", epilog=examples("tidelog group list", "tidelog group list --state stable --type consumer")
)
def list_all(
    state: Annotated[
        list[State] | None,
        typer.Option(help="Only groups in this state (may be repeated).", case_sensitive=False),
    ] = None,
    type: Annotated[
        list[Type] | None,
        typer.Option(help="Only groups of this type (may be repeated).", case_sensitive=False),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """List groups: type, state, protocol type."""
    groups, failures = list_groups(bootstrap_server, state or (), type or ())
    if format is TableFormat.JSON:
        print_json([asdict(group) for group in groups])
    else:
        rows = [(group.group, group.type, group.state, group.protocol_type) for group in groups]
        print_table(("group", "type", "state", "protocol type"), rows)
    raise_failures(failures)


@app.command(epilog=examples("tidelog group describe billing", "tidelog group describe a b --format json"))
def describe(
    names: GroupNames,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show groups: state, coordinator, assignor, epochs, and the members with their partitions."""
    with GroupCoordinators(bootstrap_server) as coordinators:
        described = coordinators.describe(unique(names))
    groups, failures = [], []
    for name, answer in described.items():
        if isinstance(answer, Group):
            groups.append(answer)
        else:
            failures.append(answer or no_such_group(bootstrap_server, name))
    if format is TableFormat.TABLE:
        for group in groups:
            _print(group)
    elif groups:
        print_json([_json(group) for group in groups])
    raise_failures(failures)


app.command(
    epilog=examples(
        "tidelog group lag billing",
        "tidelog group lag billing --watch --interval 1",
        "tidelog group lag --all --format json",
    )
)(lag)
app.command(
    epilog=examples(
        "tidelog group reset billing --all-topics --to-earliest --dry-run",
        "tidelog group reset billing --topic orders:0,1 --to-time 2026-01-31T12:00:00",
        "tidelog group reset billing --topic orders --by-duration 30m",
        "tidelog group reset billing --all-topics --to-current --dry-run --format csv > offsets.csv",
        "tidelog group reset billing --from-file offsets.csv",
    )
)(reset)
app.command(
    epilog=examples("tidelog group delete billing", "tidelog group delete billing --topic orders:0,1")
)(delete)


def _json(group: Group) -> dict[str, Any]:
    facts = asdict(group)
    facts["group"] = facts.pop("name")
    node = group.coordinator
    facts["coordinator"] = {"id": node.id, "host": node.host, "port": node.port}
    facts["members"] = [_member_json(member) for member in group.members]
    return {"group": facts.pop("group")} | facts


def _member_json(member: Member) -> dict[str, Any]:
    facts = asdict(member)
    facts = {"member_id": facts.pop("id")} | facts
    facts["partitions"] = [
        {"topic": partition.topic, "partition": partition.number} for partition in member.partitions
    ]
    return facts


def _print(group: Group) -> None:
    out = console()
    out.print(f"group {group.name}", style="bold", markup=False)
    node = group.coordinator
    facts = [
        ("state", group.state),
        ("type", group.type),
        ("coordinator", f"broker {node.id} at {node.address}"),
        ("protocol", group.protocol_type or "none"),
        ("assignor", group.assignor or "none"),
    ]
    if group.epoch is not None:
        facts.append(("epoch", f"{group.epoch}, assigned at {group.assignment_epoch}"))
    facts.append(("members", str(len(group.members) or "none")))
    for name, value in facts:
        print(f"  {name:<12} {value}")
    _print_members(group.members)


def _print_members(members: tuple[Member, ...]) -> None:
    """A table if the screen is wide enough for one; else a block for each."""
    rows = [_row(member) for member in members]
    if not rows:
        return
    if fits_screen(_MEMBER_COLUMNS, rows):
        print_table(_MEMBER_COLUMNS, rows)
        return
    for member in members:
        instance = f", instance {member.instance_id}" if member.instance_id else ""
        print(f"  {member.id}")
        print(f"    client {member.client_id} at {member.host}{instance}")
        print(f"    {partitions_text(member.partitions) or 'no partitions'}")


def _row(member: Member) -> tuple[str, ...]:
    return (
        member.id,
        member.instance_id or "",
        member.client_id,
        member.host,
        partitions_text(member.partitions),
    )


def partitions_text(partitions: tuple[Partition, ...]) -> str:
    """`orders 0–2, 5; audit 0`."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.number)
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in topics.items())


def _ranges(numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("–".join(map(str, pair)) for pair in ranges)
