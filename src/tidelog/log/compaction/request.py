"""What a round of compaction is asked to do, and what it has done: values that cross a pipe as JSON.

**Invariant:** a request names all that a round depends on but the bytes of its sources.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tidelog.log.format.txnindex import AbortedTransaction


class SourcesChanged(Exception):
    """A source is gone, or shorter than the request says: the log has changed. Ask for another round."""


class Source(NamedTuple):
    """A sealed segment that the round reads."""

    base_offset: int
    size: int  # of its `.log`
    modified_ms: int


class LiveProducer(NamedTuple):
    """A producer that the log still knows: its last batch must stay, or its duplicates would be appended."""

    producer_id: int
    epoch: int
    last_data_offset: int  # -1: its present epoch has only a marker


class CleaningRequest(NamedTuple):
    sources: tuple[Source, ...]  # all segments below `end_offset`, in order
    dirty_offset: int  # records below it were cleaned before
    end_offset: int  # base of the segment behind the last source
    producers: tuple[LiveProducer, ...]
    aborted: tuple[AbortedTransaction, ...]  # of all segments, also behind the sources
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    memory_max: int  # for the map of keys and the bitmap of dead records
    bytes_per_second: float  # reads and writes together
    hash_seed: int  # of 128 bits, drawn for this round: nobody can choose keys whose hashes collide


class NewSegment(NamedTuple):
    """A segment that the round has written, under `.cleaned` names."""

    base_offset: int
    sources: tuple[int, ...]  # the bases of those that it replaces
    size: int


class CleaningResult(NamedTuple):
    segments: tuple[NewSegment, ...]
    dirty_offset: int  # where the next round begins: `end_offset`, or where the map was full
    earliest_horizon_ms: int  # the first time at which another round would drop more; -1: never
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    map_utilization: float  # 0 to 1


def encode_request(request: CleaningRequest) -> str:
    return json.dumps(request)


def decode_request(line: str) -> CleaningRequest:
    fields = json.loads(line)
    made = CleaningRequest(*fields)
    return made._replace(
        sources=tuple(Source(*each) for each in made.sources),
        producers=tuple(LiveProducer(*each) for each in made.producers),
        aborted=tuple(AbortedTransaction(*each) for each in made.aborted),
    )


def encode_result(result: CleaningResult) -> str:
    return json.dumps(result)


def decode_result(line: str) -> CleaningResult:
    made = CleaningResult(*json.loads(line))
    segments = (NewSegment(base, tuple(sources), size) for base, sources, size in made.segments)
    return made._replace(segments=tuple(segments))
