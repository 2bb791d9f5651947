"""The next step of a stream: the end of the next micro-batch, and the losses since the last.

The rules are the JVM connector's, with one exception: offsets include topic ids, so a topic that was deleted
and created again is recognized, and the new one is read from its earliest offset. And a partition that no
broker names any more is remembered with its position: if that was a stale answer, it is read on from there.

**Invariant:** functions of their arguments, of which time is one. Positions go back only with a reported
loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.spark.losses import SHOWN_MAX, DataLoss, Loss, lost, records
from tidelog.spark.plan import Offsets, Seen
from tidelog.spark.positions import NO_TOPIC_ID, UNSPLIT, PastPartition, Positions, Split, format_topic_id
from tidelog.spark.ranges import was_made_again

DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1000
GONE_MAX = 1_000  # partitions that are remembered after they are gone


class Pace(NamedTuple):
    """The limits of a trigger; without limits, it reads everything."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS


class Advance(NamedTuple):
    positions: Positions
    losses: tuple[DataLoss, ...] = ()
    waits: bool = False  # for more offsets: nothing is read, and the time of the last trigger stays


def beginnings_needed(
    start: Positions, topic_ids: Mapping[str, bytes], partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions whose earliest offset `advance` needs; those of others are checked if given."""
    return [
        partition
        for partition in sorted(partitions)
        if partition not in start.offsets
        or was_made_again(partition.topic, start, topic_ids.get(partition.topic))
    ]


def advance(
    start: Positions,
    seen: Seen,
    pace: Pace,
    split: Split = UNSPLIT,
    *,
    now_ms: int = 0,
    last_trigger_ms: int | None = None,
) -> Advance:
    """The end of the next micro-batch from `start`, and the losses on the way.

    With losses and `failOnDataLoss`, the caller raises `DataLossError`; without it, the positions are those
    with which the connector would continue. `last_trigger_ms` is None before the first trigger, which never
    waits.
    """
    if last_trigger_ms is not None and _must_wait(start, seen, pace, now_ms - last_trigger_ms):
        return Advance(start, waits=True)
    begun = {partition: _begin(partition, start, seen) for partition in sorted(seen.ends)}
    begins = {partition: begin.counted for partition, begin in begun.items() if begin.counted is not None}
    ends = {partition: seen.ends[partition] for partition in begins}
    taken = ends if pace.max_offsets is None else share_out(pace.max_offsets, begins, ends)
    starts = {p: min(begun[p].first, taken[p]) for p in taken if begun[p].first > 0}
    ids = {**start.topic_ids, **seen.topic_ids}
    found = Positions(taken, ids, split, starts, start.group, _left_behind(start, seen))
    losses = [*_gone(start, seen), *(begin.loss for begin in begun.values() if begin.loss)]
    is_same = found.offsets == start.offsets and not _made_again(start, seen)
    return Advance(start if is_same else found, tuple(losses))


def _must_wait(start: Positions, seen: Seen, pace: Pace, since_ms: int) -> bool:
    if pace.min_offsets is None or since_ms >= pace.max_delay_ms:
        return False
    return sum(end - (_position(p, start, seen) or 0) for p, end in seen.ends.items()) < pace.min_offsets


def fallen(known: Offsets, ends: Offsets) -> list[TopicPartition]:
    """Partitions that end before an offset that is known: ask again, the answer may come from a lagging
    replica."""
    return [p for p, end in sorted(ends.items()) if p in known and end < known[p]]


def share_out(limit: int, begins: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """New ends with about `limit` offsets in total; each partition's share is proportional to its unread
    offsets.

    Rounded like the connector: down, but up instead of to zero, so that no partition starves.
    """
    sizes = {partition: end - begins[partition] for partition, end in ends.items()}
    total = float(sum(size for size in sizes.values() if size > 0))
    shared = dict(ends)
    for partition, size in sizes.items():
        if size > 0:
            share = limit * (size / total)
            whole = math.ceil(share) if share < 1 else math.floor(share)
            shared[partition] = min(ends[partition], begins[partition] + whole)
    return shared


def still_available(planned: Offsets, latest: Offsets) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """The ends that an availableNow query has planned, as far as they still exist, and what does not."""
    losses = []
    for partition, end in sorted(planned.items()):
        if partition not in latest:
            losses.append(
                lost(Loss.DELETED, partition, "was deleted while the query read all that was available")
            )
        elif latest[partition] < end:
            words = f"ends at offset {latest[partition]}, but ended at {end} when the query began"
            losses.append(lost(Loss.FELL_BACK, partition, words))
    return {p: min(end, latest[p]) for p, end in planned.items() if p in latest}, losses


class _Begin(NamedTuple):
    counted: int | None  # from here on offsets are unread; None: unknown
    first: int = 0  # the first existing one of them, if it is known to be later
    loss: DataLoss | None = None


def _begin(partition: TopicPartition, start: Positions, seen: Seen) -> _Begin:
    again = was_made_again(partition.topic, start, seen.topic_ids.get(partition.topic))
    beginning, before = seen.beginnings.get(partition), _position(partition, start, seen)
    if before is None:
        if beginning is None:
            words = "is new and has no earliest offset: it may be gone again"
            return _Begin(None, loss=lost(Loss.UNKNOWN_BEGINNING, partition, words))
        words = f"is new and begins at offset {beginning}: {records(0, beginning - 1)} gone"
        is_late = beginning > 0 and not again
        return _Begin(beginning, beginning, lost(Loss.BEGINS_LATE, partition, words) if is_late else None)
    is_back = again or partition not in start.offsets
    first = before if is_back else 0  # one that was missing has its start written down
    if seen.ends[partition] < before:
        words = f"ends at offset {seen.ends[partition]}, but was read up to {before}"
        return _Begin(before, first, lost(Loss.FELL_BACK, partition, words))
    if beginning is not None and before < beginning:
        words = f"begins at offset {beginning}: {records(before, beginning - 1)} gone"
        return _Begin(before, beginning, lost(Loss.AGED_OUT, partition, words))
    return _Begin(before, first)


def _position(partition: TopicPartition, start: Positions, seen: Seen) -> int | None:
    """The position in the partition, also if it was missing meanwhile; None if it is new.

    Without topic ids a partition that was missing cannot be told from another one of that name: it is new.
    """
    topic_id = seen.topic_ids.get(partition.topic)
    if partition in start.offsets and not was_made_again(partition.topic, start, topic_id):
        return start.offsets[partition]
    return start.gone.get(PastPartition(topic_id, partition.partition)) if topic_id else None


def _left_behind(start: Positions, seen: Seen) -> dict[PastPartition, int]:
    """The positions in partitions that are missing now, by topic id: a partition that brokers name again is
    read on. If they become too many, those that left last are kept."""
    ids = {**start.topic_ids, **seen.topic_ids}
    there = {_past(partition, ids) for partition in seen.ends}
    left = {_past(partition, start.topic_ids): offset for partition, offset in start.offsets.items()}
    last = {past: offset for past, offset in left.items() if past and past not in there}
    before = {past: at for past, at in start.gone.items() if past not in there and past not in last}
    return dict([*last.items(), *before.items()][:GONE_MAX])


def _past(partition: TopicPartition, topic_ids: Mapping[str, bytes]) -> PastPartition | None:
    topic_id = topic_ids.get(partition.topic, NO_TOPIC_ID)
    return PastPartition(topic_id, partition.partition) if topic_id != NO_TOPIC_ID else None


def _gone(start: Positions, seen: Seen) -> Iterable[DataLoss]:
    """Topics that were created again, and partitions that no longer exist."""
    again = _made_again(start, seen)
    for topic in again:
        ids = (format_topic_id(start.topic_ids[topic]), format_topic_id(seen.topic_ids[topic]))
        yield DataLoss(
            Loss.MADE_AGAIN,
            topic,
            None,
            f"topic {topic} was deleted and created again: its id was {ids[0]} and is {ids[1]}; the old "
            f"topic's records beyond {_reached(start, topic)} are lost",
        )
    for partition, offset in start.offsets.items():
        if partition not in seen.ends and partition.topic not in again:
            words = f"was deleted; it was read up to offset {offset}"
            yield lost(Loss.DELETED, partition, words)


def _made_again(start: Positions, seen: Seen) -> list[str]:
    return [topic for topic in start.topic_ids if was_made_again(topic, start, seen.topic_ids.get(topic))]


def _reached(start: Positions, topic: str) -> str:
    offsets = [offset for partition, offset in start.offsets.items() if partition.topic == topic]
    shown = ", ".join(map(str, offsets[:SHOWN_MAX])) + (", …" if len(offsets) > SHOWN_MAX else "")
    return f"offset {shown}" if len(offsets) == 1 else f"offsets {shown}"
