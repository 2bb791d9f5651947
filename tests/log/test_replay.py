"""What compaction has left of a producer is enough to know it by."""

from __future__ import annotations

from pathlib import Path

from tests.log.making import NOW_MS, make_batch, refusal, reopen
from tidelog.base.files import DiskDirectory
from tidelog.log.compaction.rewriting import empty_batch
from tidelog.log.format.names import LOG_SUFFIX, file_name
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker, build_control_batch


def test_the_bare_header_of_a_marker_tells_the_producer_s_epoch(tmp_path: Path) -> None:
    marker = build_control_batch(Marker.COMMIT, 7, 3, 0, NOW_MS, leader_epoch=0)
    file = DiskDirectory(str(tmp_path)).open(file_name(0, LOG_SUFFIX))
    file.append(empty_batch(read_header(marker)))
    file.close()
    log, recovery = reopen(tmp_path, cleanup_policy="compact")
    assert (log.end_offset, recovery.problems) == (1, [])
    assert log.producers.first_open_offset() is None
    stale = make_batch(producer_id=7, producer_epoch=2, sequence=0)
    assert refusal(log, stale) == ErrorCode.invalid_producer_epoch
