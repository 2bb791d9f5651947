"""Records that a test wrote and reads back: numbered, so that what is lost, doubled or moved is seen."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from tidelog.client.errors import TopicPartition
from tidelog.client.reader import RawBatches
from tidelog.protocol.batch import read_header
from tidelog.protocol.records import Record, read_records


def write(bootstrap: str, partition: TopicPartition, values: Iterable[bytes], **settings: object) -> None:
    """Each value at the end of the partition, in batches of a few records.

    Idempotent for the order alone: a batch that a leader refuses in its first moment comes after the next.
    """
    names = {name.replace("_", "."): value for name, value in settings.items()}
    kept_in_order = {"enable.idempotence": True, "batch.num.messages": 7, "linger.ms": 5}
    producer = Producer({"bootstrap.servers": bootstrap} | kept_in_order | names)
    for number, value in enumerate(values):
        producer.produce(partition.topic, value, partition=partition.partition, timestamp=1_000 + number)
        producer.poll(0)
    assert producer.flush(30) == 0


def records_of(piece: RawBatches) -> list[Record]:
    """The records of every batch of a piece; a batch that is not whole raises."""
    records = []
    position = piece.start
    while position < piece.end:
        size = read_header(piece.data, position).size
        records += read_records(piece.data[position : position + size])
        position += size
    assert position == piece.end
    return records


def values_in(pieces: Iterable[RawBatches], start: int, end: int) -> list[tuple[int, bytes | None]]:
    """Offset and value of what lies in the range."""
    found = [record for piece in pieces for record in records_of(piece)]
    return [(record.offset, record.value) for record in found if start <= record.offset < end]
