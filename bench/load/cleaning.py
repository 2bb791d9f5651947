"""One round of compaction in a process of its own:

    python -m bench.load.cleaning FOLDER END_OFFSET SEGMENT_BYTES compiled

The request is made from the segments in the folder, all of them dirty. Prints the seconds of wall and CPU of
the round with its fsyncs, without what it takes to start a process and to load it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tidelog.base.files import DiskDirectory
from tidelog.log.compaction.cleaning import clean, fastest_key_map
from tidelog.log.compaction.keys import PlainKeyMap
from tidelog.log.compaction.request import CleaningRequest, Source

MIB = 1 << 20
DAY_MS = 24 * 60 * 60 * 1_000


def request_of(folder: Path, end_offset: int, segment_bytes: int) -> CleaningRequest:
    """With Kafka's defaults."""
    return CleaningRequest(
        sources=tuple(
            Source(int(path.stem), path.stat().st_size, int(path.stat().st_mtime * 1_000))
            for path in sorted(folder.glob("*.log"))
        ),
        dirty_offset=0,
        end_offset=end_offset,
        producers=(),
        aborted=(),
        now_ms=time.time_ns() // 1_000_000,
        delete_retention_ms=DAY_MS,
        segment_bytes=segment_bytes,
        segment_index_bytes=10 * MIB,
        index_interval_bytes=4_096,
        memory_max=128 * MIB,
        bytes_per_second=float("inf"),
        hash_seed=time.time_ns(),
    )


def main() -> None:
    folder, end_offset, segment_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    key_map = fastest_key_map() if sys.argv[4] == "compiled" else PlainKeyMap
    request = request_of(folder, end_offset, segment_bytes)
    cpu, started = time.process_time(), time.perf_counter()
    result = clean(DiskDirectory(str(folder)), request, key_map=key_map)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    if result.dirty_offset != end_offset:
        raise SystemExit(f"the round ended at {result.dirty_offset}")
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "records_kept": result.records_kept}))


if __name__ == "__main__":
    main()
