"""What a query asks before and between its batches, of brokers that do not all know the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from tidelog.client.cluster import EARLIEST, FoundOffset, TopicFacts
from tidelog.client.errors import TopicGone, TopicPartition
from tidelog.spark import survey
from tidelog.spark.advance import Pace
from tidelog.spark.losses import DataLossError
from tidelog.spark.options import ReadOptions
from tidelog.spark.positions import Positions
from tidelog.spark.survey import Survey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = b"i" * 16
OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "fetchoffset.retryintervalms": "1"}
START = Positions({T0: 3, T1: 5}, {"t": ID})


class Forgetful:
    """A cluster one of whose brokers has not heard of the second partition, and is asked so many times."""

    def __init__(self, missing_count: int) -> None:
        self._missing_count = missing_count
        self.asked_count = 0

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]:
        self.asked_count += 1
        return {"t": TopicFacts("t", ID, (0,) if self.asked_count <= self._missing_count else (0, 1))}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        return {partition: FoundOffset(9, -1, 0) for partition in wanted}


@pytest.mark.parametrize("fails_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_partition_that_one_broker_does_not_know_yet_is_read_on(
    fails_on_data_loss: str, is_available_now: bool
) -> None:
    options = ReadOptions.parse(OPTIONS | {"failondataloss": fails_on_data_loss}, streaming=True)
    surveyed = Survey(Forgetful(3), options)
    planned = surveyed.ends(START) if is_available_now else None
    taken = surveyed.advance(START, Pace(None, None, 0), planned, now_ms=0, last_trigger_ms=None)
    assert taken.positions.offsets == {T0: 9, T1: 9}
    assert not taken.losses


def test_a_partition_that_stays_missing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "GONE_AFTER_SECONDS", 0.02)
    place = Forgetful(10**9)
    asking = Survey(place, ReadOptions.parse(OPTIONS, streaming=True))
    with pytest.raises(DataLossError, match="t-1 was deleted; it was read up to offset 5"):
        asking.advance(START, Pace(None, None, 0), None, now_ms=0, last_trigger_ms=None)
    assert place.asked_count > 1


class Growing(Forgetful):
    """A topic that is written all the time."""

    def __init__(self) -> None:
        super().__init__(0)
        self._end = 0

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        self._end += 1
        return {p: FoundOffset(0 if time == EARLIEST else self._end, -1, 0) for p, time in wanted.items()}


def test_what_is_available_now_never_ends_before_the_query_starts() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    from tidelog.spark.source import LogStreamReader

    reader = LogStreamReader(ReadOptions.parse(OPTIONS | {"commitGroup": ""}, streaming=True))
    reader._asked = Survey(Growing(), reader._options)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    ends = Positions.from_json_dict(end).offsets
    begun = Positions.from_json_dict(start).offsets
    assert all(ends[place] > at for place, at in begun.items())
    assert Positions.from_json_dict(end).starts == begun, "the start is written down with the first end"
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end, "what came later is not available"


def test_a_range_up_to_a_time_ends_in_a_topic_that_is_written_all_the_time() -> None:
    """However late a record of that time is found, the end of the topic is asked for later."""
    options = {**OPTIONS, "startingoffsets": "earliest", "endingtimestamp": "7"}
    planned = Survey(Growing(), ReadOptions.parse(options, streaming=False)).plan()
    assert [each.topic_partition for each in planned] == [T0, T1]


class Lagging(Forgetful):
    """The second answer about the ends comes from a replica that lags; so do `lag_count` after it."""

    def __init__(self, lag_count: int) -> None:
        super().__init__(0)
        self._lag_count = lag_count
        self._ends_count = 0

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        self._ends_count += -1 in wanted.values()
        is_late = 1 < self._ends_count <= 1 + self._lag_count
        return {partition: FoundOffset(7 if is_late else 9, -1, 0) for partition in wanted}


def test_an_end_of_an_available_now_query_that_a_lagging_replica_denies_is_asked_for_again() -> None:
    surveyed = Survey(Lagging(2), ReadOptions.parse(OPTIONS, streaming=True))
    planned = surveyed.ends(START)
    taken = surveyed.advance(START, Pace(None, None, 0), planned, now_ms=0, last_trigger_ms=None)
    assert taken.positions.offsets == {T0: 9, T1: 9}


@pytest.mark.parametrize("fails_on_data_loss", ["true", "false"])
def test_what_was_available_and_is_gone_ends_a_query_only_if_it_shall_fail_on_data_loss(
    fails_on_data_loss: str,
) -> None:
    options = ReadOptions.parse(OPTIONS | {"failondataloss": fails_on_data_loss}, streaming=True)
    surveyed = Survey(Lagging(10**9), options)
    planned = surveyed.ends(START)
    if options.fail_on_data_loss:
        with pytest.raises(DataLossError, match="t-0 ends at offset 7, but ended at 9 when the query began"):
            surveyed.advance(START, Pace(None, None, 0), planned, now_ms=0, last_trigger_ms=None)
        return
    taken = surveyed.advance(START, Pace(None, None, 0), planned, now_ms=0, last_trigger_ms=None)
    assert taken.positions.offsets == {T0: 7, T1: 7}


class Coming(Forgetful):
    """A topic `u` that is deleted just after it was named."""

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]:
        known = super().describe(topics)
        return known | ({"u": TopicFacts("u", ID, (0,))} if self.asked_count == 1 else {})

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        if any(partition.topic == "u" for partition in wanted):
            raise TopicGone("u-0: ListOffsets: UNKNOWN_TOPIC_OR_PARTITION")
        return super().list_offsets(wanted)


def test_a_topic_that_goes_while_a_pattern_is_looked_up_ends_nothing() -> None:
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribepattern": ".*"}
    found = Survey(Coming(0), ReadOptions.parse(options, streaming=True)).begin(None)
    assert found.offsets == {T0: 9, T1: 9}
