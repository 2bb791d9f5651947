"""A broker that is paused, asked to stop under load, or started twice on one directory (L9, L11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.files import active_segment, batches_of
from tests.chaos.reading import check_topic, end_offset, open_reader
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


def test_a_start_after_a_clean_end_scans_nothing(tmp_path: Path) -> None:
    """Shown by a bit that flipped meanwhile: a scan would find it and cut there."""
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        with Load(broker.bootstrap_servers, "clean", 1, {"idempotent": IDEMPOTENT}) as load:
            load.resume()
            load.await_acknowledged(500)
            load.finish()
        expected = load.acknowledged_count
        assert broker.stop() == 0
        segment = active_segment(tmp_path / "data" / "clean-0")
        _flip_bit(segment, batches_of(segment)[-1].end_position - 1)
        broker.start()
        reader = open_reader(broker.bootstrap_servers)
        assert end_offset(reader, "clean", 0) == expected
        reader.close()


def test_a_start_after_a_kill_does_scan(tmp_path: Path) -> None:
    """The counterpart that shows that the flipped bit of the test above would be found."""
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        with Load(broker.bootstrap_servers, "killed", 1, {"idempotent": IDEMPOTENT}) as load:
            load.resume()
            load.await_acknowledged(500)
            load.finish()
        broker.kill()
        segment = active_segment(tmp_path / "data" / "killed-0")
        last = batches_of(segment)[-1]
        _flip_bit(segment, last.end_position - 1)
        broker.start()
        reader = open_reader(broker.bootstrap_servers)
        assert end_offset(reader, "killed", 0) == last.base_offset
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


def _flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)
