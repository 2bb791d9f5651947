"""Why the sink stops a query, with the remedy.

**Invariant:** a message names the batch, says what of it is visible, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum

SHOWN_MAX = 10  # tasks that a message names


class Stop(Enum):
    OLD = "old"
    OTHER = "other"
    FENCED = "fenced"
    LOST = "lost"
    TORN = "torn"
    GONE = "gone"
    TOO_MANY = "too many tasks"
    UNREADABLE = "unreadable marker"
    REFUSED = "refused"


class SinkStopped(Exception):
    """The sink does not write a batch, because rows could be missing or doubled."""

    def __init__(self, stop: Stop, words: str) -> None:
        super().__init__(stop, words)
        self.stop = stop

    def __str__(self) -> str:
        return str(self.args[1])


def old(batch: int, last: int, checkpoint: str | None) -> SinkStopped:
    return SinkStopped(
        Stop.OLD,
        f"batch {batch}: this sink has already written batch {last}. The checkpoint "
        f"{checkpoint or ''} is older than the written rows: it was restored from a backup, or "
        "another run of the query goes on. Rows would be missing or doubled. Stop the other run, "
        f"start with a new checkpoint, or set exactlyOnce.resumeAt={batch} to write from this "
        "batch on.",
    )


def other(batch: int, query: str, is_readable: bool) -> SinkStopped:
    remedy = (
        "was the checkpoint copied? Each copy needs an id of its own: start it with a new "
        f"checkpoint, or set exactlyOnce.resumeAt={batch} to write this batch again"
        if is_readable
        else "the rows differ, and the checkpoint cannot be read to find out more. Set "
        "exactlyOnce.marker=assume-written if this is a repetition of that batch"
    )
    return SinkStopped(
        Stop.OTHER,
        f"batch {batch}: it was written before from other offsets, or by another query with the "
        f"same id {query}; {remedy}.",
    )


def fenced(batch: int, query: str, problem: str) -> SinkStopped:
    return SinkStopped(
        Stop.FENCED,
        f"batch {batch}: another run of query {query} writes to this sink ({problem}). This run "
        "wrote nothing of the batch. Stop one of the two runs.",
    )


def lost(batch: int, transactional_id: str, state: str, seconds: float, timeout_ms: int) -> SinkStopped:
    return SinkStopped(
        Stop.LOST,
        f"batch {batch}: transaction {transactional_id} {state} before the batch was complete: the "
        f"batch took {seconds:.0f} s, kafka.transaction.timeout.ms is {timeout_ms}. None of its "
        "rows is visible. Make batches smaller with maxOffsetsPerTrigger, or raise "
        "kafka.transaction.timeout.ms, and transaction.max.timeout.ms of the brokers.",
    )


def torn(batch: int, tasks: Sequence[int], count: int) -> SinkStopped:
    if len(tasks) == count:
        return SinkStopped(
            Stop.TORN,
            f"batch {batch}: it was decided, but all of its transactions timed out before they "
            "were committed. None of its rows is visible. Restart the query: the batch will be "
            "written again.",
        )
    shown = ", ".join(map(str, tasks[:SHOWN_MAX])) + (", …" if len(tasks) > SHOWN_MAX else "")
    return SinkStopped(
        Stop.TORN,
        f"batch {batch}: it was decided, but {len(tasks)} of {count} transactions timed out before "
        f"they were committed: the rows of tasks {shown} are missing, the others are visible. "
        "Restart the query: if the batch is computed as before, the missing rows are added. If "
        "not, exactlyOnce.tornBatch=rewrite writes all rows of the batch again, some of them "
        "twice, and exactlyOnce.tornBatch=skip leaves the missing rows out.",
    )


def half_written(tasks: Sequence[int], count: int) -> SinkStopped:
    shown = ", ".join(map(str, tasks[:SHOWN_MAX])) + (", …" if len(tasks) > SHOWN_MAX else "")
    return SinkStopped(
        Stop.TORN,
        f"{len(tasks)} of {count} transactions timed out while they were committed: the rows of "
        f"tasks {shown} are missing, the others are visible. With txnAppId and txnVersion such a "
        "write can be repeated.",
    )


def expired(batch: int) -> SinkStopped:
    return SinkStopped(
        Stop.GONE,
        f"batch {batch}: it was decided, and whether its transactions were committed is no longer "
        "known, because their ids have expired (transactional.id.expiration.ms). Set "
        "exactlyOnce.marker=assume-written or exactlyOnce.marker=assume-not-written.",
    )


def gone(batch: int, planned_ms: int | None, sink_id: str) -> SinkStopped:
    began = (
        "at an unknown time"
        if planned_ms is None
        else f"on {datetime.fromtimestamp(planned_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
    )
    return SinkStopped(
        Stop.GONE,
        f"batch {batch}: it began {began}, and whether it was written is no longer known: the "
        f"offsets of group {sink_id} have expired (offsets.retention.minutes) or their topic was "
        "deleted. Set exactlyOnce.marker=assume-written or exactlyOnce.marker=assume-not-written.",
    )


def too_many_tasks(batch: int, tasks: int, parts: int, topic: str, partitions: int) -> SinkStopped:
    return SinkStopped(
        Stop.TOO_MANY,
        f"batch {batch}: the list of its {tasks} transactions needs {parts} partitions of topic "
        f"{topic}, which has {partitions}. None of its rows is visible. Use fewer tasks "
        "(coalesce), or name a topic with more partitions in markerTopic.",
    )


def unreadable_marker(sink_id: str) -> SinkStopped:
    return SinkStopped(
        Stop.UNREADABLE,
        f"group {sink_id}: its committed offsets are not those of a sink; delete the group if "
        "nothing else uses it, or set another transactionalIdPrefix.",
    )


def marker_too_large(topic: str) -> SinkStopped:
    return SinkStopped(
        Stop.REFUSED,
        f"topic {topic}: the brokers do not store the list of transactions; raise "
        "offset.metadata.max.bytes to 4096.",
    )


def timeout_too_long(timeout_ms: int) -> SinkStopped:
    return SinkStopped(
        Stop.REFUSED,
        f"kafka.transaction.timeout.ms={timeout_ms}: the brokers allow less; lower it, or raise "
        "transaction.max.timeout.ms of the brokers.",
    )


def not_authorized(sink_id: str) -> SinkStopped:
    return SinkStopped(
        Stop.REFUSED,
        f"transactional id {sink_id}: not authorized; allow WRITE and DESCRIBE on transactional "
        "ids and READ on groups that begin with transactionalIdPrefix, and READ on the marker's "
        "topic.",
    )
