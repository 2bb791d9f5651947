"""Compaction as Kafka's dashboards know it, and where each compacted log is clean up to.

**Invariant:** a number that Kafka has is Kafka's: shares in per cent, and times in the unit of the name.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.base.metrics import Family, labels_of
from tidelog.broker.broker import Broker

_MANAGER, _CLEANER = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"


def cleaner_lines(broker: Broker) -> Iterator[str]:
    compacting = broker.compacting
    figures, uncleanable = compacting.figures, compacting.uncleanable
    assessed_ms = figures.assessed_ms if figures.assessed_ms is not None else broker.uptime_ms
    for name, meaning, value in (
        (f"{_MANAGER}max_dirty_percent", "Of the dirtiest compacted log.", 100 * figures.dirty_ratio_max),
        (f"{_MANAGER}time_since_last_run_ms", "Since all were assessed.", broker.uptime_ms - assessed_ms),
        (f"{_CLEANER}max_buffer_utilization_percent", "Of the last round.", 100 * figures.map_utilization),
        (f"{_CLEANER}cleaner_recopy_percent", "Written of what was read.", 100 * figures.recopied),
        (f"{_CLEANER}max_clean_time_secs", "How long the last round took.", figures.took_ms / 1_000),
        (f"{_CLEANER}max_compaction_delay_secs", "Beyond the lag.", figures.delay_ms_max / 1_000),
        (f"{_CLEANER}deadthreadcount", "Always 0: what dies is started again.", 0),
    ):
        family = Family(name, "gauge", meaning)
        yield family.head()
        yield family.sample(round(value, 3))
    counts = Family(f"{_MANAGER}uncleanable_partitions_count", "gauge", "Logs with a damaged batch.")
    sizes = Family(f"{_MANAGER}uncleanable_bytes", "gauge", "Bytes of those.")
    for family in (counts, sizes):
        yield family.head()
        for directory in broker.disks.directories:
            here = [each for each in uncleanable if each.directory is directory]
            value = len(here) if family is counts else sum(each.log.size for each in here)
            yield family.sample(value, labels_of(("logDirectory", directory.path)))
    for name, meaning, value in (
        ("tidelog_log_cleaner_rounds_total", "Rounds of compaction that have ended.", figures.round_count),
        ("tidelog_log_cleaner_read_bytes_total", "Read by them.", figures.read_size),
        ("tidelog_log_cleaner_written_bytes_total", "Written by them.", figures.written_size),
    ):
        family = Family(name, "counter", meaning)
        yield family.head()
        yield family.sample(value)
