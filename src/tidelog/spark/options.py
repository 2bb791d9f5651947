"""The options of one query, checked and typed: `ReadOptions` for the source, `WriteOptions` for the sink.

Names are not case-sensitive, as in Spark. Properties that begin with `kafka.` go to the client under Kafka's
names. Unknown names are accepted, because Spark adds its own; known names without effect for this kind of
query are in `ignored`, for a warning.

**Invariant:** nothing here knows Spark, a broker or a clock. An invalid option raises `OptionError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.client.errors import TopicPartition
from tidelog.spark import once_options as once
from tidelog.spark import option_rows as rows
from tidelog.spark.once_options import OnceOptions
from tidelog.spark.option_forms import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Limit,
    Selection,
)
from tidelog.spark.option_rows import KAFKA_PREFIX, Given, Option, OptionError, Use
from tidelog.spark.positions import Split

STREAM_GROUP_PREFIX = "spark-kafka-source"
BATCH_GROUP_PREFIX = "spark-kafka-relation"
IN_FLIGHT_OF_IDEMPOTENCE_MAX = 5  # so many batches a broker can tell from duplicates
ALL_REPLICAS = -1  # acks

__all__ = ["OptionError", "ReadOptions", "WriteOptions", "option_table"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    streaming: bool
    selection: Selection
    starting: Limit
    ending: Limit  # of a batch
    strategy: str  # for a partition without a record of the starting timestamp: error or latest
    fail_on_data_loss: bool
    poll_timeout_ms: int
    fetch_offset_num_retries: int
    fetch_offset_retry_interval_ms: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    split: Split
    group_id_prefix: str
    group_id: str | None
    include_headers: bool
    read_committed: bool
    log_dirs: tuple[str, ...]
    commits: bool  # whether progress is committed to a group
    commit_group: str | None  # None: generated from `group_id_prefix` and the query
    push_filters: bool
    properties: Mapping[str, str]  # for the client, by Kafka's names
    ignored: tuple[str, ...]

    @classmethod
    def parse(cls, raw: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        given = Given(raw, Use.STREAM_READ if streaming else Use.BATCH_READ)
        _refuse_forbidden(given, rows.FORBIDDEN_TO_READ)
        log_dirs = rows.LOG_DIRS.maybe(given) or ()
        if not log_dirs:
            _require_brokers(given)
        group_id, committed = rows.GROUP_ID.maybe(given), rows.COMMIT_GROUP.maybe(given)
        starting, ending = _limits(given, streaming)
        return cls(
            streaming=streaming,
            selection=_selection(given),
            starting=starting,
            ending=ending,
            strategy=rows.STARTING_STRATEGY.value(given),
            fail_on_data_loss=rows.FAIL_ON_DATA_LOSS.value(given),
            poll_timeout_ms=rows.POLL_TIMEOUT_MS.value(given),
            fetch_offset_num_retries=rows.FETCH_OFFSET_NUM_RETRIES.value(given),
            fetch_offset_retry_interval_ms=rows.FETCH_OFFSET_RETRY_INTERVAL_MS.value(given),
            max_offsets_per_trigger=rows.MAX_OFFSETS_PER_TRIGGER.maybe(given),
            min_offsets_per_trigger=_min_offsets(given),
            max_trigger_delay_ms=rows.MAX_TRIGGER_DELAY.value(given),
            split=Split(rows.MIN_PARTITIONS.maybe(given), rows.MAX_RECORDS_PER_PARTITION.maybe(given)),
            group_id_prefix=rows.GROUP_ID_PREFIX.maybe(given) or _group_prefix(streaming),
            group_id=group_id,
            include_headers=rows.INCLUDE_HEADERS.value(given),
            read_committed=rows.ISOLATION_LEVEL.value(given) == "read_committed",
            log_dirs=log_dirs,
            commits=streaming and committed != "",
            commit_group=(committed or group_id) if streaming and committed != "" else None,
            push_filters=rows.PUSH_FILTERS.value(given),
            properties=given.properties(),
            ignored=given.ignored(rows.READ_ROWS),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    streaming: bool
    topic: str | None
    include_headers: bool
    acks: int
    compression_type: str
    batch_size: int
    linger_ms: int
    enable_idempotence: bool
    max_in_flight: int
    retries: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_request_size: int
    guarantee: str
    once: OnceOptions
    properties: Mapping[str, str]
    ignored: tuple[str, ...]

    @property
    def is_exactly_once(self) -> bool:
        return self.guarantee == once.EXACTLY_ONCE

    @classmethod
    def parse(cls, raw: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        given = Given(raw, Use.STREAM_WRITE if streaming else Use.BATCH_WRITE)
        _refuse_forbidden(given, rows.FORBIDDEN_TO_WRITE)
        _require_brokers(given)
        return cls(
            streaming=streaming,
            topic=rows.TOPIC.maybe(given),
            include_headers=rows.WRITTEN_HEADERS.value(given),
            acks=rows.ACKS.value(given),
            compression_type=rows.COMPRESSION_TYPE.value(given),
            batch_size=rows.BATCH_SIZE.value(given),
            linger_ms=rows.LINGER_MS.value(given),
            enable_idempotence=_idempotence(given),
            max_in_flight=rows.MAX_IN_FLIGHT.value(given),
            retries=rows.RETRIES.value(given),
            delivery_timeout_ms=_delivery_timeout_ms(given),
            request_timeout_ms=rows.REQUEST_TIMEOUT_MS.value(given),
            max_request_size=rows.MAX_REQUEST_SIZE.value(given),
            guarantee=_guarantee(given),
            once=OnceOptions.parse(given),
            properties=given.properties(),
            ignored=given.ignored((*rows.WRITE_ROWS, *once.ONCE_ROWS)),
        )


def option_table(options: Iterable[Option[Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| option | default | for | meaning |", "|---|---|---|---|"]
    for row in options:
        default = row.shown_default or ("" if row.default is None else f"`{row.default}`")
        words = [f"`{row.name}`", default, _shown_use(row.uses), row.meaning]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def _shown_use(uses: Use) -> str:
    kinds = {"batch": Use.BATCH_READ | Use.BATCH_WRITE, "streaming": Use.STREAM_READ | Use.STREAM_WRITE}
    return ", ".join(name for name, kind in kinds.items() if uses & kind)


def _refuse_forbidden(given: Given, forbidden: Mapping[str, str]) -> None:
    for name, instead in forbidden.items():
        text = given.text(KAFKA_PREFIX + name)
        if text is not None:
            raise OptionError(f"{KAFKA_PREFIX}{name}={text}: not allowed; {instead}")


def _require_brokers(given: Given) -> None:
    if rows.BOOTSTRAP_SERVERS.maybe(given) is None:
        raise OptionError(f"{rows.BOOTSTRAP_SERVERS.name} is missing; name at least one broker as host:port")


def _selection(given: Given) -> Selection:
    names = ", ".join(row.name for row in rows.SELECTIONS)
    present = [row for row in rows.SELECTIONS if given.text(row.name) is not None]
    if not present:
        raise OptionError(f"one of {names} is missing; name the topics to read")
    if len(present) > 1:
        both = " and ".join(f"{row.name}={given.text(row.name)}" for row in present)
        raise OptionError(f"{both}: expected only one of {names}")
    selection: Selection = present[0].value(given)
    return selection


def _limits(given: Given, streaming: bool) -> tuple[Limit, Limit]:
    if streaming:
        for row in (rows.ENDING_OFFSETS, rows.ENDING_OFFSETS_BY_TIMESTAMP):
            if (text := given.text(row.name)) is not None:
                raise OptionError(
                    f"{row.name}={text}: not allowed; a stream has no end, read a batch instead"
                )
    by_time = (rows.STARTING_TIMESTAMP, rows.STARTING_OFFSETS_BY_TIMESTAMP)
    start = _limit(given, *by_time, rows.STARTING_OFFSETS) or (Edge.LATEST if streaming else Edge.EARLIEST)
    by_time = (rows.ENDING_TIMESTAMP, rows.ENDING_OFFSETS_BY_TIMESTAMP)
    end = _limit(given, *by_time, rows.ENDING_OFFSETS) or Edge.LATEST
    if not streaming:
        _refuse_edge(given, rows.STARTING_OFFSETS, start, Edge.LATEST, LATEST_OFFSET)
        _refuse_edge(given, rows.ENDING_OFFSETS, end, Edge.EARLIEST, EARLIEST_OFFSET)
        _check_order(start, end)
    return start, end


def _limit(
    given: Given, at: Option[int], at_each: Option[AtTimestamps], offsets: Option[Edge | AtOffsets]
) -> Limit | None:
    """The limit, in the connector's order of precedence: overridden options are not read."""
    timestamp_ms = at.maybe(given)
    if timestamp_ms is not None:
        return AtTimestamp(timestamp_ms)
    return at_each.maybe(given) or offsets.maybe(given)


