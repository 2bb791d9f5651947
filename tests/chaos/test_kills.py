"""SIGKILL at random moments under load: whatever was acknowledged is there afterwards (L2, L9, P1, P8)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.chaos.reading import Findings, check_topic
from tests.chaos.workload import COMPRESSED, IDEMPOTENT, PLAIN, Load
from tests.soak import Tally, choose_seed, is_soak, record
from tidelog.testing.process import BrokerProcess

SAMPLE_KILLS = 4
SOAK_KILLS = 60
INTERRUPTED_STARTS = 0.3  # share of restarts that are themselves killed
SETTINGS = {
    "log.segment.bytes": str(128 * 1024),  # so that kills fall across rolls
    "log.flush.offset.checkpoint.interval.ms": "300",  # so that recovery points move between kills
}
WRITERS = {"idempotent": IDEMPOTENT, "compressed": COMPRESSED, "plain": PLAIN}


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = choose_seed()
    chance = random.Random(seed)
    kill_count = SOAK_KILLS if is_soak() else SAMPLE_KILLS
    findings, kills, interrupted, acknowledged, outcome = Findings(), 0, 0, 0, "failed"
    try:
        with (
            BrokerProcess(tmp_path, SETTINGS) as broker,
            Load(broker.bootstrap_servers, "kills", 3, WRITERS) as load,
        ):
            while kills < kill_count and findings.is_clean:
                interrupted += _kill_under_load(broker, load, chance)
                kills += 1
                findings = check_topic(broker.bootstrap_servers, load)
                acknowledged = load.acknowledged_count
            assert findings.is_clean, f"after {kills} kills: {findings}"
            load.finish()
            findings, acknowledged = check_topic(broker.bootstrap_servers, load), load.acknowledged_count
            assert findings.is_clean, f"at the end: {findings}"
            assert _roll_count(tmp_path) > 3, "the kills were meant to fall across rolls"
            outcome = "passed"
    finally:
        tally = Tally(outcome, kills, acknowledged, findings.missing_count, findings.duplicated_count, seed)
        print(
            tally,
            f"and {interrupted} starts killed",
            (tmp_path / "broker.stderr").read_text()[-2_000:],
            sep="\n",
        )
        record("SIGKILL of one broker under load", tally)


def _kill_under_load(broker: BrokerProcess, load: Load, chance: random.Random) -> int:
    """Kill while writers write, restart, see them carry on, pause them.

    Returns how many starts were killed on the way: those come on top, they are not kills under load.
    """
    load.resume()
    load.await_acknowledged(chance.randrange(100, 8_000))
    broker.kill()
    interrupted = 0
    while chance.random() < INTERRUPTED_STARTS:
        _kill_while_starting(broker, chance.uniform(0.02, 0.4))
        interrupted += 1
    broker.start()
    load.await_acknowledged(chance.randrange(1, 2_000))
    load.pause()
    return interrupted


def _kill_while_starting(broker: BrokerProcess, after_s: float) -> None:
    """A crash in the middle of recovery must leave something that the next start can recover."""
    command = broker.command()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        pass
    else:
        raise AssertionError(f"the broker ended by itself with {process.returncode}: {command}")
    finally:
        process.kill()
        process.wait()


def _roll_count(directory: Path) -> int:
    return len(list((directory / "data").glob("kills-*/*.log"))) - 3
