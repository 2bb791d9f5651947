"""Produce and Fetch: good batches, every kind of bad one, and what is read where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from struct import pack_into
from typing import Any

from tests.differential.case import Case
from tests.differential.entities import NOBODY, milliseconds, topic_id
from tests.differential.world import (
    COMPACTED,
    DAY_MS,
    ORDERS,
    SMALL,
    STAMPED,
    START_MS,
    STRICT,
    TOPICS,
    ZIPPED,
    batch,
)
from tidelog.protocol.batch import CRC_POSITION, HEADER, compute_crc, read_header

TIMEOUT = milliseconds(10_000)
SNAPPY, LZ4, ZSTD = 2, 3, 4
OWN_PARTITIONS, FIRST_APART = 12, 3  # 0 for batches, 1 for sequences, 2 for what is sent twice


def altered(records: bytearray, *, keep_crc: bool = False, **fields: int) -> bytearray:
    """The batch with other fields in its header, and the checksum that goes with them."""
    header = read_header(records)._replace(**fields)
    changed = bytearray(HEADER.pack(*header) + records[HEADER.size :])
    if not keep_crc and "crc" not in fields:
        pack_into(">I", changed, CRC_POSITION, compute_crc(memoryview(changed), 0, len(changed)))
    return changed


@dataclass(frozen=True)
class Send:
    """A batch for a partition of one of the world's topics, or of a topic of the case's own."""

    records: bytes | bytearray | None
    topic: str = ""
    index: int = 0
    acks: int = -1
    apart: bool = False  # only one of the two takes it: a partition that nothing else is sent to


def produce(case: Case) -> None:
    own = case.pair.create_topic(case.fresh("produce"), OWN_PARTITIONS)
    apart = count(FIRST_APART)
    for scenario, send in {**_good(), **_bad_headers(), **_bad_bytes(), **_bad_places()}.items():
        _produce(case, scenario, own, replace(send, index=next(apart)) if send.apart else send)
    _sequences(case, own)
    _many(case, own)
    case.pair.delete_topic(own)
    careful = case.pair.create_topic(case.fresh("careful"), min_insync_replicas="2")
    _produce(case, "more replicas needed than there are", careful, Send(batch(1)))
    case.pair.delete_topic(careful)
    case.ask("nothing", acks=-1, timeout=TIMEOUT, topic_data=())
    case.ask("a transactional id", transactional_id="t", acks=-1, timeout=TIMEOUT, topic_data=())
    case.ask("an empty transactional id", transactional_id="", acks=-1, timeout=TIMEOUT, topic_data=())


def _produce(case: Case, scenario: str, own: str, *sends: Send) -> None:
    data = tuple(
        case.make(
            "TopicProduceData",
            name=send.topic or own,
            topic_id=_id(send.topic or own),
            partition_data=(_row(case, send),),
        )
        for send in sends
    )
    case.ask(scenario, acks=sends[0].acks, timeout=TIMEOUT, topic_data=data)


def _id(topic: str) -> Any:
    known = topic in TOPICS or "-0-" in topic or topic == ""
    return topic_id(topic) if known else NOBODY


def _row(case: Case, send: Send) -> Any:
    records = None if send.records is None else bytes(send.records)
    return case.make("PartitionProduceData", index=send.index, records=records)


def _good() -> dict[str, Send]:
    codecs = {f"codec {codec}": Send(batch(2, codec=codec)) for codec in (0, 1, SNAPPY, LZ4, ZSTD)}
    return codecs | {
        "acks=1": Send(batch(1), acks=1),
        "no key": Send(batch(1, key=None)),
        "no value": Send(batch(1, value=None)),
        "without timestamps": Send(batch(1, timestamp=-1)),
        "LogAppendTime": Send(batch(2), STAMPED),
        "a codec of the topic's own": Send(batch(2), ZIPPED),
        "a codec that is the topic's": Send(batch(2, codec=1), ZIPPED),
        "compacted": Send(batch(2), COMPACTED),
        "just small enough": Send(batch(1, value=b"v" * 400), SMALL),
        "another leader epoch": Send(altered(batch(1), leader_epoch=5)),
    }


def _bad_headers() -> dict[str, Send]:
    two = batch(2)
    return {
        "a wrong checksum": Send(altered(two, crc=1)),
        "a wrong checksum, compacted": Send(altered(two, crc=1), COMPACTED),
        "magic 0": Send(altered(two, magic=0)),
        "magic 1": Send(altered(two, magic=1)),
        "magic 3": Send(altered(two, magic=3)),
        "magic -1": Send(altered(two, magic=-1)),
        "base offset 5": Send(altered(two, base_offset=5)),
        "base offset -1": Send(altered(two, base_offset=-1)),
        "three records announced": Send(altered(two, record_count=3)),
        "one record announced": Send(altered(two, record_count=1)),
        "three with their delta": Send(altered(two, record_count=3, last_offset_delta=2), apart=True),
        "one with its delta": Send(altered(two, record_count=1, last_offset_delta=0), apart=True),
        "no record announced": Send(altered(two, record_count=0)),
        "-1 records announced": Send(altered(two, record_count=-1)),
        "no record and delta -1": Send(altered(two, record_count=0, last_offset_delta=-1)),
        "a delta too large": Send(altered(two, last_offset_delta=9)),
        "a negative delta": Send(altered(two, last_offset_delta=-1)),
        "control": Send(altered(two, attributes=0x20)),
        "transactional": Send(altered(two, attributes=0x10)),
        "transactional with a producer": Send(
            altered(two, attributes=0x10, producer_id=77, producer_epoch=0, base_sequence=0)
        ),
        "append time set": Send(altered(two, attributes=0x08), apart=True),
        "append time set, LogAppendTime": Send(altered(two, attributes=0x08), STAMPED),
        "delete horizon": Send(altered(two, attributes=0x40), apart=True),
        "unknown attribute": Send(altered(two, attributes=0x80), apart=True),
        "codec 5": Send(altered(two, attributes=5)),
        "codec 7": Send(altered(two, attributes=7)),
        "gzip announced, plain": Send(altered(two, attributes=1), apart=True),
        "gzip announced, plain, compacted": Send(altered(two, attributes=1), COMPACTED),
        "gzip announced, plain, recompressed": Send(altered(two, attributes=4), ZIPPED),
        "a producer without epoch": Send(altered(two, producer_id=5)),
        "a producer without sequence": Send(altered(two, producer_id=5, producer_epoch=0)),
        "an epoch without producer": Send(altered(two, producer_epoch=0)),
        "a sequence without producer": Send(altered(two, base_sequence=0)),
        "the producer -2": Send(altered(two, producer_id=-2, producer_epoch=0, base_sequence=0)),
        "a max timestamp below the base": Send(altered(two, max_timestamp=START_MS - 5)),
        "a base timestamp below 0": Send(altered(two, base_timestamp=-5)),
    }


def _bad_bytes() -> dict[str, Send]:
    two = batch(2)
    length = read_header(two).length
    return {
        "empty": Send(b""),
        "one byte": Send(b"\0"),
        "garbage": Send(b"\xff" * 80),
        "zeros": Send(bytes(80)),
        "cut in the header": Send(two[:40]),
        "cut in the records": Send(two[:-3]),
        "one byte too many": Send(two + b"\0", apart=True),
        "length too small": Send(altered(two, length=length - 1)),
        "length too large": Send(altered(two, length=length + 1)),
        "length 0": Send(altered(two, length=0)),
        "length -1": Send(altered(two, length=-1)),
        "two batches": Send(two + two),
        "too large": Send(batch(1, value=b"v" * 600), SMALL),
        "too large once": Send(batch(10, value=b"v" * 60), SMALL),
        "too large with a wrong checksum": Send(altered(batch(1, value=b"v" * 600), crc=1), SMALL),
        "no key, compacted": Send(batch(3, key=None), COMPACTED),
        "no key, compacted, zipped": Send(batch(3, key=None, codec=1), COMPACTED),
        "tombstone": Send(batch(1, value=None), COMPACTED),
        "too old": Send(batch(2, timestamp=START_MS - DAY_MS), STRICT),
        "too new": Send(batch(2, timestamp=START_MS + DAY_MS), STRICT),
        "too new by default": Send(batch(2, timestamp=START_MS + DAY_MS)),
        "very old by default": Send(batch(2, timestamp=1)),
        "too old, LogAppendTime": Send(batch(2, timestamp=1), STAMPED),
        "no timestamp, strict": Send(batch(1, timestamp=-1), STRICT),
    }


def _bad_places() -> dict[str, Send]:
    return {
        "no such partition": Send(batch(1), index=99),
        "a negative partition": Send(batch(1), index=-1),
        "no such topic": Send(batch(1), "absent"),
        "no such topic, bad batch": Send(b"x", "absent"),
        "a bad name": Send(batch(1), "a b"),
        "acks=2": Send(batch(1), acks=2),
        "acks=-2": Send(batch(1), acks=-2),
        "acks=2, no such topic": Send(batch(1), "absent", acks=2),
        "acks=2, no batch": Send(b"", acks=2),
        "internal": Send(batch(1), "__transaction_state"),
    }


def _sequences(case: Case, own: str) -> None:
    def one(sequence: int, epoch: int = 0, count: int = 1, producer_id: int = 40) -> Send:
        sent = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return Send(sent, index=1)

    for scenario, send in (
        ("the first sequence", one(0, count=2)),
        ("the next sequence", one(2)),
        ("a duplicate", one(2)),
        ("an old duplicate", one(0, count=2)),
        ("half a duplicate", one(1)),
        ("a gap", one(5)),
        ("a new epoch that does not begin at 0", one(3, 1)),
        ("a new epoch", one(0, 1)),
        ("an old epoch", one(3, 0)),
        ("an unknown producer in the middle", one(17, producer_id=41)),
        ("an unknown producer in a later epoch", one(0, 5, producer_id=42)),
        ("the last sequence", one(2**31 - 1, producer_id=43)),
        ("after the last sequence", one(0, producer_id=43)),
    ):
        _produce(case, scenario, own, send)


def _many(case: Case, own: str) -> None:
    _produce(case, "one good, one bad", own, Send(batch(1)), Send(altered(batch(1), crc=1), ORDERS, 9))
    _produce(case, "a topic twice", own, Send(batch(1)), Send(batch(1), index=1))
    _produce(case, "a partition in two topics", own, Send(batch(1), index=2), Send(batch(1), index=2))
    rows = tuple(_row(case, Send(batch(1), index=index)) for index in (2, 2))
    twice = case.make("TopicProduceData", name=own, topic_id=topic_id(own), partition_data=rows)
    case.ask("a partition twice", acks=-1, timeout=TIMEOUT, topic_data=(twice,))
    empty = case.make("TopicProduceData", name=own, topic_id=topic_id(own), partition_data=())
    case.ask("no partitions", acks=-1, timeout=TIMEOUT, topic_data=(empty,))


def fetch(case: Case) -> None:
    for offset in (0, 1, 3, 5, 6, 7, -1, -2, 2**63 - 1):
        _fetch(case, f"from {offset}", (0, offset))
    for level in (0, 1, 2, -1):
        _fetch(case, f"isolation {level}", (0, 0), isolation_level=level)
        _fetch(case, f"isolation {level}, nothing there", (2, 0), isolation_level=level)
    if case.version >= 9:
        for epoch in (-1, 0, 1, -2, 2**31 - 1):
            _fetch(case, f"leader epoch {epoch}", (0, 0), epoch=epoch)
            _fetch(case, f"leader epoch {epoch}, out of range", (0, 99), epoch=epoch)
    if case.version >= 12:
        for last_epoch in (-1, 0, 1, 5):
            _fetch(case, f"last fetched epoch {last_epoch}", (0, 3), last_fetched_epoch=last_epoch)
    for size in (0, 1, 80, 81, 150, 2**31 - 1, -1):
        _fetch(case, f"at most {size} bytes", (0, 0), (1, 0), max_bytes=size)
        _fetch(case, f"at most {size} bytes a partition", (0, 0), (1, 0), partition_max_bytes=size)
    for log_start in (0, 3, 99):
        _fetch(case, f"log start offset {log_start}", (0, 0), log_start_offset=log_start)
    _fetch(case, "no such partition", (9, 0))
    _fetch(case, "a negative partition", (-1, 0))
    _fetch(case, "one there, one not", (0, 0), (9, 0))
    _fetch(case, "no such topic", (0, 0), topic="absent")
    _fetch(case, "a bad name", (0, 0), topic="a b")
    _fetch(case, "the same twice", (0, 0), (0, 3))
    _fetch(case, "no partitions")
    _fetch(case, "a short wait for nothing", (2, 0), max_wait_ms=5)
    _fetch(case, "a negative wait", (2, 0), max_wait_ms=-1)
    _fetch(case, "min bytes 0", (2, 0), max_wait_ms=5_000, min_bytes=0)
    _fetch(case, "min bytes -1", (2, 0), max_wait_ms=5_000, min_bytes=-1)
    case.ask("nothing", **_fetch_values(case))
    for replica_id in (0, 1, 7, -2, -3):
        if replica_id < 0 and case.version < 15:
            _fetch(case, f"as replica {replica_id}", (0, 0), replica_id=replica_id)
    if case.version >= 7:
        _sessions(case)


def _fetch(case: Case, scenario: str, *asked: tuple[int, int], topic: str = ORDERS, **options: Any) -> None:
    case.ask(scenario, **_fetch_values(case, *asked, topic=topic, **options))


def _fetch_values(
    case: Case,
    *asked: tuple[int, int],
    topic: str = "",
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    log_start_offset: int = -1,
    partition_max_bytes: int = 2**20,
    max_bytes: int = 2**20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    replica_id: int = -1,
    forgotten: tuple[int, ...] = (),
) -> dict[str, Any]:
    rows = tuple(
        case.make(
            "FetchPartition",
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=log_start_offset,
            partition_max_bytes=partition_max_bytes,
        )
        for index, offset in asked
    )
    topics = (case.make("FetchTopic", topic=topic, topic_id=_id(topic), partitions=rows),) if topic else ()
    values: dict[str, Any] = {
        "replica_id": replica_id,
        "max_wait": milliseconds(max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": topics,
        "rack_id": "",
    }
    if case.version >= 7:
        forgets = case.make("ForgottenTopic", topic=ORDERS, topic_id=topic_id(ORDERS), partitions=forgotten)
        values["forgotten_topics_data"] = (forgets,) if forgotten else ()
    return values


SESSION_ID = 0x5E551000


def _sessions(case: Case) -> None:
    for session_id, epoch in ((1, 1), (1, -1), (0, 1), (1, -2), (0, -2), (2**30, 5)):
        _fetch(
            case, f"session {session_id}, epoch {epoch}", (0, 0), session_id=session_id, session_epoch=epoch
        )
    session_id = SESSION_ID + case.version
    opened = case.ask("a new session", **_fetch_values(case, (0, 6), (1, 1), topic=ORDERS, session_epoch=0))
    case.pair.know_session(session_id, *(answer.session_id for answer in opened))
    within: dict[str, Any] = {"session_id": session_id}
    case.ask("no news", **_fetch_values(case, session_epoch=1, **within))
    case.ask("another offset", **_fetch_values(case, (0, 0), topic=ORDERS, session_epoch=2, **within))
    case.ask("the same again", **_fetch_values(case, session_epoch=3, **within))
    case.ask("a wrong epoch", **_fetch_values(case, session_epoch=9, **within))
    case.ask("one forgotten", **_fetch_values(case, session_epoch=4, forgotten=(0,), **within))
    case.ask("an unknown one more", **_fetch_values(case, (9, 0), topic=ORDERS, session_epoch=5, **within))
    case.ask("the unknown one again", **_fetch_values(case, session_epoch=6, **within))
    case.ask("an absent topic more", **_fetch_values(case, (0, 0), topic="absent", session_epoch=7, **within))
    case.ask("closed", **_fetch_values(case, (0, 0), topic=ORDERS, session_epoch=-1, **within))
    case.ask("after it was closed", **_fetch_values(case, session_epoch=8, **within))
