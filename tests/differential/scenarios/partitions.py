"""CreatePartitions, DeleteRecords, ElectLeaders, reassignments, log directories, producers, partitions."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case
from tests.differential.entities import milliseconds
from tests.differential.scenarios.topics import BAD_NAMES
from tests.differential.world import COMPACTED, ORDERS, SMALL, append, batch

TIMEOUT = milliseconds(20_000)


def create_partitions(case: Case) -> None:
    own = case.pair.create_topic(case.fresh("grown"))

    def topic(name: str, count: int, assigned: tuple[tuple[int, ...], ...] | None = None) -> Any:
        rows = None
        if assigned is not None:
            rows = tuple(case.make("CreatePartitionsAssignment", broker_ids=ids) for ids in assigned)
        return case.make("CreatePartitionsTopic", name=name, count=count, assignments=rows)

    def ask(scenario: str, *topics: Any, validate_only: bool = True) -> None:
        case.ask(scenario, topics=topics, timeout=TIMEOUT, validate_only=validate_only)

    for count in (2, 1, 0, -1, 10_002, 2**31 - 1):
        ask(f"to {count}", topic(own, count))
    for assigned in (((1,),), ((1,), (1,)), ((7,),), ((1, 1),), ((),), (), ((-1,),)):
        ask(f"to 2 at {assigned}", topic(own, 2, assigned))
    for name in ("absent", *BAD_NAMES):
        ask(f"of {name[:20]!r}", topic(name, 2))
    ask("twice", topic(own, 2), topic(own, 3))
    ask("good and bad", topic(own, 2), topic("absent", 2))
    ask("nothing")
    ask("to 3 for good", topic(own, 3), validate_only=False)
    case.pair.settle(own, 3)
    ask("to 3 again", topic(own, 3), validate_only=False)
    ask("back to 2", topic(own, 2), validate_only=False)


def delete_records(case: Case) -> None:
    own = case.pair.create_topic(case.fresh("trimmed"), 2)
    append(case.pair, own, 0, batch(3), batch(3))

    def ask(scenario: str, *asked: tuple[int, int], topic: str = own) -> None:
        rows = tuple(
            case.make("DeleteRecordsPartition", partition_index=index, offset=offset)
            for index, offset in asked
        )
        topics = (case.make("DeleteRecordsTopic", name=topic, partitions=rows),)
        case.ask(scenario, topics=topics, timeout=TIMEOUT)

    ask("before nothing", (0, 0))
    ask("before 2", (0, 2))
    ask("before 1, after 2", (0, 1))
    ask("beyond the end", (0, 7))
    ask("before -2", (0, -2))
    ask("of an empty partition", (1, 0))
    ask("all of it", (0, -1))
    ask("all of it again", (0, -1))
    ask("no such partition", (9, 0))
    ask("a negative partition", (-1, 0))
    ask("two partitions", (0, 0), (1, -1))
    ask("the same twice", (1, 0), (1, 0))
    ask("no partitions")
    ask("no such topic", (0, 0), topic="absent")
    ask("a bad name", (0, 0), topic="a b")
    ask("a compacted topic", (0, 0), topic=COMPACTED)
    case.ask("nothing", topics=(), timeout=TIMEOUT)


def elect_leaders(case: Case) -> None:
    def ask(scenario: str, kind: int, *asked: tuple[str, tuple[int, ...]], everything: bool = False) -> None:
        rows = tuple(case.make("TopicPartitions", topic=name, partitions=indexes) for name, indexes in asked)
        case.ask(
            scenario,
            election_type=kind,
            topic_partitions=None if everything else rows,
            timeout=TIMEOUT,
        )

    for kind in (0, 1, 2, -1) if case.version >= 1 else (0,):
        ask(f"type {kind}", kind, (ORDERS, (0, 1)))
        ask(f"type {kind}, no such partition", kind, (ORDERS, (9, -1)))
        ask(f"type {kind}, no such topic", kind, ("absent", (0,)), ("a b", (0,)))
        ask(f"type {kind}, no partitions", kind, (ORDERS, ()))
        ask(f"type {kind}, twice", kind, (ORDERS, (0, 0)), (ORDERS, (0,)))
        ask(f"type {kind}, nothing", kind)
        ask(f"type {kind}, everything", kind, everything=True)


def list_partition_reassignments(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str, tuple[int, ...]]) -> None:
        rows = tuple(
            case.make("ListPartitionReassignmentsTopics", name=name, partition_indexes=indexes)
            for name, indexes in asked
        )
        case.ask(scenario, topics=rows, timeout=TIMEOUT)

    case.ask("all", topics=None, timeout=TIMEOUT)
    ask("none")
    ask("of a topic", (ORDERS, (0, 1)))
    ask("no such partition", (ORDERS, (9, -1)))
    ask("no such topic", ("absent", (0,)))
    ask("a bad name", ("a b", (0,)))
    ask("twice", (ORDERS, (0, 0)), (ORDERS, (0,)))
    ask("no partitions", (ORDERS, ()))


def alter_partition_reassignments(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str, int, tuple[int, ...] | None], **values: Any) -> None:
        topics = tuple(
            case.make(
                "ReassignableTopic",
                name=name,
                partitions=(case.make("ReassignablePartition", partition_index=index, replicas=replicas),),
            )
            for name, index, replicas in asked
        )
        case.ask(scenario, topics=topics, timeout=TIMEOUT, **values)

    for replicas in ((1,), (7,), (1, 7), (1, 1), (), (-1,), None):
        ask(f"to {replicas}", (ORDERS, 0, replicas))
    ask("no such partition", (ORDERS, 9, (1,)))
    ask("no such topic", ("absent", 0, (1,)))
    ask("no such topic, cancelled", ("absent", 0, None))
    ask("nothing")


def describe_log_dirs(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str, tuple[int, ...]]) -> None:
        rows = tuple(
            case.make("DescribableLogDirTopic", topic=name, partitions=indexes) for name, indexes in asked
        )
        case.ask(scenario, topics=rows)

    ask("two topics", (ORDERS, (0, 1, 2)), (SMALL, (0,)))
    ask("no such partition", (ORDERS, (9, -1)))
    ask("no such topic", ("absent", (0,)))
    ask("a bad name", ("a b", (0,)))
    ask("twice", (ORDERS, (0, 0)))
    ask("no partitions", (ORDERS, ()))
    ask("nothing")


def alter_replica_log_dirs(case: Case) -> None:
    home = case.pair.names["kafka"].directory.decode()

    def ask(scenario: str, *asked: tuple[str, str, tuple[int, ...]]) -> None:
        rows = tuple(
            case.make(
                "AlterReplicaLogDir",
                path=path,
                topics=(case.make("AlterReplicaLogDirTopic", name=name, partitions=indexes),),
            )
            for path, name, indexes in asked
        )
        case.ask(scenario, dirs=rows)

    own = case.pair.create_topic(case.fresh("moved"))
    ask("to a directory that is not", ("/nowhere", ORDERS, (0,)))
    ask("to a relative path", ("logs-0", ORDERS, (0,)))
    ask("to no path", ("", ORDERS, (0,)))
    ask("no such topic", (f"{home}/logs-0", "absent", (0,)))
    ask("no such partition", (f"{home}/logs-0", ORDERS, (9, -1)))
    ask("no such topic, no such directory", ("/nowhere", "absent", (0,)))
    ask("a bad name", (f"{home}/logs-0", "a b", (0,)))
    ask("moved", (f"{home}/logs-1", own, (0,)))
    ask("moved again", (f"{home}/logs-1", own, (0,)))
    ask("to two places", (f"{home}/logs-0", own, (0,)), (f"{home}/logs-1", own, (0,)))
    ask("twice", (f"{home}/logs-0", own, (0, 0)))
    ask("no partitions", (f"{home}/logs-0", own, ()))
    ask("nothing")


def describe_producers(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str, tuple[int, ...]]) -> None:
        rows = tuple(
            case.make("TopicRequest", name=name, partition_indexes=indexes) for name, indexes in asked
        )
        case.ask(scenario, topics=rows)

    ask("of a topic", (ORDERS, (0, 1, 2)))
    ask("no such partition", (ORDERS, (9, -1)))
    ask("no such topic", ("absent", (0,)))
    ask("a bad name", ("a b", (0,)))
    ask("twice", (ORDERS, (0, 0)))
    ask("a topic twice", (ORDERS, (0,)), (ORDERS, (1,)))
    ask("no partitions", (ORDERS, ()))
    ask("nothing")


def describe_topic_partitions(case: Case) -> None:
    def ask(scenario: str, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> None:
        rows = tuple(case.make("TopicRequest", name=name) for name in names)
        at = None if cursor is None else case.make("Cursor", topic_name=cursor[0], partition_index=cursor[1])
        case.ask(scenario, topics=rows, response_partition_limit=limit, cursor=at)

    ask("one", ORDERS)
    ask("two", SMALL, ORDERS)
    ask("twice", ORDERS, ORDERS)
    for limit in (0, 1, 2, 3, -1, 2**31 - 1):
        ask(f"at most {limit}", ORDERS, SMALL, limit=limit)
    for cursor in ((ORDERS, 1), (ORDERS, 0), (ORDERS, 9), (ORDERS, -1), (SMALL, 0), ("absent", 0), ("", 0)):
        ask(f"from {cursor}", ORDERS, SMALL, cursor=cursor)
    for name in ("absent", *BAD_NAMES):
        ask(f"the name {name[:20]!r}", name)
    ask("known and unknown", ORDERS, "absent")
    ask("an unknown cursor between", ORDERS, SMALL, cursor=("p", 0))
