"""Frames that are no requests: cut off, too long, of unknown kinds, with sizes that cannot be.

Each is sent on a connection of its own. A frame that is not whole is followed by the end of the stream, so
that both brokers have something to say: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import NamedTuple

from hypothesis import strategies as st

from tests.differential.entities import (
    CLIENT_ID,
    CORRELATION_ID,
    frame_of,
    framed,
    milliseconds,
    parts,
    request,
)
from tests.differential.generated import requests
from tests.differential.scenarios.records import altered
from tests.differential.world import SCRATCH, batch

API_VERSIONS, PRODUCE, PRODUCE_VERSION = 18, 0, 12
UNKNOWN_KEYS = (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 93, 999, 32_767, -1)
FRAME_SIZES = (-1, 0, 1, 7, -(2**31), 2**31 - 1, 104_857_601)


# Of these a wrong byte changes nothing but the answer.
READING = (3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 46, 48, 50, 60, 61, 69, 74)


class Hostile(NamedTuple):
    what: str
    api_key: int
    version: int
    data: bytes  # with its size
    is_whole: bool = True


def header(api_key: int, version: int, client_id: bytes = CLIENT_ID) -> bytes:
    return pack(">hhih", api_key, version, CORRELATION_ID, len(client_id)) + client_id


def hostile_frames(served: dict[int, range]) -> Iterator[Hostile]:
    for api_key, versions in served.items():
        for version in {versions[0], versions[-1]}:
            yield from _of_one_version(api_key, version)
        for version in (versions[-1] + 1, versions[0] - 1, -1, 32_767):
            if version not in versions and api_key != API_VERSIONS:
                data = framed(header(api_key, version) + bytes(60))
                yield Hostile("a version that is not served", api_key, versions[0], data)
    for api_key in UNKNOWN_KEYS:
        if api_key not in served:
            data = framed(header(api_key, 0) + bytes(60))
            yield Hostile(f"the API {api_key}", API_VERSIONS, 0, data)
    for size in FRAME_SIZES:
        data = pack(">i", size) + bytes(8)
        yield Hostile(f"a frame of {size} bytes", API_VERSIONS, 0, data, is_whole=False)
    yield from _of_the_handshake()
    yield from _of_produce()


def _of_one_version(api_key: int, version: int) -> Iterator[Hostile]:
    whole = frame_of(api_key, version, request(api_key, version))[4:]
    head = header(api_key, version)
    is_flexible = len(whole) > len(head) and whole != head and request(api_key, version).__flexible__
    head += b"\0" if is_flexible else b""
    body = whole[len(head) :]

    def hostile(what: str, content: bytes) -> Hostile:
        return Hostile(what, api_key, version, framed(content))

    for size in {1, len(body) // 2, len(body)} - {0}:
        yield hostile(f"{size} bytes cut off", head + body[:-size])
    yield hostile("all bits set", head + b"\xff" * 64)
    yield hostile("a huge array", head + b"\x7f" * 64)
    yield hostile("a negative size", head + b"\xff\xff\xff\xfe" * 16)
    yield hostile("a client id beyond the end", pack(">hhih", api_key, version, CORRELATION_ID, 99) + b"x")
    yield hostile("a cut header", head[:7])
    yield Hostile("cut off by the end", api_key, version, framed(whole)[:-1], is_whole=False)


def _of_the_handshake() -> Iterator[Hostile]:
    for version in (5, 99, 32_767, -1):
        data = framed(header(API_VERSIONS, version) + b"\0\2x\2y\0")
        yield Hostile(f"ApiVersions {version}", API_VERSIONS, 0, data)
    yield Hostile("ApiVersions 99 without a body", API_VERSIONS, 0, framed(header(API_VERSIONS, 99)))
    for version in (0, 1, 2):
        data = framed(header(PRODUCE, version) + bytes(40))
        yield Hostile(f"Produce {version}, which is only advertised", API_VERSIONS, 0, data)
    for text in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80),
    ):
        yield Hostile(f"the protocol of {text[:3]!r}", API_VERSIONS, 0, text, is_whole=False)
    yield Hostile("nothing at all", API_VERSIONS, 0, b"", is_whole=False)


def _of_produce() -> Iterator[Hostile]:
    """Without records, and without a wish for an answer: which only the end of the connection can be."""
    for what, acks, index, records in (
        ("null for records", -1, 0, None),
        ("acks=0, a wrong checksum", 0, 0, bytes(altered(batch(1), crc=1))),
        ("acks=0, no such partition", 0, 99, bytes(batch(1))),
    ):
        part = parts(PRODUCE, PRODUCE_VERSION)
        row = part.PartitionProduceData(index=index, records=records)
        data = (part.TopicProduceData(name=SCRATCH, partition_data=(row,)),)
        values = {"acks": acks, "timeout": milliseconds(1_000), "topic_data": data}
        entity = request(PRODUCE, PRODUCE_VERSION, **values)
        yield Hostile(what, PRODUCE, PRODUCE_VERSION, frame_of(PRODUCE, PRODUCE_VERSION, entity))


def damaged_frames(api_key: int, version: int) -> st.SearchStrategy[bytes]:
    """Requests of which some bytes behind the header are others."""
    head_size = 4 + len(header(api_key, version)) + 1
    whole = requests(api_key, version).map(lambda entity: frame_of(api_key, version, entity))
    damage = st.lists(st.tuples(st.integers(head_size, 200), st.integers(0, 255)), min_size=1, max_size=3)
    return st.tuples(whole, damage).map(lambda drawn: _damaged(*drawn))


def _damaged(frame: bytes, damage: list[tuple[int, int]]) -> bytes:
    changed = bytearray(frame)
    for position, byte in damage:
        if position < len(changed):
            changed[position] = byte
    return bytes(changed)
