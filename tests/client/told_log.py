"""A partition that a scripted broker serves: batches with gaps between them, cut off as brokers cut."""

from __future__ import annotations

from collections.abc import Callable

from tests.client.scripted import TOPIC, Asked
from tidelog.client.cluster import EARLIEST
from tidelog.protocol.batch import read_header
from tidelog.protocol.fetch import FetchedPartition, FetchRequest, decode_fetch, encode_fetch
from tidelog.protocol.records import build_batch

_TOPIC_IDS = 13


class ToldLog:
    def __init__(self, batches: list[bytearray], log_end: int | None = None) -> None:
        self.batches = batches
        self.high_watermark = log_end if log_end is not None else end_of(batches)
        self.last_stable_offset = self.high_watermark
        self.aborted: list[tuple[int, int]] | None = None
        self.requests: list[FetchRequest] = []

    def fetch(self, asked: Asked) -> bytes:
        request = decode_fetch(asked.data, asked.position, asked.version)
        self.requests.append(request)
        wanted = request.topics[0][1][0]
        row = FetchedPartition(
            wanted.index,
            0,
            self.high_watermark,
            self.last_stable_offset,
            0,
            self.aborted,
            records=self.read(wanted.fetch_offset, wanted.max_bytes, bool(request.isolation_level)),
        )
        return tell(asked, row)

    def read(self, offset: int, size_max: int, committed_only: bool) -> bytes:
        """The first batch whole, of the others as many bytes as fit."""
        log_end = self.last_stable_offset if committed_only else self.high_watermark
        headers = [(read_header(batch), batch) for batch in self.batches]
        found = [
            bytes(batch)
            for header, batch in headers
            if header.last_offset >= offset and header.last_offset < log_end
        ]
        return b"".join(found)[: max(size_max, len(found[0]))] if found else b""


def ends_at(end: Callable[[], int]) -> Callable[[Asked], bytes]:
    """Answers ListOffsets: each partition has the offsets 0 to `end()`."""

    def answer(asked: Asked) -> bytes:
        topics = tuple(
            asked.make(
                "ListOffsetsTopicResponse",
                name=topic.name,
                partitions=tuple(
                    asked.make(
                        "ListOffsetsPartitionResponse",
                        partition_index=row.partition_index,
                        error_code=0,
                        timestamp=-1,
                        offset=0 if row.timestamp == EARLIEST else end(),
                        leader_epoch=0,
                    )
                    for row in topic.partitions
                ),
            )
            for topic in asked.decode().topics
        )
        return asked.respond(topics=topics)

    return answer


def tell(asked: Asked, row: FetchedPartition, throttle_ms: int = 0) -> bytes:
    """A Fetch answer with that partition."""
    topic = decode_fetch(asked.data, asked.position, asked.version).topics[0][0]
    assert isinstance(topic, bytes) == (asked.version >= _TOPIC_IDS) and topic in (TOPIC, topic)
    pieces = encode_fetch(asked.version, asked.correlation, throttle_ms, 0, 0, [(topic, [row])])
    return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray))


def make_log(shape: list[tuple[int, int, int]]) -> list[bytearray]:
    """Batches by (offsets left out before it, records, size of a value)."""
    batches: list[bytearray] = []
    offset = 0
    for gap, count, size in shape:
        offset += gap
        records = [(None, b"%d" % (offset + n) + b"." * size, (), 1_000) for n in range(count)]
        batches.append(build_batch(records, base_offset=offset))
        offset += count
    return batches


def end_of(batches: list[bytearray]) -> int:
    return read_header(batches[-1]).last_offset + 1 if batches else 0
