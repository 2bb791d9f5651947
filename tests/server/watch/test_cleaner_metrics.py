"""What the metrics page says of compaction."""

from __future__ import annotations

from tests.broker.test_compacting import Compacted
from tests.log.making import NOW_MS
from tidelog.base.config import BrokerSettings
from tidelog.broker.broker import Broker
from tidelog.server.watch.cleaner_metrics import cleaner_lines


def page(here: Compacted) -> dict[str, float]:
    """The numbers of a broker that has these logs, by name without labels."""
    broker = Broker(BrokerSettings({}), here.disks.directories, bytes)
    broker.compacting = here.compacting
    broker.clock.set(NOW_MS, here.kernel.clock.uptime_ms)
    lines = "".join(cleaner_lines(broker)).splitlines()
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name.partition("{")[0]: float(value) for name, _, value in rows}


def test_a_round_shows_and_so_does_what_cannot_be_cleaned() -> None:
    here = Compacted(2)
    first, second = here.all
    for partition in here.all:
        here.fill(partition=partition)
        partition.want_flush()
        here.flushing.maybe_begin(partition)
    here.run()
    first.log.directory.flip(f"{2:020}.log", 100, 1)  # type: ignore[attr-defined]
    here.advance()
    here.run()
    found = page(here)
    assert found["kafka_log_logcleanermanager_max_dirty_percent"] == 100
    for _ in range(3):
        here.advance()
        here.run()
    found = page(here)
    assert found["tidelog_log_cleaner_rounds_total"] == 1 and second.log.cleaned_offset > 0
    assert 0 < found["kafka_log_logcleaner_cleaner_recopy_percent"] < 100
    assert 0 <= found["kafka_log_logcleaner_max_buffer_utilization_percent"] <= 100
    assert found["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 1
    assert found["kafka_log_logcleanermanager_uncleanable_bytes"] == first.log.size
    assert found["kafka_log_logcleanermanager_time_since_last_run_ms"] == 0
    assert found["kafka_log_logcleaner_deadthreadcount"] == 0
