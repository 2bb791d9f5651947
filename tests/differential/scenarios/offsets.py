"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case
from tests.differential.entities import milliseconds
from tests.differential.world import COMPACTED, ORDERS, START_MS

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -(2**63))
EPOCHS = (-1, 0, 1, -2, 2**31 - 1)


def list_offsets(case: Case) -> None:
    for timestamp in SPECIAL:
        for index in (0, 1, 2):
            _list(case, f"{timestamp} of partition {index}", (index, timestamp))
    for past in (-1, 0, 1, 500, 1_000, 1_001, 2_000, 2_001, 10_000, 11_000, 11_001, 10**9):
        _list(case, f"{past} ms after the first record", (0, START_MS + past))
    for timestamp in (0, 1, 2**63 - 1):
        _list(case, f"timestamp {timestamp}", (0, timestamp))
    for isolation in (0, 1, 2, -1):
        for timestamp in (-1, -2, -3, START_MS):
            _list(case, f"{timestamp}, isolation {isolation}", (0, timestamp), isolation_level=isolation)
    for epoch in EPOCHS:
        _list(case, f"leader epoch {epoch}", (0, -1), epoch=epoch)
        _list(case, f"leader epoch {epoch} by time", (0, START_MS), epoch=epoch)
    for replica_id in (-2, 0, 1, 7):
        for timestamp in (-1, -2, START_MS, -3, -4):
            _list(case, f"{timestamp} as replica {replica_id}", (0, timestamp), replica_id=replica_id)
    _list(case, "no such partition", (3, -1))
    _list(case, "a negative partition", (-1, -1))
    _list(case, "the same partition twice", (0, -1), (0, -2))
    _list(case, "no partitions")
    _list(case, "no such topic", (0, -1), topic="absent")
    _list(case, "no such topic, a bad time", (0, -9), topic="absent")
    _list(case, "a bad name", (0, -1), topic="a b")
    _list(case, "no name", (0, -1), topic="")
    _list(case, "an empty topic", (0, START_MS), (0, -3), topic=COMPACTED)
    case.ask("nothing", replica_id=-1, timeout=milliseconds(1_000))
    case.ask(
        "a topic twice",
        replica_id=-1,
        topics=(_topic(case, ORDERS, (0, -1)), _topic(case, ORDERS, (1, -1))),
        timeout=milliseconds(1_000),
    )
    case.ask(
        "a topic twice with the same partition",
        replica_id=-1,
        topics=(_topic(case, ORDERS, (0, -1)), _topic(case, ORDERS, (0, -1))),
        timeout=milliseconds(1_000),
    )


def _list(
    case: Case,
    scenario: str,
    *asked: tuple[int, int],
    topic: str = ORDERS,
    epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> None:
    if (epoch != -1 and case.version < 4) or (isolation_level and case.version < 2):
        return
    case.ask(
        scenario,
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=(_topic(case, topic, *asked, epoch=epoch),),
        timeout=milliseconds(1_000),
    )


def _topic(case: Case, name: str, *asked: tuple[int, int], epoch: int = -1) -> Any:
    rows = tuple(
        case.make(
            "ListOffsetsPartition", partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
        )
        for index, timestamp in asked
    )
    return case.make("ListOffsetsTopic", name=name, partitions=rows)


def offset_for_leader_epoch(case: Case) -> None:
    for current in EPOCHS:
        for epoch in EPOCHS:
            _end(case, f"epoch {epoch}, current {current}", (0, current, epoch))
    _end(case, "an empty partition", (2, -1, 0))
    _end(case, "no such partition", (9, -1, 0))
    _end(case, "a negative partition", (-1, -1, 0))
    _end(case, "the same twice", (0, -1, 0), (0, -1, 0))
    _end(case, "no such topic", (0, -1, 0), topic="absent")
    _end(case, "a bad name", (0, -1, 0), topic="a b")
    _end(case, "no partitions")
    case.ask("nothing", replica_id=-1)
    for replica_id in (-2, 0, 1, 7):
        _end(case, f"as replica {replica_id}", (0, -1, 0), replica_id=replica_id)


def _end(
    case: Case, scenario: str, *asked: tuple[int, int, int], topic: str = ORDERS, replica_id: int = -1
) -> None:
    rows = tuple(
        case.make(
            "OffsetForLeaderPartition", partition=index, current_leader_epoch=current, leader_epoch=epoch
        )
        for index, current, epoch in asked
    )
    topics = (case.make("OffsetForLeaderTopic", topic=topic, partitions=rows),)
    case.ask(scenario, replica_id=replica_id, topics=topics)
