"""Partitions in two log directories of which one is broken: whose offsets must not begin anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import METADATA, START_MS, Harness, batch_of, new_client
from tests.wire.requests import metadata_values, produce
from tidelog.base.config import BrokerSettings
from tidelog.base.files import DiskDirectory
from tidelog.broker.broker import Broker
from tidelog.log.directory import LogDirectory
from tidelog.log.format.names import PARTITION_METADATA

FIRST, SECOND = ["a", "c"], ["b", "d"]


class TwoDirectories(Harness):
    """A broker with `log.dirs=first,second`."""

    def start(self) -> None:
        self.store.end_session()
        directories = [LogDirectory(DiskDirectory(str(self.path / name))) for name in ("first", "second")]
        self.broker = Broker(BrokerSettings({}), directories, self._entropy)
        self.broker.clock.set(START_MS, 0)
        self.client = new_client()
        self.broker.start("127.0.0.1", 9092)
        self.settle()
        assert self.broker.is_serving

    def folders(self, directory: str) -> list[str]:
        return sorted(path.name for path in (self.path / directory).glob("*-0"))

    def produced(self, topic: str) -> tuple[int, int]:
        outcome = produce(self, 9, topic, batch_of())
        return outcome.error_code, outcome.base_offset

    def leader(self, topic: str) -> tuple[int, int, tuple[int, ...]]:
        answer = self.ask(METADATA, 12, **metadata_values(12, [topic]))
        (partition,) = answer.topics[0].partitions
        return partition.error_code, partition.leader_id, partition.offline_replicas


@pytest.fixture
def stopped(tmp_path: Path) -> TwoDirectories:
    """Topics a and c in the first directory, b and d in the second, a record in each; then a clean stop."""
    harness = TwoDirectories(tmp_path)
    for topic in ("a", "b", "c", "d"):
        harness.create_topic(topic)
        assert harness.produced(topic) == (0, 0)
    assert harness.folders("first") == ["a-0", "c-0"] and harness.folders("second") == ["b-0", "d-0"]
    harness.broker.stop()
    return harness


def put_away(harness: TwoDirectories, topic: str) -> Path:
    """A file is where the folder of the topic was."""
    folder = harness.path / "second" / f"{topic}-0"
    folder.rename(harness.path / "away")
    folder.write_bytes(b"")
    return folder


@pytest.mark.parametrize("broken", SECOND)
def test_topics_of_a_directory_that_fails_at_the_start_are_offline_and_not_made_anew(
    stopped: TwoDirectories, broken: str
) -> None:
    put_away(stopped, broken)
    stopped.start()
    for topic in SECOND:
        assert stopped.produced(topic) == (ErrorCode.kafka_storage_error, -1)
        assert stopped.leader(topic) == (ErrorCode.leader_not_available, -1, (1,))
    for topic in FIRST:
        assert stopped.produced(topic) == (0, 1)
        assert stopped.leader(topic) == (0, 1, ())
    assert stopped.folders("first") == ["a-0", "c-0"]


@pytest.mark.parametrize("broken", SECOND)
def test_a_directory_that_was_mended_goes_on_where_it_ended(stopped: TwoDirectories, broken: str) -> None:
    folder = put_away(stopped, broken)
    stopped.start()
    stopped.broker.stop()
    folder.unlink()
    (stopped.path / "away").rename(folder)
    stopped.start()
    for topic in FIRST + SECOND:
        assert stopped.produced(topic) == (0, 1)


def test_a_new_topic_is_made_where_the_disk_works(stopped: TwoDirectories) -> None:
    put_away(stopped, "b")
    stopped.start()
    stopped.create_topic("e")
    assert stopped.produced("e") == (0, 0)
    assert stopped.folders("first") == ["a-0", "c-0", "e-0"]


def test_whose_a_folder_is_is_read_once_at_the_start(
    stopped: TwoDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand partitions pay for more."""
    real, read = DiskDirectory.read_whole, []

    def read_whole(self: DiskDirectory, name: str) -> bytes | None:
        if name == PARTITION_METADATA:
            read.append(Path(self.path).name)
        return real(self, name)

    monkeypatch.setattr(DiskDirectory, "read_whole", read_whole)
    stopped.start()
    assert sorted(read) == ["a-0", "b-0", "c-0", "d-0"]


def test_a_start_looks_for_a_folder_once_in_each_directory(
    stopped: TwoDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of partitions each look more is part of how long a start takes."""
    looked: list[str] = []
    exists, make = DiskDirectory.exists, DiskDirectory.folder

    def seen(folder: DiskDirectory, name: str) -> bool:
        looked.append(f"{Path(folder.path).name}/{name}")
        return exists(folder, name)

    def opened(folder: DiskDirectory, name: str) -> DiskDirectory:
        looked.append(f"open {name}")
        return make(folder, name)

    monkeypatch.setattr(DiskDirectory, "exists", seen)
    monkeypatch.setattr(DiskDirectory, "folder", opened)
    stopped.start()
    assert [each for each in looked if each.endswith("a-0")] == ["first/a-0", "open a-0", "second/a-0"]
