"""`tidelog txn abort`: ends a hanging transaction in one partition, by an abort marker.

**Invariant:** a transaction that a coordinator has is refused: half of it would be aborted, and the rest
committed.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from tidelog.cli.connection import no_such_topic
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.group_members import Partition
from tidelog.cli.names import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, TableFormat, TableOrJson
from tidelog.cli.screen import print_json
from tidelog.cli.txn_coordinators import Transaction, owners_of
from tidelog.cli.txn_producers import Leaders, OpenTransaction, has, name_of, open_transactions
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode

_NEVER = -1  # a coordinator epoch before the first marker
_MEANINGS = {
    ErrorCode.invalid_producer_epoch: "the producer has a later epoch there by now; search again",
    ErrorCode.transaction_coordinator_fenced: (
        "a coordinator with a later epoch has written there; leave out --coordinator-epoch"
    ),
    ErrorCode.not_leader_or_follower: "its leader has changed; try again",
    ErrorCode.not_enough_replicas: "too few replicas are in sync; see 'tidelog cluster health'",
    ErrorCode.request_timed_out: (
        "the marker is written and not committed yet; see 'tidelog cluster health', then search again"
    ),
}


class Wanted(NamedTuple):
    """Which transaction of a partition: by where it starts, or by its producer."""

    start_offset: int | None
    producer_id: int | None
    producer_epoch: int | None

    def is_meant(self, opened: OpenTransaction) -> bool:
        if self.start_offset is not None:
            return opened.start_offset == self.start_offset
        return (opened.producer_id, opened.producer_epoch) == (self.producer_id, self.producer_epoch)

    def __str__(self) -> str:
        if self.start_offset is not None:
            return f"open transaction that starts at offset {self.start_offset}"
        return f"open transaction of producer {self.producer_id} with epoch {self.producer_epoch}"


def abort(
    topic: Annotated[
        str,
        typer.Option(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=complete_topic),
    ],
    partition: Annotated[int, typer.Option(metavar="N", help="Its partition.", show_default=False, min=0)],
    start_offset: Annotated[
        int | None,
        typer.Option(metavar="N", help="Where the transaction starts.", show_default=False, min=0),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="N", help="Or: whose it is,", show_default=False, min=0)
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(metavar="N", help="with which epoch.", show_default=False, min=0, max=32_767)
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Of the marker; without it, the last that the partition knows.",
            show_default=False,
            min=0,
            max=2**31 - 1,
        ),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """End a hanging transaction in one partition: its records there are aborted."""
    wanted = _wanted(start_offset, producer_id, producer_epoch)
    leaders = Leaders(bootstrap_server)
    opened = _find(leaders, _existing(leaders, topic, partition), wanted)
    _check_owner(leaders, opened)
    epoch = opened.coordinator_epoch if coordinator_epoch is None else coordinator_epoch
    _write_marker(leaders, opened, max(epoch, 0))
    if format is TableFormat.JSON:
        print_json({"aborted": opened.json()})
    else:
        place = f"{name_of(opened.partition)}, from offset {opened.start_offset} on"
        print(f"aborted the transaction of producer {opened.producer_id} in {place}")


def _wanted(start_offset: int | None, producer_id: int | None, producer_epoch: int | None) -> Wanted:
    by_producer = (producer_id is not None) + (producer_epoch is not None)
    if start_offset is not None and by_producer:
        raise BadWord("--start-offset or --producer-id and --producer-epoch, not both: leave one out")
    if start_offset is None and by_producer < 2:
        raise BadWord(
            "no transaction named: --start-offset, or --producer-id and --producer-epoch; "
            "'tidelog txn find-hanging' shows them"
        )
    return Wanted(start_offset, producer_id, producer_epoch)


def _existing(leaders: Leaders, topic: str, number: int) -> Partition:
    found = leaders.metadata.topics.get(topic)
    if found is None:
        raise no_such_topic(topic)
    if number not in found.partitions:
        raise BadWord(
            f"--partition {number}: topic {topic!r} has partitions 0 to {len(found.partitions) - 1}"
        )
    return Partition(topic, number)


def _find(leaders: Leaders, partition: Partition, wanted: Wanted) -> OpenTransaction:
    opened, failures = open_transactions(leaders, [partition])
    if failures:
        raise failures[0]
    for each in opened:
        if wanted.is_meant(each):
            return each
    there = ", ".join(f"{each.start_offset} (producer {each.producer_id})" for each in opened)
    known = f"those that are open start at {there}" if opened else "none is open there"
    raise Failure(f"{name_of(partition)} has no {wanted}: {known}")


def _check_owner(leaders: Leaders, opened: OpenTransaction) -> None:
    owners, doubts = owners_of(leaders.bootstrap_server, [opened.producer_id])
    if has(owners, opened):
        raise _owned(owners[opened.producer_id], opened)
    doubts += leaders.check_coordinators()
    if doubts and opened.producer_id not in owners:
        raise Failure(f"nothing was written, as a coordinator may have that transaction: {doubts[0]}")


def _owned(owner: Transaction, opened: OpenTransaction) -> Failure:
    remedy = "its markers are on their way: start the coordinator and the leader, if one is down"
    if owner.state == "Ongoing":
        timeout = f"{owner.timeout_ms / 1_000:g} s"
        remedy = f"it is aborted {timeout} after its start, or when its producer starts again"
    return Failure(
        f"the transaction in {name_of(opened.partition)} does not hang: broker {owner.coordinator.id} has it "
        f"as {owner.state}, of transactional id {owner.transactional_id!r}; {remedy}"
    )


def _write_marker(leaders: Leaders, opened: OpenTransaction, coordinator_epoch: int) -> None:
    partition = opened.partition
    with leaders.open(leaders.leader_of(partition)) as broker:
        types = broker.types(apis.WRITE_TXN_MARKERS)
        topic = types.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.number,))
        marker = types.WritableTxnMarker(
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=coordinator_epoch,
        )
        answer = broker.ask(apis.WRITE_TXN_MARKERS, markers=(marker,))
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code is not ErrorCode.none:
        meaning = _MEANINGS.get(code, code.name.replace("_", " "))
        raise Failure(f"{name_of(partition)}, producer {opened.producer_id}: not aborted: {meaning}")
