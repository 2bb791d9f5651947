"""`tidelog cluster elect`: leadership for preferred replicas, or for any available replica.

**Invariant:** an election that may lose records happens only after a confirmation or with --yes; other
partitions are not changed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.cluster_partitions import Partition, Picture, take_picture
from tidelog.cli.connection import no_such_topic
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.names import complete_topic
from tidelog.cli.nodes import open_controller
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, TableFormat, TableOrJson
from tidelog.cli.remote import check
from tidelog.cli.screen import print_json, print_table
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

_PREFERRED, _UNCLEAN = 0, 1
_ELECTION_TIMEOUT = timedelta(seconds=ANSWER_TIMEOUT_S - 5)  # a late answer is better than none


def elect(
    preferred: Annotated[
        bool, typer.Option("--preferred", help="Elect the preferred replicas that are in sync.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect any replica of partitions without a leader. MAY LOSE RECORDS."),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(help="Only this topic.", show_default=False, autocompletion=complete_topic),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="Only this partition of the topic.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before an unclean election.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Elect the preferred leaders, or (--unclean) a leader where there is none."""
    if preferred == unclean:
        raise BadWord("name one of --preferred and --unclean; see 'tidelog cluster elect --help'")
    if partition is not None and topic is None:
        raise BadWord(f"--partition {partition}: no topic; name it with --topic")
    picture = take_picture(bootstrap_server)
    chosen = _choose(picture, topic, partition)
    wanted = [part for part in chosen if (part.is_offline if unclean else part.leader != part.preferred)]
    if unclean and wanted and not yes:
        _ask(picture, wanted)
    kind = _UNCLEAN if unclean else _PREFERRED
    outcomes = _elect(picture, bootstrap_server, kind, wanted) if wanted else {}
    _print(chosen, outcomes, kind, format)
    failed = sum(outcome is not None for outcome in outcomes.values())
    if failed:
        raise Failure(f"{failed} of {len(wanted)} elections failed; see 'tidelog cluster health'")


def _choose(picture: Picture, topic: str | None, number: int | None) -> tuple[Partition, ...]:
    if topic is None:
        return picture.partitions
    found = picture.where(lambda partition: partition.topic == topic)
    if not found:
        raise no_such_topic(topic)
    chosen = tuple(partition for partition in found if number in (None, partition.number))
    if not chosen:
        raise Failure(f"topic {topic!r} has no partition {number}; its last one is {found[-1].number}")
    return chosen


def _ask(picture: Picture, wanted: list[Partition]) -> None:
    """Ask on stderr, with what may be lost: stdout may be read by a program."""
    typer.echo("Partitions without a leader:", err=True)
    for found in wanted:
        ended = [str(replica) for replica in found.complete if replica not in picture.live]
        words = ", ".join(ended) or "none that is known"
        typer.echo(f"  {found.name}: brokers that had every acknowledged record: {words}", err=True)
    typer.echo(
        "An unclean election may elect a replica that lacks acknowledged records. These records are lost for "
        "good, even if a broker that had them comes back, and their offsets are used again. "
        "If one of the brokers above can be started, start it instead: it will become the leader.",
        err=True,
    )
    try:
        is_sure = typer.confirm("Elect?", err=True)
    except typer.Abort:
        raise Failure("nothing was elected: not confirmed; --yes elects without asking") from None
    if not is_sure:
        raise Failure("nothing was elected")


def _elect(
    picture: Picture, bootstrap_server: str, kind: int, wanted: list[Partition]
) -> dict[Partition, str | None]:
    """For each partition why it was not elected, or None."""
    by_topic: dict[str, list[int]] = {}
    for found in wanted:
        by_topic.setdefault(found.topic, []).append(found.number)
    with open_controller(picture.cluster, bootstrap_server) as broker:
        types = broker.types(apis.ELECT_LEADERS)
        topics = tuple(
            make(types.TopicPartitions, topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        )
        answer = broker.ask(
            apis.ELECT_LEADERS, election_type=kind, topic_partitions=topics, timeout=_ELECTION_TIMEOUT
        )
    check("the election", getattr(answer, "error_code", ErrorCode.none), None)
    told = {
        (result.topic, part.partition_id): part
        for result in answer.replica_election_results
        for part in result.partition_result
    }
    return {found: _reason(found, told.get((found.topic, found.number))) for found in wanted}


def _reason(partition: Partition, result: Any) -> str | None:
    if result is None:
        return "the broker did not say"
    if result.error_code in (ErrorCode.none, ErrorCode.election_not_needed):
        return None
    if result.error_code is ErrorCode.preferred_leader_not_available:
        return f"broker {partition.preferred}, the preferred one, is offline or not in sync"
    if result.error_code is ErrorCode.eligible_leaders_not_available:
        return "no replica is online; start one of the brokers " + ", ".join(map(str, partition.replicas))
    return str(result.error_message or result.error_code.name.replace("_", " ")).rstrip(".")


def _print(
    chosen: tuple[Partition, ...],
    outcomes: dict[Partition, str | None],
    kind: int,
    format: TableFormat,
) -> None:
    if format is TableFormat.JSON:
        facts = [
            {"topic": found.topic, "partition": found.number, "old_leader": found.leader, "error": reason}
            for found, reason in outcomes.items()
        ]
        print_json({"election": "unclean" if kind == _UNCLEAN else "preferred", "partitions": facts})
    elif outcomes:
        rows = [
            (found.topic, found.number, "none" if found.is_offline else found.leader, reason or "elected")
            for found, reason in outcomes.items()
        ]
        print_table(("topic", "partition", "old leader", "outcome"), rows)
    else:
        what = "have a leader" if kind == _UNCLEAN else "are led by the preferred replica"
        print(f"nothing to elect: all of {len(chosen)} partitions {what}")
