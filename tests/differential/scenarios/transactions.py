"""Transactions: the coordinator's APIs, and the markers of leaders.

`tests/transactions/test_coordinator_oracle.py` has what each request leads to in each state; here both
brokers are asked at the same time, in all versions. Kafka answers EndTxn before the markers are written, so
a transaction is left alone until both have completed it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.differential.case import Case
from tests.differential.entities import build, milliseconds, parts
from tests.differential.sides import Side
from tests.differential.world import ORDERS

INIT_PRODUCER_ID, INIT_VERSION = 22, 5
ADD_PARTITIONS, ADD_VERSION, ADD_BATCHED = 24, 3, 4
END_TXN, END_VERSION = 26, 4
DESCRIBE_TRANSACTIONS = 65
MEMBERS, ADDED_BY_COMMIT = (
    3,
    5,
)  # from which version on TxnOffsetCommit names a member, and adds its partition
ANY_PRODUCER = 987_654_321_012_345  # that no broker has given
TOPIC = "transactional"  # whose records are markers


class Transaction:
    """A transactional id that both have given a producer, known by an id of the suite's own."""

    _count = 0

    def __init__(self, case: Case, stem: str) -> None:
        self.case = case
        self.name = case.fresh(stem)
        Transaction._count += 1
        self.producer_id = ANY_PRODUCER + Transaction._count
        asked = {"transactional_id": self.name, "transaction_timeout": milliseconds(60_000)}
        asked |= {"producer_id": -1, "producer_epoch": -1}
        given = []
        for side in (case.pair.kafka, case.pair.tidelog):
            answer = case.pair.ask_one(side, INIT_PRODUCER_ID, INIT_VERSION, **asked)
            assert answer.error_code == 0, f"{side.name}: {answer}"
            given.append(answer.producer_id)
        case.pair.know_producer(self.producer_id, *given)

    def values(self, **changed: Any) -> dict[str, Any]:
        own = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": 0}
        return own | changed

    def add(self, *indexes: int) -> None:
        """Partitions of the topic, on both, whatever API the case is about."""
        topic = build(
            parts(ADD_PARTITIONS, ADD_VERSION).AddPartitionsToTxnTopic, name=TOPIC, partitions=indexes
        )
        values = {f"v3_and_below_{key}": value for key, value in self.values(topics=(topic,)).items()}
        for side in (self.case.pair.kafka, self.case.pair.tidelog):
            answer = self.case.pair.ask_one(side, ADD_PARTITIONS, ADD_VERSION, **values)
            rows = answer.results_by_topic_v3_and_below[0].results_by_partition
            assert {row.partition_error_code for row in rows} == {0}, f"{side.name}: {answer}"

    def end(self, is_commit: bool) -> None:
        for side in (self.case.pair.kafka, self.case.pair.tidelog):
            values = self.values(committed=is_commit)
            answer = self.case.pair.ask_one(side, END_TXN, END_VERSION, **values)
            assert answer.error_code == 0, f"{side.name}: {answer}"
        self.await_complete()

    def await_complete(self) -> None:
        for side in (self.case.pair.kafka, self.case.pair.tidelog):
            self.case.pair.wait_until(f"{side.name} completes {self.name}", partial(self._is_complete, side))

    def _is_complete(self, side: Side) -> bool:
        values = {"transactional_ids": (self.name,)}
        (state,) = self.case.pair.ask_one(side, DESCRIBE_TRANSACTIONS, 0, **values).transaction_states
        return state.transaction_state in ("CompleteCommit", "CompleteAbort")


def _topic(case: Case) -> None:
    """Once for all cases."""
    if not case.pair.has_topic(TOPIC):
        case.pair.create_topic(TOPIC, 2)


def add_partitions_to_txn(case: Case) -> None:
    _topic(case)
    known = Transaction(case, "known")

    def ask(scenario: str, *indexes: int, topic: str = TOPIC, **changed: Any) -> None:
        values = known.values(
            topics=(case.make("AddPartitionsToTxnTopic", name=topic, partitions=indexes),), **changed
        )
        if case.version >= ADD_BATCHED:
            case.ask(scenario, transactions=(case.make("AddPartitionsToTxnTransaction", **values),))
        else:
            case.ask(scenario, **{f"v3_and_below_{key}": value for key, value in values.items()})

    ask("an unknown id", 0, transactional_id=case.fresh("unknown"))
    ask("an empty id", 0, transactional_id="")
    ask("another producer", 0, producer_id=ANY_PRODUCER)
    ask("a later epoch", 0, producer_epoch=1)
    ask("a negative epoch", 0, producer_epoch=-1)
    ask("no such partition", 7)
    ask("no such partition beside one", 0, 7)
    ask("no such topic", 0, topic="absent")
    ask("one", 0)
    ask("the same again", 0)
    ask("a second one", 0, 1)
    ask("no partitions")
    if case.version >= ADD_BATCHED:
        ask("looked for, is there", 0, verify_only=True)
        other = Transaction(case, "other")
        topic = case.make("AddPartitionsToTxnTopic", name=TOPIC, partitions=(0, 1))
        values = other.values(verify_only=True, topics=(topic,))
        case.ask("looked for, is not", transactions=(case.make("AddPartitionsToTxnTransaction", **values),))


