"""The target of the disk: a partition's folder in which one file is not what it was.

A folder of two segments, with idempotent and transactional batches in it, is laid out in memory; the input
replaces one of its files, or a piece of it. Whatever that is, the log opens, takes a batch, gives it back,
and opens again with nothing more to mend. (What was flushed is not cut: damage there is reported each time.)
"""

from __future__ import annotations

from functools import cache
from struct import Struct

from crc32c import crc32c

from tests.fuzz.codecs import FITS_CRC, fitted_batch
from tests.log.making import NOW_MS, append, append_marker, make_batch, make_settings
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tidelog.log.checkpoint import read_offsets
from tidelog.log.directory import read_topic_id
from tidelog.log.format.metadata import decode_properties
from tidelog.log.format.names import META_PROPERTIES, PARTITION_METADATA, RECOVERY_POINTS
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.protocol.records import Marker

SETTINGS = make_settings(index_interval_bytes=100)
SETTINGS.segment_bytes = 1_000  # smaller than an operator may make them
IS_FLUSHED = 0x80  # in the first byte: recovery begins where the checkpoint says, not at the start
IS_WHOLE, IS_CLEAN = 0x40, 0x20  # in the second byte: the file is replaced whole; the stop was clean
_CRC = Struct(">I")
_SNAPSHOT_CRC_POSITION = 2


@cache
def template() -> dict[str, bytes]:
    """The files of a healthy partition."""
    folder = SimulatedDisk().root
    log, _ = open_log(folder, SETTINGS, NOW_MS)
    for sequence in range(4):
        append(log, make_batch(2, producer_id=7, sequence=2 * sequence))
        append(log, make_batch(1, codec=sequence))
    for marker in (Marker.ABORT, Marker.COMMIT):
        append(log, make_batch(1, producer_id=8 + marker, sequence=0, transactional=True), epoch=1 + marker)
        append_marker(log, marker, 8 + marker)
    log.close(clean=True)
    files = {name: folder.read_whole(name) or b"" for name in folder.names()}
    files[PARTITION_METADATA] = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
    files[META_PROPERTIES] = b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n"
    files[RECOVERY_POINTS] = b"0\n1\nt 0 14\n"
    return files


def fuzz_stored(data: bytes) -> None:
    """A byte that picks the file, one with flags and a place, then what stands there."""
    if len(data) < 2:
        return
    names = sorted(template())
    name = names[data[0] % IS_FLUSHED % len(names)]
    folder = SimulatedDisk().root
    for other, content in template().items():
        folder.open(other).append(damaged(other, content, data) if other == name else content)
    decode_properties(folder.read_whole(META_PROPERTIES) or b"")
    read_topic_id(folder)
    flushed = read_offsets(folder, RECOVERY_POINTS).get(("t", 0), 0)
    use(folder, flushed if data[0] & IS_FLUSHED else 0, bool(data[1] & IS_CLEAN))


def damaged(name: str, content: bytes, data: bytes) -> bytes:
    """The file with the input in it, with the checksums that would hide it from a first look."""
    flags, put = data[1], data[2:]
    if name.endswith(".log") and flags & FITS_CRC and put:
        put = bytes(fitted_batch(put))
    start = 0 if flags & IS_WHOLE else len(content) * (flags % 32) // 32
    end = len(content) if flags & IS_WHOLE else start + len(put)
    changed = bytearray(content[:start] + put + content[end:])
    if name.endswith(".snapshot") and flags & FITS_CRC and len(changed) > 6:
        _CRC.pack_into(changed, _SNAPSHOT_CRC_POSITION, crc32c(changed[6:]))
    return bytes(changed)


def use(folder: SimulatedDirectory, recovery_point: int, is_clean: bool) -> None:
    log, _ = open_log(folder, SETTINGS, NOW_MS, recovery_point, is_clean=is_clean)
    offset = log.end_offset
    if offset >= 2**63 - 10:
        return
    assert append(log, make_batch(1), epoch=9).base_offset == offset
    check_reads(log, offset)
    log.close(clean=False)
    again, report = open_log(folder, SETTINGS, NOW_MS, recovery_point)
    assert again.end_offset == offset + 1
    if not is_clean and recovery_point == 0:
        # A whole control batch that nobody can read stays where it is, and is told of at every start.
        standing = [problem for problem in report.problems if not problem.startswith("the control batch at")]
        assert (report.cut_bytes, standing) == (0, []), report
    check_reads(again, offset)


def check_reads(log: Log, offset: int) -> None:
    found = log.read(offset, log.end_offset, 2**20)
    assert found is not None
