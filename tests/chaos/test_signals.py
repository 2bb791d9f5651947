"""A broker that is paused, asked to stop under load, or started twice on one directory (L9, L11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.files import active_segment, batches_of
from tests.chaos.reading import check_topic, elect_unclean, end_offset, open_reader
from tests.chaos.workload import IDEMPOTENT, PLAIN, PROGRESS_TIMEOUT_S, Load
from tidelog.testing.process import BrokerDidNotStart, BrokerProcess

SETTINGS = {"log.segment.bytes": str(256 * 1024)}


def test_a_pause_that_outlasts_the_clients_patience_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The broker finds the requests in its socket when it wakes, and their repetitions behind them."""
    impatient = IDEMPOTENT | {"socket.timeout.ms": 1_000, "request.timeout.ms": 1_000}
    with (
        BrokerProcess(tmp_path, SETTINGS) as broker,
        Load(broker.bootstrap_servers, "paused", 2, {"impatient": impatient}) as load,
    ):
        load.resume()
        for _ in range(2):
            load.await_acknowledged(1_000)
            load.writers[0].timed_out.clear()
            broker.pause()
            assert load.writers[0].timed_out.wait(PROGRESS_TIMEOUT_S)
            broker.resume()
        load.await_acknowledged(1_000)
        load.finish()
        findings = check_topic(broker.bootstrap_servers, load)
        assert findings.is_clean, findings


def test_sigterm_under_load_is_a_clean_end(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path, SETTINGS) as broker,
        Load(broker.bootstrap_servers, "stopped", 2, {"idempotent": IDEMPOTENT, "plain": PLAIN}) as load,
    ):
        load.resume()
        for _ in range(3):
            load.await_acknowledged(3_000)
            assert broker.stop() == 0, broker.stderr()
            broker.start()
        load.await_acknowledged(1_000)
        load.finish()
        findings = check_topic(broker.bootstrap_servers, load)
        assert findings.is_clean, findings


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_scans_nothing_after_a_clean_end_and_everything_after_a_kill(
    tmp_path: Path, end: str
) -> None:
    """Shown by a bit that flipped meanwhile: a scan finds it and cuts there, and nobody leads what may have
    lost acknowledged records until an administrator says so."""
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        with Load(broker.bootstrap_servers, "scanned", 1, {"idempotent": IDEMPOTENT}) as load:
            load.resume()
            load.await_acknowledged(600)
            load.finish()
        broker.stop() if end == "stop" else broker.kill()
        segment = active_segment(tmp_path / "data" / "scanned-0")
        hit = batches_of(segment)[1]
        flip_bit(segment, hit.end_position - 1)
        broker.start()
        if end == "kill":
            elect_unclean(broker.bootstrap_servers, "scanned", 1)
        expected = load.acknowledged_count if end == "stop" else hit.base_offset
        assert log_end(broker, "scanned") == expected


def log_end(broker: BrokerProcess, topic: str) -> int:
    reader = open_reader(broker.bootstrap_servers)
    try:
        return end_offset(reader, topic, 0)
    finally:
        reader.close()


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "first") as first:
        second = BrokerProcess(tmp_path / "second", {"log.dirs": first.properties["log.dirs"]})
        with pytest.raises(BrokerDidNotStart) as refusal, second:
            pass
        said = second.stderr().strip().splitlines()
        assert len(said) == 1, said
        assert first.properties["log.dirs"] in said[0]
        assert "exit code 0" not in str(refusal.value)
        with Load(first.bootstrap_servers, "alive", 1, {"idempotent": IDEMPOTENT}) as load:
            load.resume()
            load.await_acknowledged(100)
            load.finish()
            assert check_topic(first.bootstrap_servers, load).is_clean


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)
