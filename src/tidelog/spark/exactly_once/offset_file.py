"""Spark's record of a micro-batch: `<checkpoint>/offsets/<batch>`, written when the batch is planned.

It has the time of the planning, so a copy of a checkpoint that plans the batch itself has another file. Its
hash, the *print*, tells a replay of a batch from another batch of the same number.

**Invariant:** a file that cannot be read is no error; then there is no print.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

PRINT_SIZE = 16  # characters


class PlannedBatch(NamedTuple):
    print: str  # empty if the file cannot be read
    planned_ms: int | None  # by the driver's clock


UNKNOWN = PlannedBatch("", None)


def read_batch(checkpoint: str | None, batch: int) -> PlannedBatch:
    if not checkpoint:
        return UNKNOWN
    try:
        data = _read(f"{checkpoint.rstrip('/')}/offsets/{batch}")
    except Exception:  # of any file system, or because there is no client for it
        return UNKNOWN
    return PlannedBatch(hashlib.sha256(data).hexdigest()[:PRINT_SIZE], _planned_ms(data))


def _read(path: str) -> bytes:
    scheme, separator, _ = path.partition(":/")
    if not separator or scheme == "file":
        with open(path if not separator else "/" + path[len("file:") :].lstrip("/"), "rb") as file:
            return file.read()
    from pyarrow import fs

    system, place = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    with system.open_input_stream(place) as stream:
        return bytes(stream.read())


def _planned_ms(data: bytes) -> int | None:
    """From the second line, which is the metadata of the batch."""
    try:
        return int(json.loads(data.split(b"\n")[1])["batchTimestampMs"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
