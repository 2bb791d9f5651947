"""`tidelog topic trim`: deletes the oldest records of a topic's partitions, up to an offset or a time."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import typer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.connection import open_admin, topic_metadata
from tidelog.cli.failure import BadWord, Failure, raise_failures
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    TopicName,
)
from tidelog.cli.outcomes import await_all, explain_topic
from tidelog.cli.reading import explain_client, open_cluster
from tidelog.cli.screen import print_json, print_table
from tidelog.cli.start import Start, parse_start, starting_offsets
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError

_OPTION = "--before"
_ONE_PARTITION = re.compile(r"(\d{1,9}):(.+)")


class Cut(NamedTuple):
    """Delete the records below `offset`; `start` is the present start of the partition."""

    partition: int
    start: int
    offset: int


def trim(
    name: TopicName,
    before: Annotated[
        list[str],
        typer.Option(
            metavar="WHERE",
            help="OFFSET, -N (keep the last N), @TIMESTAMP or latest; "
            "PARTITION:WHERE for one partition only (may be repeated).",
            show_default=False,
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, delete nothing.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Delete the oldest records of a topic: all that come before WHERE."""
    wanted = [_parse(word) for word in before]
    admin = open_admin(bootstrap_server)
    existing = sorted(topic_metadata(admin, bootstrap_server, name).partitions)
    with open_cluster(bootstrap_server) as cluster:
        try:
            cuts = _cuts(cluster, existing, name, wanted)
        except ClientError as error:
            raise explain_client(error, bootstrap_server) from None
    failures: list[Failure] = []
    if not dry_run:
        cuts, failures = _delete(admin, bootstrap_server, name, cuts)
        if not cuts:
            raise_failures(failures)
    columns = ("partition", "deleted_offsets", "log_start_offset")
    rows = [(cut.partition, max(cut.offset - cut.start, 0), max(cut.offset, cut.start)) for cut in cuts]
    if format is TableFormat.JSON:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"topic": name, "partitions": partitions, "dry_run": dry_run})
    else:
        print_table([column.replace("_", " ") for column in columns], rows)
        if dry_run:
            print("(dry run: nothing deleted)")
    raise_failures(failures)


def _parse(word: str) -> tuple[int | None, Start]:
    """The partition, or None for all, and the position."""
    matched = _ONE_PARTITION.fullmatch(word)
    if matched is None:
        return None, parse_start(word, _OPTION)
    return int(matched[1]), parse_start(matched[2], _OPTION)


def _cuts(
    cluster: Cluster, existing: list[int], topic: str, wanted: list[tuple[int | None, Start]]
) -> list[Cut]:
    offsets: dict[int, int] = {}
    for partition, start in wanted:
        if partition is not None and partition not in existing:
            raise BadWord(f"{_OPTION} {partition}: topic {topic!r} has partitions 0 to {existing[-1]}")
        chosen = existing if partition is None else [partition]
        if offsets.keys() & chosen:
            raise BadWord(f"{_OPTION}: partition {min(offsets.keys() & chosen)} is named twice")
        offsets |= starting_offsets(cluster.list_offsets, topic, chosen, start, _OPTION)
    starts = starting_offsets(cluster.list_offsets, topic, sorted(offsets), Start("earliest"))
    return [Cut(number, starts[number], offsets[number]) for number in sorted(offsets)]


def _delete(
    admin: AdminClient, bootstrap_server: str, topic: str, cuts: list[Cut]
) -> tuple[list[Cut], list[Failure]]:
    """The cuts with the partitions' actual new starts, and the failures."""
    asked = [TopicPartition(topic, cut.partition, cut.offset) for cut in cuts]
    futures = admin.delete_records(asked, request_timeout=ANSWER_TIMEOUT_S)
    done, failed = await_all(
        {place.partition: future for place, future in futures.items()},
        lambda number, error: Failure(
            f"{explain_topic(topic, error, bootstrap_server)} (partition {number})"
        ),
    )
    made = [cut._replace(offset=done[cut.partition].low_watermark) for cut in cuts if cut.partition in done]
    return made, list(failed.values())
