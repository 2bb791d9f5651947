"""Batches with one field of the header changed, and the checksum made to fit."""

from __future__ import annotations

from struct import Struct

from tidelog.protocol.batch import CRC_POSITION, compute_crc

INT16, INT32, INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_CRC = Struct(">I")
BASE_OFFSET, LENGTH, MAGIC, LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP = 0, 8, 16, 23, 27, 35
PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 43, 51, 53, 57


def patched(batch: bytearray, position: int, number: Struct, value: int, fix_crc: bool = True) -> bytearray:
    number.pack_into(batch, position, value)
    return with_crc(batch) if fix_crc else batch


def with_crc(batch: bytearray) -> bytearray:
    if len(batch) > CRC_POSITION + _CRC.size:
        _CRC.pack_into(batch, CRC_POSITION, compute_crc(memoryview(batch), 0, len(batch)))
    return batch
