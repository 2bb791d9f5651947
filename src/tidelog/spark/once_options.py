"""The options of writing exactly once, as rows, and their values.

**Invariant:** an invalid value raises `OptionError`, as in `option_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelog.spark import option_forms as forms
from tidelog.spark.option_rows import Given, Option, OptionError, Use

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# Options that are no user's.
CHECKPOINT, QUERY_ID, RUN = "checkpointLocation", "exactlyOnce.queryId", "exactlyOnce.run"

DELIVERY_GUARANTEE = Option(
    "deliveryGuarantee",
    None,
    Use.WRITE,
    forms.choice(EXACTLY_ONCE, AT_LEAST_ONCE),
    "Only in Tidelog: `exactly-once` writes in transactions, so that the rows of a micro-batch or a job are "
    "in the topics once, all or none of them; `at-least-once` writes without transactions.",
    shown_default="`exactly-once`, but `at-least-once` if `kafka.enable.idempotence` is or has to be `false`",
)
TRANSACTION_TIMEOUT_MS = Option(
    "kafka.transaction.timeout.ms",
    "900000",
    Use.WRITE,
    forms.whole(1, forms.INT_MAX),
    "The longest that a micro-batch or a job may take when it is written exactly once. Brokers allow up to "
    "their `transaction.max.timeout.ms`, by default 900000.",
)
TRANSACTIONAL_ID_PREFIX = Option(
    "transactionalIdPrefix",
    "tidelog-spark",
    Use.WRITE,
    forms.nonempty("the beginning of transactional ids"),
    "Only in Tidelog: the prefix of the sink's transactional ids and of the group of its marker, for brokers "
    "that authorize both. A query must keep it.",
)
MARKER_TOPIC = Option(
    "markerTopic",
    None,
    Use.WRITE,
    forms.nonempty("the name of a topic"),
    "Only in Tidelog: the topic for whose partitions the sink's group commits what it has written last. "
    "Nothing is written to it.",
    shown_default="`topic`, else `__consumer_offsets`",
)
RESUME_AT = Option(
    "exactlyOnce.resumeAt",
    None,
    Use.WRITE,
    forms.whole(0),
    "Only in Tidelog: the micro-batch from which a query writes on, although the sink has written it or a "
    "later one before: for a checkpoint that was restored from a backup.",
)
TORN_BATCH = Option(
    "exactlyOnce.tornBatch",
    None,
    Use.WRITE,
    forms.choice("rewrite", "skip"),
    "Only in Tidelog: what to do about a micro-batch of which only a part was committed, because the driver "
    "was away for longer than `kafka.transaction.timeout.ms` at the worst moment: `rewrite` all its rows, "
    "or `skip` the missing ones.",
    shown_default="the query stops",
)
MARKER = Option(
    "exactlyOnce.marker",
    None,
    Use.WRITE,
    forms.choice("assume-written", "assume-not-written"),
    "Only in Tidelog: what to assume about an old micro-batch when the sink's marker has expired.",
    shown_default="the query stops",
)
TXN_APP_ID = Option(
    "txnAppId",
    None,
    Use.BATCH_WRITE,
    forms.nonempty("the name of an application"),
    "Only in Tidelog: with `txnVersion`, makes a write idempotent: a version that is not above the last one "
    "of the application is skipped.",
)
TXN_VERSION = Option(
    "txnVersion",
    None,
    Use.BATCH_WRITE,
    forms.whole(0),
    "Only in Tidelog: the version of this write; each write of an application has a higher one.",
)

ONCE_ROWS: tuple[Option[Any], ...] = (
    DELIVERY_GUARANTEE,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL_ID_PREFIX,
    MARKER_TOPIC,
    RESUME_AT,
    TORN_BATCH,
    MARKER,
    TXN_APP_ID,
    TXN_VERSION,
)


@dataclass(frozen=True, slots=True)
class OnceOptions:
    """How rows are written exactly once."""

    timeout_ms: int
    id_prefix: str
    marker_topic: str | None
    resume_at: int | None
    torn_batch: str | None
    marker: str | None
    app_id: str | None
    version: int | None
    # From Spark, and from `to_topic` to the jobs that it starts
    checkpoint: str | None
    query_id: str | None
    run: str | None

    @classmethod
    def parse(cls, given: Given) -> OnceOptions:
        app_id, version = TXN_APP_ID.maybe(given), TXN_VERSION.maybe(given)
        if (app_id is None) != (version is None):
            here, missing = (TXN_APP_ID, TXN_VERSION)[:: 1 if version is None else -1]
            raise OptionError(f"{here.name}={given.text(here.name)}: expected {missing.name} with it")
        if app_id is not None and "/" in app_id:
            raise OptionError(f"{TXN_APP_ID.name}={app_id}: expected a name without /")
        return cls(
            timeout_ms=TRANSACTION_TIMEOUT_MS.value(given),
            id_prefix=TRANSACTIONAL_ID_PREFIX.value(given),
            marker_topic=MARKER_TOPIC.maybe(given),
            resume_at=RESUME_AT.maybe(given),
            torn_batch=TORN_BATCH.maybe(given),
            marker=MARKER.maybe(given),
            app_id=app_id,
            version=version,
            checkpoint=given.text(CHECKPOINT),
            query_id=given.text(QUERY_ID),
            run=given.text(RUN),
        )
