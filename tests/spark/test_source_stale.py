"""A stream between brokers of which each knows the topics of another moment: no Spark, no broker, a seed.

What Spark does is played: it stores the end of a batch, runs it, stores that it is done, and may be killed
and started again before each of these steps. A batch that is run again replaces what it read before.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from tests.soak import is_soak
from tidelog.client.cluster import EARLIEST, FoundOffset, TopicFacts
from tidelog.client.errors import TopicGone, TopicPartition
from tidelog.spark import survey
from tidelog.spark.options import ReadOptions
from tidelog.spark.survey import Survey

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
from tidelog.spark.source import LogStreamReader, RangePartition

SEEDS = range(5_000 if is_soak() else 40)
STEPS = 60
MEMORY = 4  # so many changes ago is what a broker may still believe
Read = dict[tuple[bytes | None, int], list[tuple[int, int]]]


class Cluster:
    """The truth about topics, and answers that are late."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        self._made = 0
        self.ends: dict[str, dict[int, int]] = {}
        self.ids: dict[str, bytes] = {}
        self._believed: list[dict[str, TopicFacts]] = []
        self.make("t0")

    def make(self, name: str) -> None:
        self._made += 1
        self.ends[name], self.ids[name] = {0: 0}, self._made.to_bytes(16, "big")
        self.told()

    def drop(self, name: str) -> None:
        del self.ends[name], self.ids[name]
        self.told()

    def told(self) -> None:
        facts = {name: TopicFacts(name, self.ids[name], tuple(ends)) for name, ends in self.ends.items()}
        self._believed = [*self._believed[1 - MEMORY :], facts]

    def settle(self) -> None:
        for _ in range(MEMORY):
            self.told()

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]:
        return self._choice.choice(self._believed)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        for partition in wanted:
            if partition.partition not in self.ends.get(partition.topic, {}):
                raise TopicGone(f"{partition}: ListOffsets: UNKNOWN_TOPIC_OR_PARTITION")
        return {
            p: FoundOffset(0 if time == EARLIEST else self.ends[p.topic][p.partition], -1, 0)
            for p, time in wanted.items()
        }


class Query:
    """A query with its checkpoint; `read` is what each batch read."""

    def __init__(self, cluster: Cluster, choice: random.Random, options: dict[str, str]) -> None:
        self._cluster = cluster
        self._choice = choice
        self._options = ReadOptions.parse(options, streaming=True)
        self._ends: list[dict[str, Any]] = []
        self._done = 0
        self.read: dict[int, list[Any]] = {}
        self.start()

    def start(self) -> None:
        self._reader = LogStreamReader(self._options)
        self._reader._asked = Survey(self._cluster, self._options)

    def trigger(self) -> bool:
        """Whether there was something to do."""
        start = self._ends[self._done - 1] if self._done else self._reader.initialOffset()
        if len(self._ends) == self._done:
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if self._ends and end == start:
                return False
            self._ends.append(end)
            if self._is_killed():
                return True
        if not self._done:
            start = self._reader.initialOffset()
        self.read[self._done] = list(self._reader.partitions(start, self._ends[self._done]))
        if not self._is_killed():
            self._done += 1
        return True

    def _is_killed(self) -> bool:
        is_killed = self._choice.random() < 0.2
        if is_killed:
            self.start()
        return is_killed

    def ranges(self) -> Read:
        found: Read = defaultdict(list)
        for tasks in self.read.values():
            for task in tasks:
                assert isinstance(task, RangePartition)
                found[task.wanted.topic_id, task.wanted.partition].append(task.wanted[3:])
        return found


@pytest.mark.soak
@pytest.mark.parametrize("may_go", [False, True], ids=["topics grow", "topics come and go"])
def test_what_brokers_forget_for_a_while_is_read_once(may_go: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "GONE_AFTER_SECONDS", 0.0)  # staler than anybody waits
    monkeypatch.setattr(survey, "warn", lambda words: None)
    for seed in SEEDS:
        choice = random.Random(seed)
        cluster = Cluster(choice)
        options = {
            "kafka.bootstrap.servers": "nowhere:1",
            "subscribepattern": ".*",
            "startingoffsets": "earliest",
            "failondataloss": "false",
            "fetchoffset.numretries": "1000",
            "fetchoffset.retryintervalms": "0",
            "commitgroup": "",
        } | ({"maxoffsetspertrigger": "5"} if seed % 2 else {})
        query = Query(cluster, choice, options)
        for _ in range(STEPS):
            step(cluster, query, choice, may_go=may_go)
        cluster.settle()
        while query.trigger():
            pass
        check(query.ranges(), cluster, seed)


def step(cluster: Cluster, query: Query, choice: random.Random, *, may_go: bool) -> None:
    name = choice.choice(["t0", "t1", "t2"]) if may_go else "t0"
    what = choice.choice(["trigger", "trigger", "write", "write", "grow", "drop", "restart"])
    if what == "trigger":
        query.trigger()
    elif what == "restart":
        query.start()
    elif what == "drop" and may_go and len(cluster.ends) > 1 and name in cluster.ends:
        cluster.drop(name)
    elif name not in cluster.ends:
        cluster.make(name)
    elif what == "grow":
        cluster.ends[name][len(cluster.ends[name])] = 0
        cluster.told()
    else:
        cluster.ends[name][choice.choice(list(cluster.ends[name]))] += choice.randint(1, 9)


def check(found: Read, cluster: Cluster, seed: int) -> None:
    """Of the topics that are there in the end; from others nothing can be fetched after they went."""
    for name, ends in cluster.ends.items():
        for partition, end in ends.items():
            at = 0
            ranges = sorted(found.get((cluster.ids[name], partition), []))
            for start, stop in ranges:
                assert start == at, f"seed {seed}: {name}-{partition}: {ranges}"
                at = stop
            assert at == end, f"seed {seed}: {name}-{partition} is read to {at} of {end}"
