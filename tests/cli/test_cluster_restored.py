"""`tidelog cluster restored` with the store of a single broker; tests/chaos has it with ZooKeeper."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tidelog.server.stores.embedded import STORE_FILE
from tidelog.testing.process import BrokerDidNotStart, BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path)


def _write(broker: BrokerProcess, *values: str) -> None:
    done = Tidelog(broker.bootstrap_servers)("produce", "t", stdin="".join(f"{v}\n" for v in values).encode())
    assert done.exit_code == 0, done.error


def _live_once(broker: BrokerProcess, *values: str) -> None:
    broker.start()
    _write(broker, *values)
    assert broker.stop() == 0


def test_a_broker_starts_with_an_older_store_once_somebody_has_said_so(
    broker: BrokerProcess, offline: Tidelog
) -> None:
    data = Path(broker.properties["log.dirs"])
    _live_once(broker, "one")
    shutil.copy(data / STORE_FILE, data / "backup")
    _live_once(broker, "two")
    _live_once(broker, "three")
    shutil.copy(data / "backup", data / STORE_FILE)
    with pytest.raises(
        BrokerDidNotStart, match=r"older than before: .* has seen broker epoch \d+, the store is"
    ):
        broker.start()
    done = offline("cluster", "restored", "-o", f"log.dirs={data}", "--yes")
    assert done.exit_code == 0, done.error
    assert done.lines[0].endswith(": restoration 1 recorded") and "(1)" in done.lines[-1]
    broker.start()
    try:
        _write(broker, "four")
        read = Tidelog(broker.bootstrap_servers)("consume", "t", "--from", "earliest", "--count", "4")
        assert read.lines == ["one", "two", "three", "four"]
    finally:
        broker.kill()


def test_without_a_yes_nothing_is_written(broker: BrokerProcess, offline: Tidelog) -> None:
    _live_once(broker, "one")
    words = ("cluster", "restored", "-o", f"log.dirs={broker.properties['log.dirs']}")
    done = offline(*words, stdin=b"n\n")
    assert done.exit_code == 1 and done.error.endswith("nothing was written\n")
    assert "All brokers must be stopped" in done.error
    assert offline(*words).error.endswith("--yes writes without asking\n")


def test_a_store_that_is_used_or_missing_is_named(
    broker: BrokerProcess, offline: Tidelog, tmp_path: Path
) -> None:
    broker.start()
    try:
        used = offline("cluster", "restored", "-o", f"log.dirs={broker.properties['log.dirs']}", "--yes")
    finally:
        broker.kill()
    assert used.exit_code == 1 and "in use by another process" in used.error
    missing = offline("cluster", "restored", "-o", f"log.dirs={tmp_path / 'empty'}", "--yes")
    assert missing.exit_code == 1 and f"{STORE_FILE}: no such file; restore it first" in missing.error


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "--config FILE, or -o zookeeper.connect=HOST:PORT"),
        (["-o", "log.dirs"], "log.dirs"),
        (["-o", "no.such.setting=1", "--yes"], "no.such.setting"),
        (["--config", "no-such-file", "--yes"], "no-such-file"),
    ],
)
def test_words_that_name_no_store_are_explained(offline: Tidelog, words: list[str], problem: str) -> None:
    done = offline("cluster", "restored", *words)
    assert done.exit_code == 2 and problem in done.error, done
    assert "Traceback" not in done.error


def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path: Path, offline: Tidelog) -> None:
    folder = tmp_path / "typo"
    done = offline("cluster", "restored", "-o", f"log.dirs={folder}", "--yes")
    assert done.exit_code == 1
    assert f"{folder / STORE_FILE}: no such file; restore it first, or correct log.dirs" in done.error
    assert not folder.exists()
