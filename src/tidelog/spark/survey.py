"""The requests of a query before and between its batches.

The source (a `Place`) is a cluster, or the folders of one (`segments`). The answers go to the pure functions
of `plan` and `advance`; losses end the query or are logged, depending on `failOnDataLoss`.

**Invariant:** only metadata and offsets are read here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from tidelog.client.attempts import GONE_AFTER_SECONDS
from tidelog.client.cluster import EARLIEST, LATEST, FoundOffset, TopicFacts
from tidelog.client.errors import ClientError, TopicGone, TopicPartition
from tidelog.spark.advance import Advance, Pace, advance, beginnings_needed, fallen, still_available
from tidelog.spark.filters import Filter, narrow
from tidelog.spark.filters import time_lookups as filter_lookups
from tidelog.spark.losses import DataLoss, DataLossError, words_of
from tidelog.spark.option_forms import Limit
from tidelog.spark.options import ReadOptions
from tidelog.spark.plan import (
    Bound,
    Offsets,
    Seen,
    Side,
    missing_topics,
    plan_batch,
    resolve,
    select,
    time_lookups,
    topics_to_ask,
)
from tidelog.spark.positions import Positions
from tidelog.spark.ranges import RangeOf, cut, was_made_again

_NONE_FOUND = -1


Answer = TypeVar("Answer")


class Place(Protocol):
    """A source of records: the methods of `tidelog.client.cluster.Cluster` that are used here."""

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]: ...

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]: ...


class Survey:
    def __init__(self, place: Place, options: ReadOptions) -> None:
        self._place = place
        self._options = options
        self.last_ends: dict[TopicPartition, int] = {}  # the last known ends of the partitions

    def begin(self, group: str | None) -> Positions:
        """The start of a new stream."""
        seen, by_time = self._settled(lambda: self._look(self._options.starting))
        offsets = self._resolve(self._options.starting, Side.START, seen, by_time[0])
        return Positions(offsets, seen.topic_ids, self._options.split, group=group)

    def plan(self, filters: Sequence[Filter] = ()) -> list[RangeOf]:
        """The ranges of a batch, reduced by filters and divided."""
        options = self._options
        seen, by_time = self._settled(lambda: self._look(options.starting, options.ending))
        starting = Bound(options.starting, self._resolve(options.starting, Side.START, seen, by_time[0]))
        ending = Bound(options.ending, self._resolve(options.ending, Side.END, seen, by_time[1]))
        planned = plan_batch(starting, ending, seen)
        self.judge(planned.losses)
        found = self._by_time(filter_lookups(filters, planned.ranges))
        return cut(narrow(planned.ranges, filters, found), options.split)

    def advance(
        self,
        start: Positions,
        pace: Pace,
        planned: Offsets | None,
        *,
        now_ms: int,
        last_trigger_ms: int | None,
    ) -> Advance:
        """The end of a stream's next batch, at most `planned`; raises on data loss if that is not allowed."""
        seen = self._settled(lambda: self._look_further(start, planned or {}))
        if planned is not None:
            available, losses = still_available(planned, seen.ends)
            self.judge(losses)
            seen = replace(seen, ends=available)
        taken = advance(
            start,
            seen,
            pace,
            self._options.split,
            now_ms=now_ms,
            last_trigger_ms=last_trigger_ms,
        )
        self.judge(taken.losses)
        return taken

    def ends(self, start: Positions) -> dict[TopicPartition, int]:
        """The present end of each partition that is selected."""
        return dict(self._settled(lambda: self._look_further(start, {})).ends)

    def judge(self, losses: Sequence[DataLoss]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise DataLossError(losses)
        if losses:
            warn(words_of(losses))

    def _look(self, *limits: Limit) -> tuple[Seen, list[dict[TopicPartition, int | None]]]:
        """The selected partitions, and the offsets of the limits' timestamps.

        The ends are asked for last, so that on a topic that is being written no other offset lies beyond
        them.
        """
        partitions, topic_ids = self._select()
        by_time = [self._by_time(self._lookups(limit, partitions)) for limit in limits]
        beginnings = self._edge(partitions, EARLIEST)
        ends = self._edge(partitions, LATEST)
        for found in by_time:  # their records exist, even if a new leader does not know it yet
            ends |= {p: max(ends[p], at) for p, at in found.items() if at is not None and p in ends}
        return Seen(ends, topic_ids, beginnings), by_time

    def _look_further(self, start: Positions, planned: Offsets) -> Seen:
        partitions, topic_ids = self._select_again(start)
        known = {**start.offsets, **planned}
        ends = self._edge(partitions, LATEST)
        for _ in range(self._options.fetch_offset_num_retries):
            if not fallen(known, ends):  # the answer may come from a lagging replica
                break
            time.sleep(self._options.fetch_offset_retry_interval_ms / 1_000)
            ends = self._edge(partitions, LATEST)
        self.last_ends = ends
        needed = beginnings_needed(start, topic_ids, partitions)
        return Seen(ends, topic_ids, self._edge(needed, EARLIEST))

    def _select_again(self, start: Positions) -> tuple[tuple[TopicPartition, ...], dict[str, bytes]]:
        """The selected partitions and ids. A partition that is missing, or that belongs to another topic of
        that name, is asked for again until that counts: the broker may not know it yet."""
        until = time.monotonic() + GONE_AFTER_SECONDS
        while True:
            partitions, topic_ids = self._select(is_missing_allowed=True)
            is_missing = bool(start.offsets.keys() - set(partitions))
            is_other = any(was_made_again(topic, start, topic_ids.get(topic)) for topic in start.topic_ids)
            if not (is_missing or is_other) or time.monotonic() >= until:
                return partitions, topic_ids
            time.sleep(max(self._options.fetch_offset_retry_interval_ms, 1) / 1_000)

    def _select(
        self, *, is_missing_allowed: bool = False
    ) -> tuple[tuple[TopicPartition, ...], dict[str, bytes]]:
        options = self._options
        topics = self._ask(lambda: self._place.describe(topics_to_ask(options.selection)))
        selected = select(options.selection, {name: facts.partitions for name, facts in topics.items()})
        if selected.missing and not is_missing_allowed:
            raise missing_topics(selected)
        names = {partition.topic for partition in selected.partitions}
        return selected.partitions, {name: topics[name].id for name in names}

    def _lookups(self, limit: Limit, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        wanted = time_lookups(limit, partitions)
        return {partition: wanted[partition] for partition in partitions if partition in wanted}

    def _resolve(
        self, limit: Limit, side: Side, seen: Seen, by_time: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        return resolve(limit, side, tuple(seen.ends), seen, by_time, self._options.strategy)

    def _by_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = self._offsets(wanted)
        return {partition: None if at == _NONE_FOUND else at for partition, at in found.items()}

    def _edge(self, partitions: Iterable[TopicPartition], edge: int) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, edge))

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        committed_only = self._options.read_committed
        found = self._ask(lambda: self._place.list_offsets(wanted, committed_only=committed_only))
        return {TopicPartition(*partition): each.offset for partition, each in found.items()}

    def _settled(self, look: Callable[[], Answer]) -> Answer:
        """The answer of several questions, asked again if a topic was deleted between two of them."""
        for _ in range(self._options.fetch_offset_num_retries):
            try:
                return look()
            except TopicGone as problem:
                warn(f"looking again: {problem}")
        return look()

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        for _ in range(self._options.fetch_offset_num_retries):
            try:
                return question()
            except TopicGone:
                raise
            except ClientError as problem:
                warn(f"retrying: {problem}")
                time.sleep(self._options.fetch_offset_retry_interval_ms / 1_000)
        return question()


def warn(words: str) -> None:
    """Print a warning to stderr, which Spark collects from its Python workers."""
    print(f"tidelog: {words}", file=sys.stderr, flush=True)
