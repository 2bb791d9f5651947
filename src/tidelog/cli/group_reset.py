"""`tidelog group reset`: moves the committed offsets of a group without active members.

**Invariant:** nothing is moved while a group has members: they would continue from their own positions.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.connection import cluster_metadata, explain, open_admin
from tidelog.cli.failure import BadWord, Failure, raise_failures
from tidelog.cli.group_coordinators import GroupCoordinators, no_such_group, succeeded
from tidelog.cli.group_file import STDIN, write_offsets
from tidelog.cli.group_members import Group, Partition
from tidelog.cli.group_options import GroupName, TopicWords, parse_topic, partitions_of
from tidelog.cli.group_plan import Move, Planner
from tidelog.cli.group_target import Target, parse_target
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer
from tidelog.cli.screen import print_json, print_table

_NAMED_MEMBERS_MAX = 3  # in a message; the others are counted
_UNKNOWN = "-"


class ResetFormat(StrEnum):
    """CSV is the format of --from-file and Kafka's own tool."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def reset(
    name: GroupName,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offsets; for --dry-run --format csv.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, metavar="N", help="To an offset.")] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="To a time: milliseconds or ISO 8601 (UTC).")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="To this long ago: 5m, 1h30m, 7d or PT5M.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Forward by N records; back by -N."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"To the offsets of a CSV file, topic,partition,offset a line; {STDIN}: stdin.",
        ),
    ] = None,
    topic: TopicWords = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, change nothing.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: Annotated[
        ResetFormat, typer.Option(help="A table for people, JSON for programs, CSV for --from-file.")
    ] = ResetFormat.TABLE,
) -> None:
    """Move the committed offsets of a group without members."""
    _check_partitions_named(topic, all_topics, from_file)
    target = parse_target(
        name,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_time=to_time,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
    )
    admin = open_admin(bootstrap_server)
    with GroupCoordinators(bootstrap_server) as coordinators:
        group = succeeded(coordinators.describe([name])[name])
        committed = succeeded(coordinators.committed([name])[name])
    if group is not None and group.members and not dry_run:
        raise has_members(group, "reset")
    partitions = _partitions(bootstrap_server, admin, name, group, target, topic, committed)
    moves = Planner(admin, bootstrap_server, committed).plan(target, partitions)
    failed = {} if dry_run else _commit(admin, bootstrap_server, name, moves)
    moves = [move for move in moves if move.place not in failed]
    if moves:
        _print(name, group, moves, dry_run, format)
    raise_failures(list(failed.values()))


def has_members(group: Group, verb: str) -> Failure:
    """The failure for a group with members, with their names and what to do."""
    count = len(group.members)
    named = ", ".join(str(member) for member in group.members[:_NAMED_MEMBERS_MAX])
    more = f" and {count - _NAMED_MEMBERS_MAX} more" if count > _NAMED_MEMBERS_MAX else ""
    stays = any(member.instance_id for member in group.members)
    wait = " (those with an instance id stay until their session ends)" if stays else ""
    return Failure(
        f"group {group.name!r} has {count} member{'' if count == 1 else 's'}: {named}{more}; "
        f"stop them{wait}, then {verb} it"
    )


def _check_partitions_named(topics: list[str] | None, all_topics: bool, file: Path | None) -> None:
    for word in topics or []:
        parse_topic(word)
    if file is not None and (topics or all_topics):
        raise BadWord("--from-file: has the partitions itself; leave out --topic and --all-topics")
    if file is None and bool(topics) == all_topics:
        raise BadWord("nothing to reset; name --topic T, --topic T:0,1 or --all-topics, not both")


def _partitions(
    bootstrap_server: str,
    admin: AdminClient,
    name: str,
    group: Group | None,
    target: Target,
    topics: list[str] | None,
    committed: dict[Partition, int],
) -> list[Partition]:
    """The partitions to reset; if topics are named, the group need not exist yet."""
    if target.offsets is not None:
        return sorted(target.offsets)
    if topics:
        return partitions_of(topics, cluster_metadata(admin, bootstrap_server))
    if group is None:
        raise no_such_group(bootstrap_server, name)
    if not committed:
        raise Failure(f"group {name!r} has no committed offsets; name topics with --topic")
    return sorted(committed)


def _commit(
    admin: AdminClient, bootstrap_server: str, name: str, moves: list[Move]
) -> dict[Partition, Failure]:
    """The partitions whose offsets were not committed, and why."""
    asked = [TopicPartition(move.topic, move.partition, move.to_offset) for move in moves]
    futures = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name, asked)], request_timeout=ANSWER_TIMEOUT_S
    )
    try:
        done = futures[name].result()
    except KafkaException as error:
        raise _explain(name, error, bootstrap_server) from None
    failed = {}
    for place in done.topic_partitions:
        if place.error is not None:
            failure = _explain(name, KafkaException(place.error), bootstrap_server)
            where = f"partition {place.partition} of {place.topic!r}"
            failed[Partition(place.topic, place.partition)] = Failure(f"{failure} ({where})")
    return failed


def _explain(name: str, error: KafkaException, bootstrap_server: str) -> Failure:
    if error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
        return Failure(f"group {name!r} has active members now; see 'tidelog group describe {name}'")
    return Failure(f"group {name!r}: {explain(error, bootstrap_server)}")


def _print(name: str, group: Group | None, moves: list[Move], dry_run: bool, format: ResetFormat) -> None:
    if format is ResetFormat.JSON:
        print_json({"group": name, "dry_run": dry_run, "partitions": [asdict(move) for move in moves]})
        return
    if format is ResetFormat.CSV:
        write_offsets((move.place, move.to_offset) for move in moves)
        for move in moves:
            if move.note is not None:
                print(f"tidelog: {move.topic},{move.partition}: {move.note}", file=sys.stderr)
        return
    _print_moves(moves)
    if group is None:
        print(f"group {name} {'would be' if dry_run else 'is'} new")
    if dry_run:
        in_use = group is not None and group.members
        print("(dry run: nothing changed" + ("; refused while the group has members)" if in_use else ")"))


def _print_moves(moves: list[Move]) -> None:
    columns = ["topic", "partition", "from", "to"]
    rows: list[list[object]] = [
        [
            move.topic,
            move.partition,
            _UNKNOWN if move.from_offset is None else move.from_offset,
            move.to_offset,
        ]
        for move in moves
    ]
    if any(move.note for move in moves):
        columns.append("")
        rows = [[*row, move.note or ""] for row, move in zip(rows, moves, strict=True)]
    print_table(columns, rows)
