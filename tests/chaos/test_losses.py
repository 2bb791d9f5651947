"""All brokers are killed at once, one of them loses what it had and is back first: nobody leads until another
one is there, and nothing that was acknowledged is lost (R16)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.awaiting import await_that
from tests.chaos.files import active_segment, batches_of
from tests.chaos.machines import Machines
from tests.chaos.reading import Findings, check_topic
from tests.chaos.replicas import differing_replicas
from tests.chaos.truth import NOBODY
from tests.chaos.workload import IDEMPOTENT, Load
from tests.soak import Tally, is_soak, record

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS = "kept", 3
LOSER = 3  # its folder is an ordinary one
RECORDS = 100_000 if is_soak() else 5_000
WRITERS = {"idempotent": IDEMPOTENT}
WAIT_S = 120.0
FLUSHED = {"log.flush.interval.messages": "1"}


def lose_folders(data: Path) -> None:
    for folder in data.glob(f"{TOPIC}-*"):
        shutil.rmtree(folder)


def replace_disk(data: Path) -> None:
    shutil.rmtree(data)


def flip_bits(data: Path) -> None:
    """In the middle of each log: all that follows has to go."""
    for folder in data.glob(f"{TOPIC}-*"):
        segment = active_segment(folder)
        batches = batches_of(segment)
        content = bytearray(segment.read_bytes())
        content[batches[len(batches) // 2].end_position - 1] ^= 1
        segment.write_bytes(content)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("lose", "settings"), [(lose_folders, {}), (replace_disk, FLUSHED), (flip_bits, {})])
def test_a_broker_that_lost_its_log_does_not_lead_though_it_is_back_first(
    tmp_path: Path, lose: Callable[[Path], None], settings: dict[str, str]
) -> None:
    with Machines(tmp_path, 3, 1, settings) as machines:
        machines.create("first", 1)  # by which all brokers are known to each other
        machines.await_whole()
        outcome, findings = "failed", Findings()
        with Load(machines.bootstrap_servers, TOPIC, PARTITIONS, WRITERS, replicas=3) as load:
            try:
                load.resume()
                load.await_acknowledged(RECORDS)
                load.finish()
                _kill_all_and_start_the_loser_first(machines, lose)
                findings = check_topic(machines.bootstrap_servers, load)
                assert findings.is_clean, findings
                assert differing_replicas(machines) == []
                outcome = "passed"
            finally:
                counts = len(machines.brokers), load.acknowledged_count
                tally = Tally(outcome, *counts, findings.missing_count, findings.duplicated_count, 0)
                record(f"{lose.__name__.replace('_', ' ')} of one of three killed brokers", tally)


def _kill_all_and_start_the_loser_first(machines: Machines, lose: Callable[[Path], None]) -> None:
    for node_id in machines.brokers:
        machines.kill(node_id)
    lose(machines.data(LOSER))
    await_that(lambda: machines.truth.brokers() == set(), "sessions do not end", WAIT_S)
    machines.start([LOSER])
    await_that(
        lambda: [each.leader for each in machines.truth.partitions(TOPIC)] == [NOBODY] * PARTITIONS,
        "the broker that lost its log leads",
        WAIT_S,
    )
    machines.start([node_id for node_id in machines.brokers if node_id != LOSER])
    machines.await_whole()
