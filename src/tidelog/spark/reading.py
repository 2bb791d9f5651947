"""The work of a reading task: the records of one range of offsets, as Arrow.

Connections stay open in the worker process, which Spark uses for one task after another.

**Invariant:** all records of the range are returned, once and in order, or an error names the partition and
offset; with `failOnDataLoss` false, missing records are logged and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidelog.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from tidelog.client.errors import OffsetOutOfRange, TopicGone
from tidelog.client.reader import RangeReader, RawBatches
from tidelog.spark.losses import DataLossError, Loss, lost, records
from tidelog.spark.options import ReadOptions
from tidelog.spark.plan import is_fixed
from tidelog.spark.ranges import RangeOf
from tidelog.spark.segments import LogFolders
from tidelog.spark.survey import warn

if TYPE_CHECKING:
    import pyarrow as pa

_clusters: dict[frozenset[tuple[str, str]], Cluster] = {}  # of this process, by their properties


def cluster_of(properties: Mapping[str, str]) -> Cluster:
    """The connections of this process to a cluster."""
    key = frozenset(properties.items())
    if key not in _clusters:
        _clusters[key] = Cluster(properties)
    return _clusters[key]


def read_range(options: ReadOptions, wanted: RangeOf, *, is_late: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of the range; if `is_late`, up to the edges that the partition has by now."""
    from tidelog.spark.columns import Columns  # loads the compiled loops: only where rows are read

    try:
        wanted = _with_edges_of_now(options, wanted) if is_late else wanted
    except TopicGone as gone:
        _go_on_after(gone, options, wanted, wanted.start)
        return
    start: int | None = wanted.start if wanted.size else None
    while start is not None:
        # One object per start: a broker sends whole batches, including records deleted below that offset.
        columns = Columns(
            wanted.topic,
            wanted.partition,
            start,
            wanted.end,
            include_headers=options.include_headers,
            committed_only=options.read_committed,
        )
        try:
            for piece in _pieces(options, wanted, start):
                yield from columns.add(piece.data, piece.start, piece.end, piece.aborted, may_overwrite=True)
            start = None
        except (OffsetOutOfRange, TopicGone) as gone:
            start = _go_on_after(gone, options, wanted, columns.position)
        yield from columns.finish()


def place_of(options: ReadOptions) -> Cluster | LogFolders:
    """The source of a query: a cluster, or its folders."""
    return LogFolders(options.log_dirs) if options.log_dirs else cluster_of(options.properties)


def _with_edges_of_now(options: ReadOptions, wanted: RangeOf) -> RangeOf:
    """Spark plans a `DataFrame` once for several actions: earliest and latest are those of each."""
    place, partition = place_of(options), wanted.topic_partition
    start, end = wanted.start, wanted.end
    if not is_fixed(options.starting, partition):
        start = max(start, place.list_offsets({partition: EARLIEST})[partition].offset)
    if not is_fixed(options.ending, partition):
        found = place.list_offsets({partition: LATEST}, committed_only=options.read_committed)
        end = max(end, found[partition].offset)
    return wanted._replace(start=start, end=end)


def _pieces(options: ReadOptions, wanted: RangeOf, start: int) -> Iterable[RawBatches]:
    partition = TopicPartition(wanted.topic, wanted.partition)
    place = place_of(options)
    if isinstance(place, LogFolders):
        return place.read(partition, start, wanted.end)
    return RangeReader(
        place,
        partition,
        wanted.topic_id or bytes(16),
        start,
        wanted.end,
        committed_only=options.read_committed,
        timeout_ms=options.poll_timeout_ms,
    )


def _go_on_after(
    gone: OffsetOutOfRange | TopicGone, options: ReadOptions, wanted: RangeOf, position: int
) -> int | None:
    """The position of the next existing record of the range, or None; DataLossError if none may be
    missing."""
    resumes = wanted.end
    if isinstance(gone, OffsetOutOfRange) and position < gone.log_start_offset < wanted.end:
        resumes = gone.log_start_offset
    words = f"{gone}: {records(position, resumes - 1)} gone"
    loss = lost(Loss.AGED_OUT, wanted.topic_partition, words)
    if options.fail_on_data_loss:
        raise DataLossError([loss]) from gone
    warn(words)
    return resumes if resumes < wanted.end else None
