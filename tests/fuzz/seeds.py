"""The seed corpus, made anew: `python -m tests.fuzz.seeds`, when the table of APIs has grown.

| folder     | what is in it                                                                             |
|------------|-------------------------------------------------------------------------------------------|
| requests   | frames without size prefix: for each API and version a plausible one, one with every      |
|            | field filled in and one with none; every topic and codec; lengths that nobody can mean    |
| produce    | a byte that picks the version, and a body; `fetch` likewise                               |
| batches    | a byte that says what is made to fit, and a batch: every codec, kind and some lies        |
| connection | a byte that says how to cut up the rest, and a stream                                     |
| groups     | plays of members: a scene, and what is said in it                                         |
| telemetry  | metrics as clients push them                                                              |
| socket     | a byte of flags, and a stream; `probe` likewise                                           |
| stored     | two bytes that pick a file and a place, and what stands there                             |

**Invariant:** the same sources make the same seeds; files that another hand has put there are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema

from tests.fuzz.codecs import FITS_CRC, FITS_LENGTH, IS_PACKED
from tests.fuzz.groups import SCENES
from tests.fuzz.serving import Life
from tests.fuzz.sockets import IS_DEAF, IS_FRAME, IS_RESET
from tests.fuzz.stored import IS_CLEAN, IS_FLUSHED, IS_WHOLE, template
from tests.fuzz.surroundings import FIRST_TOPIC_ID, TOPICS
from tests.protocol.otlp_samples import Attributes, distribution, field, gauge, metrics, point, sum_of
from tests.wire.batches import COUNT, INT32, LENGTH, patched
from tests.wire.harness import FETCH, PRODUCE, START_MS, batch_of, encode, frame_head, request_frame
from tests.wire.requests import fetch_values, produce_values
from tests.wire.samples import sample_frames
from tidelog.protocol.apis import APIS
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.protocol.records import Marker, build_batch, build_control_batch

FOLDER = Path(__file__).with_name("seeds")
CORRELATION_ID = 1
Seeds = Iterator[tuple[str, bytes]]

_FILLING: dict[str, Any] = {
    "string": "t",
    "bytes": b"bytes",
    "uuid": UUID(bytes=FIRST_TOPIC_ID),
    "timedelta_i32": timedelta(milliseconds=10),
    "timedelta_i64": timedelta(milliseconds=10),
}


def main() -> None:
    makers = {
        "requests": request_seeds,
        "produce": lambda: body_seeds(PRODUCE),
        "fetch": lambda: body_seeds(FETCH),
        "batches": batch_seeds,
        "connection": connection_seeds,
        "groups": group_seeds,
        "telemetry": telemetry_seeds,
        "socket": socket_seeds,
        "probe": probe_seeds,
        "stored": stored_seeds,
    }
    for folder, make_seeds in makers.items():
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
        for name, content in make_seeds():
            (FOLDER / folder / f"{name}.bin").write_bytes(content)


def seed_name(api_key: int, version: int, kind: str) -> str:
    return f"{api_key}-v{version}-{kind}"


def request_seeds() -> Seeds:
    for frame in samples():
        yield seed_name(*head_of(frame), "plausible"), frame
    for api in APIS:
        for version in range(api.oldest_version, api.newest_version + 1):
            head, message = (
                frame_head(api.key, version, CORRELATION_ID),
                load_request_schema(api.key, version),
            )
            filled = head + encode(filled_in(message, is_set=True))
            unset = head + encode(filled_in(message, is_set=False))
            yield seed_name(api.key, version, "filled"), filled
            if unset != filled:
                yield seed_name(api.key, version, "unset"), unset
    yield from topic_seeds()
    for api_key, version, length in ((3, 1, b"\x7f\xff\xff\xff"), (3, 12, b"\xff\xff\xff\xff\x0f")):
        head = frame_head(api_key, version, CORRELATION_ID)
        yield f"endless-array-v{version}", head + length + bytes(40)
    yield "endless-tags", frame_head(18, 3, CORRELATION_ID) + b"\2x\2x\xff\xff\xff\xff\x0f" + b"\1\0" * 20
    yield "unknown-tags", frame_head(18, 3, CORRELATION_ID) + b"\2x\2x\2\x63\3abc\x64\0"


def topic_seeds() -> Seeds:
    """Each topic written with each codec, and read."""
    life = Life()
    for topic in TOPICS:
        for codec, name in enumerate(CODEC_NAMES):
            values = produce_values(life.harness, 9, {topic: [(0, batch_of(3, codec=codec))]})
            yield f"produce-{name}-to-{topic}", request_frame(PRODUCE, 9, CORRELATION_ID, **values)
        values = fetch_values(life.harness, 12, {topic: [(0, 0)]}, isolation_level=1)
        yield f"fetch-from-{topic}", request_frame(FETCH, 12, CORRELATION_ID, **values)
    life.end()


def samples() -> list[bytes]:
    life = Life()
    frames = list(sample_frames(life.harness))
    life.end()
    return frames


def head_of(frame: bytes) -> tuple[int, int]:
    """The API key and the version that a frame begins with."""
    return int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")


def filled_in(message: Any, is_set: bool) -> Any:
    """A message in which every array has one entry; whatever may be null or true is, or is not."""
    return message(**{each.name: _content_of(each.type, each.metadata, is_set) for each in fields(message)})


def _content_of(kind: Any, metadata: Any, is_set: bool) -> Any:
    parts = [part for part in get_args(kind) if part not in (type(None), ...)]
    if not is_set and type(None) in get_args(kind) and metadata.get("kafka_type") != "records":
        return None
    if get_origin(kind) is tuple:
        return (_content_of(parts[0], metadata, is_set),)
    if parts:
        return _content_of(parts[0], metadata, is_set)
    if is_dataclass(kind):
        return filled_in(kind, is_set)
    if metadata["kafka_type"] == "records":
        return bytes(batch_of(1))
    return is_set if metadata["kafka_type"] == "bool" else _FILLING.get(metadata["kafka_type"], 0)


def body_seeds(api_key: int) -> Seeds:
    for frame in samples():
        key, version = head_of(frame)
        if key == api_key:
            oldest = next(api.oldest_version for api in APIS if api.key == key)
            body = frame[len(frame_head(key, version, CORRELATION_ID)) :]
            yield f"v{version}", bytes([version - oldest]) + body


def batch_seeds() -> Seeds:
    sequenced: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0}
    fits = bytes([FITS_CRC | FITS_LENGTH])
    headers = [("name", b"value"), ("none", None)]
    for codec, name in enumerate(CODEC_NAMES):
        batch = build_batch(
            [(b"k", b"v" * 20, headers, START_MS), (None, None, (), START_MS + 5)], codec=codec
        )
        yield name, b"\0" + batch
        yield f"{name}-fitted", fits + batch
        unpacked = bytearray(batch_of(3))
        unpacked[22] |= codec
        yield f"{name}-packed", bytes([FITS_CRC | FITS_LENGTH | IS_PACKED]) + unpacked
    for topic in range(4):
        yield f"idempotent-{topic}", bytes([FITS_CRC + topic]) + batch_of(2, producer_id=7, **sequenced)
    yield "transactional", fits + batch_of(1, producer_id=8, transactional=True, **sequenced)
    for marker in Marker:
        yield f"marker-{marker.name.lower()}", fits + build_control_batch(marker, 7, 0, 3, START_MS)
    yield "append-time", fits + batch_of(1, append_time_ms=START_MS)
    yield "no-records", fits + patched(batch_of(1), COUNT, INT32, 0)[:61]
    yield "endless-records", fits + patched(batch_of(1), COUNT, INT32, 2**31 - 1)
    yield "length-of-billions", bytes([FITS_CRC]) + patched(batch_of(1), LENGTH, INT32, 2**31 - 1)


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def connection_seeds() -> Seeds:
    small = framed(bytes(8))
    yield "one", b"\0" + small
    yield "pipelined", b"\5" + small * 3 + framed(bytes(90)) + small
    yield "cut-off", b"\3" + small + framed(bytes(200))[:-9]
    yield "too-large", b"\1" + small + b"\x7f\xff\xff\xff" + bytes(20)
    yield "too-small", b"\1" + small + b"\0\0\0\7" + bytes(20)
    yield "negative", b"\2" + small + b"\xff\xff\xff\xfe" + bytes(20)


def socket_seeds() -> Seeds:
    frames = {head_of(frame): frame for frame in samples()}
    ping, produce, fetch = framed(frames[18, 3]), framed(frames[0, 9]), framed(frames[1, 12])
    yield "pipelined", b"\0" + ping + produce + fetch + ping
    yield "in-pieces", b"\x1f" + produce + fetch
    yield "then-reset", bytes([IS_RESET]) + ping + produce
    yield "cut-off-then-reset", bytes([IS_RESET]) + produce[:-20]
    yield "never-read", bytes([IS_DEAF | IS_FRAME]) + frames[1, 12]
    yield "then-garbage", b"\1" + ping + b"GET / HTTP/1.1\r\n\r\n"
    yield "half-a-size", b"\0\0\0"


def probe_seeds() -> Seeds:
    host = b"Host: x\r\n"
    for path in (b"/metrics", b"/health", b"/nowhere"):
        name = path.decode().strip("/")
        yield name, bytes([IS_FRAME]) + b"GET " + path + b" HTTP/1.1\r\n" + host.rstrip()
        yield f"{name}-in-pieces", b"\x07HEAD " + path + b" HTTP/1.1\r\n" + host + b"\r\n"
    yield "pipelined", b"\0" + (b"GET /health HTTP/1.1\r\n" + host + b"\r\n") * 3
    yield "old", b"\0GET /metrics HTTP/1.0\r\n\r\n"
    yield "with-a-body", b"\0POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
    yield "endless-head", bytes([IS_RESET]) + b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500
    yield "not-http", b"\0" + framed(bytes(20))


def telemetry_seeds() -> Seeds:
    labels: Attributes = {"s": "text", "i": -5, "b": True, "f": 0.5}
    resource: Attributes = {"service": "tides"}
    yield "gauge", metrics(gauge("a", point(1.5, labels)), gauge("b", point(-3)), resource=resource)
    yield "sum", metrics(sum_of("a", point(7, labels), temporality=1), resource=labels)
    for name, number, labels_field in (("histogram", 9, 9), ("exponential", 10, 1), ("summary", 11, 7)):
        yield (
            name,
            metrics(field(1, name) + field(number, field(1, distribution(3, 4.5, labels_field, labels)))),
        )
    yield "many", metrics(gauge("a", *(point(number, {"n": number}) for number in range(20))))


def group_seeds() -> Seeds:
    """Each scene alone, the life of a classic and of a consumer group, and many scenes in a row."""
    for place in range(len(SCENES) + 1):
        yield f"scene-{place}", bytes([place, 9]) + bytes(12)
    join, sync, beat, leave, modern, commit, pause = 0, 1, 2, 3, 4, 5, len(SCENES)
    first = [join, 3, 0, 0, 3, 0, 0, 0, 0]  # version 3: without an id, as the empty name is the fourth known
    yield (
        "classic",
        bytes([*first, sync, 5, 0, 0, 0, 64, 0, 1, 0, beat, 4, 0, 0, 0, 64, 0, leave, 5, 0, 0, 0, 0, 0]),
    )
    yield "two-classic", bytes([*first, join, 3, 1, 0, 4, 0, 0, 0, 0, beat, 4, 0, 0, 0, 64, 0, pause, 3])
    steps = [modern, 1, 0, 3, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    yield "modern", bytes([*steps, commit, 7, 0, 0, 0, 1, 1, 0, 64, *steps, pause, 3, *steps])
    yield "many", bytes(number * 37 % 251 for number in range(400))


def stored_seeds() -> Seeds:
    """Each file as it is, as a stranger's, and with its end torn off."""
    for place, (name, content) in enumerate(sorted(template().items())):
        plain = name.strip("0").replace(".", "-").strip("-")
        yield f"{place}-{plain}-same", bytes([place, IS_WHOLE | FITS_CRC]) + content
        yield f"{place}-{plain}-torn", bytes([place, IS_WHOLE | IS_CLEAN]) + content[: len(content) * 2 // 3]
        yield f"{place}-{plain}-zeroes", bytes([place | IS_FLUSHED, 16]) + bytes(16)


if __name__ == "__main__":
    main()