def add_offsets_to_txn(case: Case) -> None:
    known = Transaction(case, "known")

    def ask(scenario: str, group_id: str = "spenders", **changed: Any) -> None:
        case.ask(scenario, **known.values(group_id=group_id, **changed))

    ask("an unknown id", transactional_id=case.fresh("unknown"))
    ask("an empty id", transactional_id="")
    ask("another producer", producer_id=ANY_PRODUCER)
    ask("a later epoch", producer_epoch=1)
    ask("a group")
    ask("the same again")
    ask("another group", "savers")
    ask("a group without a name", "")


def end_txn(case: Case) -> None:
    _topic(case)
    for is_commit in (True, False):
        known = Transaction(case, f"ended-{is_commit}")

        def ask(
            scenario: str, known: Transaction = known, is_commit: bool = is_commit, **changed: Any
        ) -> None:
            case.ask(scenario, **known.values(committed=is_commit, **changed))

        ask("an unknown id", transactional_id=case.fresh("unknown"))
        ask("an empty id", transactional_id="")
        ask("another producer", producer_id=ANY_PRODUCER)
        known.add(0, 1)
        ask("a later epoch", producer_epoch=1)
        ask("an open transaction")
        known.await_complete()
        ask("the same again")
        ask("the other outcome", is_commit=not is_commit)
    empty = Transaction(case, "empty")
    case.ask("nothing to commit", **empty.values(committed=True))


def write_txn_markers(case: Case) -> None:
    name = case.pair.create_topic(case.fresh("marked"), 1)

    def ask(scenario: str, *indexes: int, topic: str = name, **changed: Any) -> None:
        row = case.make("WritableTxnMarkerTopic", name=topic, partition_indexes=indexes)
        values = {"producer_id": ANY_PRODUCER, "producer_epoch": 3, "coordinator_epoch": 5} | changed
        marker = case.make("WritableTxnMarker", transaction_result=True, topics=(row,), **values)
        case.ask(scenario, markers=(marker,))

    ask("no such topic", 0, topic="absent")
    ask("no such partition", 7)
    ask("of an unknown producer", 0)
    ask("an earlier coordinator", 0, coordinator_epoch=4)
    ask("an earlier epoch", 0, producer_epoch=2)
    ask("no producer", 0, producer_id=-1)
    ask("no epoch", 0, producer_epoch=-1)
    ask("no partitions")
    case.ask("no markers", markers=())


def txn_offset_commit(case: Case) -> None:
    known = Transaction(case, "known")

    def ask(scenario: str, topic: str = ORDERS, index: int = 0, **changed: Any) -> None:
        row = case.make(
            "TxnOffsetCommitRequestPartition",
            partition_index=index,
            committed_offset=2,
            committed_leader_epoch=-1,
            committed_metadata=changed.pop("metadata", ""),
        )
        topics = (case.make("TxnOffsetCommitRequestTopic", name=topic, partitions=(row,)),)
        values = {"group_id": case.fresh("spenders"), "generation_id": -1, "member_id": ""} | changed
        case.ask(scenario, **known.values(topics=topics, **values))

    ask("no such topic", topic="absent")
    ask("no such partition", index=7)
    if case.version < ADDED_BY_COMMIT:  # from then on Kafka makes a group of what it refuses
        ask("too much metadata", metadata="x" * 4_097)
        ask("an unknown member", member_id="nobody")
    ask("a generation of nobody", generation_id=3)
    case.ask("nothing", **known.values(group_id=case.fresh("spenders"), generation_id=-1, member_id=""))


def describe_transactions(case: Case) -> None:
    _topic(case)
    opened, ended = (Transaction(case, stem) for stem in ("opened", "ended"))  # kio reads no start of -1
    for each in (opened, ended):
        each.add(0, 1)
    ended.end(is_commit=False)
    case.ask("one", transactional_ids=(opened.name,))
    case.ask("an open and an ended one", transactional_ids=(opened.name, ended.name))
    case.ask("an unknown id", transactional_ids=(case.fresh("unknown"), opened.name))
    case.ask("an empty id", transactional_ids=("",))
    case.ask("twice", transactional_ids=(opened.name, opened.name))
    case.ask("nothing", transactional_ids=())


def list_transactions(case: Case) -> None:
    _topic(case)
    opened, ended = (Transaction(case, stem) for stem in ("opened", "ended"))
    for each in (opened, ended):
        each.add(0)
    ended.end(is_commit=True)
    case.ask("all", duration_filter=-1)
    for states in (
        ("Ongoing",),
        ("CompleteCommit", "Empty"),
        ("ongoing",),
        ("Strange",),
        ("Strange", "Ongoing"),
    ):
        case.ask(f"in states {states}", state_filters=states, duration_filter=-1)
    case.ask("of a producer", producer_id_filters=(opened.producer_id,), duration_filter=-1)
    case.ask("of no producer", producer_id_filters=(ANY_PRODUCER,), duration_filter=-1)
    if case.version >= 1:
        case.ask("for an hour", duration_filter=3_600_000)
    if case.version >= 2:
        for pattern in ("opened-.*", "opened", "", ".*ended.*", "("):
            case.ask(f"like {pattern!r}", duration_filter=-1, transactional_id_pattern=pattern)
