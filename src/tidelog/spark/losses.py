"""Records that may have been deleted before a query read them: what happened, where, and the message.

**Invariant:** a loss names the topic, the partition if it concerns one, and the offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tidelog.client.errors import TopicPartition

SHOWN_MAX = 10  # partitions that a message names; the others are counted


class Loss(Enum):
    DELETED = "deleted"
    MADE_AGAIN = "created again"
    FELL_BACK = "fell back"
    AGED_OUT = "aged out"
    BEGINS_LATE = "begins late"
    UNKNOWN_BEGINNING = "unknown beginning"
    NOT_THERE = "not there"


class DataLoss(NamedTuple):
    loss: Loss
    topic: str
    partition: int | None  # None: the whole topic
    words: str


class DataLossError(Exception):
    """Records may have been deleted before they were read, and `failOnDataLoss` is true."""

    def __init__(self, losses: Sequence[DataLoss]) -> None:
        super().__init__(f"{words_of(losses)}. To read the remaining records, set failOnDataLoss to false.")
        self.losses = tuple(losses)

    def __reduce__(self) -> tuple[type[DataLossError], tuple[tuple[DataLoss, ...]]]:
        return DataLossError, (self.losses,)


def words_of(losses: Sequence[DataLoss]) -> str:
    shown = "; ".join(loss.words for loss in losses[:SHOWN_MAX])
    more = len(losses) - SHOWN_MAX
    return shown if more <= 0 else f"{shown}; and {more} more"


def lost(loss: Loss, partition: TopicPartition, words: str) -> DataLoss:
    return DataLoss(loss, partition.topic, partition.partition, f"{partition} {words}")


def records(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"


def named(partitions: Sequence[TopicPartition]) -> str:
    more = len(partitions) - SHOWN_MAX
    return ", ".join(map(str, partitions[:SHOWN_MAX])) + (f" and {more} more" if more > 0 else "")