def _refuse_edge(given: Given, row: Option[Any], limit: Limit, edge: Edge, stand_in: int) -> None:
    named = [str(partition) for partition, n in _offsets_of(limit).items() if n == stand_in]
    if limit is edge or named:
        where = f"the {edge.value} offset" + (f" ({stand_in}) of {', '.join(named)}" if named else "")
        verb, other = ("start", "earliest") if edge is Edge.LATEST else ("end", "latest")
        raise OptionError(
            f"{row.name}={given.text(row.name)}: a batch cannot {verb} at {where}; "
            f"expected {other}, or an offset for each partition"
        )


def _offsets_of(limit: Limit) -> Mapping[TopicPartition, int]:
    return limit.offsets if isinstance(limit, AtOffsets) else {}


def _check_order(start: Limit, end: Limit) -> None:
    """Check, without a broker, that two lists of partitions match."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_pair("startingOffsets", start.offsets, "endingOffsets", end.offsets)
    if isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        names = "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
        _check_pair(names[0], start.timestamps_ms, names[1], end.timestamps_ms)


def _check_pair(
    starting: str,
    starts: Mapping[TopicPartition, int],
    ending: str,
    ends: Mapping[TopicPartition, int],
) -> None:
    only_one = sorted(starts.keys() ^ ends.keys())
    if only_one:
        named = ", ".join(map(str, only_one))
        raise OptionError(
            f"{starting} and {ending}: expected the same partitions in both, but not so {named}"
        )
    for partition, start in starts.items():
        end = ends[partition]
        if 0 <= end < start:
            raise OptionError(f"{starting}={start} of {partition}: expected no more than {ending}, {end}")


def _min_offsets(given: Given) -> int | None:
    """The minimum; contradicting limits are refused by batches too, although batches use neither."""
    bounds = rows.MIN_OFFSETS_PER_TRIGGER, rows.MAX_OFFSETS_PER_TRIGGER
    texts = [given.text(row.name) for row in bounds]
    if None not in texts:
        least, most = (row.read(str(text)) for row, text in zip(bounds, texts, strict=True))
        if least > most:
            raise OptionError(f"{bounds[0].name}={least}: expected no more than {bounds[1].name}, {most}")
    return rows.MIN_OFFSETS_PER_TRIGGER.maybe(given)


def _group_prefix(streaming: bool) -> str:
    return STREAM_GROUP_PREFIX if streaming else BATCH_GROUP_PREFIX


def _idempotence(given: Given) -> bool:
    """Enabled where possible, as in a Java producer; an error only if it was requested and is impossible."""
    wanted = rows.ENABLE_IDEMPOTENCE.maybe(given)
    needs = {
        f"{rows.ACKS.name}=all": rows.ACKS.value(given) == ALL_REPLICAS,
        f"{rows.MAX_IN_FLIGHT.name} of at most {IN_FLIGHT_OF_IDEMPOTENCE_MAX}": (
            rows.MAX_IN_FLIGHT.value(given) <= IN_FLIGHT_OF_IDEMPOTENCE_MAX
        ),
        f"{rows.RETRIES.name} above 0": rows.RETRIES.value(given) > 0,
    }
    lacking = [need for need, is_met in needs.items() if not is_met]
    if wanted and lacking:
        raise OptionError(f"{rows.ENABLE_IDEMPOTENCE.name}=true: expected {' and '.join(lacking)} with it")
    return not lacking if wanted is None else wanted


def _guarantee(given: Given) -> str:
    """Exactly once where possible; an error only if it was requested and is impossible."""
    wanted, is_possible = once.DELIVERY_GUARANTEE.maybe(given), _idempotence(given)
    if wanted == once.EXACTLY_ONCE and not is_possible:
        raise OptionError(
            f"{once.DELIVERY_GUARANTEE.name}={wanted}: expected {rows.ENABLE_IDEMPOTENCE.name}=true with it, "
            f"and what that needs: {rows.ACKS.name}=all, {rows.RETRIES.name} above 0 and "
            f"{rows.MAX_IN_FLIGHT.name} of at most {IN_FLIGHT_OF_IDEMPOTENCE_MAX}"
        )
    return wanted or (once.EXACTLY_ONCE if is_possible else once.AT_LEAST_ONCE)


def _delivery_timeout_ms(given: Given) -> int:
    timeout_ms = rows.DELIVERY_TIMEOUT_MS.value(given)
    least = rows.LINGER_MS.value(given) + rows.REQUEST_TIMEOUT_MS.value(given)
    if timeout_ms < least and given.text(rows.DELIVERY_TIMEOUT_MS.name) is not None:
        raise OptionError(
            f"{rows.DELIVERY_TIMEOUT_MS.name}={timeout_ms}: expected at least {least}, which is "
            f"{rows.LINGER_MS.name} and {rows.REQUEST_TIMEOUT_MS.name} together"
        )
    return max(timeout_ms, least)
