"""`tidelog log dump` on the files of a real broker, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.chaos.files import batches_of, segments
from tests.cli.conftest import Tidelog
from tidelog.testing.process import BrokerProcess

RECORDS = 400
SETTINGS = {"log.segment.bytes": "16384", "log.index.interval.bytes": "512"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with one topic, `dumped`, of several segments; its broker has stopped cleanly."""
    directory = tmp_path_factory.mktemp("dump")
    with BrokerProcess(directory, SETTINGS) as broker:
        for codec in ("none", "zstd"):
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "enable.idempotence": True,
                    "batch.num.messages": 20,
                    "compression.type": codec,
                    "log_level": 0,
                }
            )
            for number in range(RECORDS):
                producer.produce("dumped", f"{number}" + "x" * 50, f"key {number}", partition=0)
            assert producer.flush(20) == 0
        assert broker.stop() == 0
    return directory / "data"


@pytest.fixture
def segment(written: Path, tmp_path: Path) -> Path:
    """A copy of the first segment, to damage."""
    original = segments(written / "dumped-0")[0]
    copy = tmp_path / original.name
    copy.write_bytes(original.read_bytes())
    return copy


def rows(offline: Tidelog, path: Path, *words: str) -> list[dict[str, Any]]:
    shown = offline("log", "dump", str(path), "--format", "json", *words)
    assert (shown.exit_code, shown.error) == (0, "")
    return [json.loads(line) for line in shown.lines]


def test_every_batch_of_every_segment_is_shown(offline: Tidelog, written: Path) -> None:
    next_offset = 0
    logs = segments(written / "dumped-0")
    assert len(logs) > 1
    for path in logs:
        shown = rows(offline, path)
        assert [row["position"] for row in shown] == [batch.position for batch in batches_of(path)]
        for row in shown:
            assert row["base_offset"] == next_offset
            assert row["records"] == row["last_offset"] - row["base_offset"] + 1
            next_offset = row["last_offset"] + 1
    assert next_offset == 2 * RECORDS


def test_records_show_offset_key_and_value(offline: Tidelog, written: Path) -> None:
    shown = [row for path in segments(written / "dumped-0") for row in rows(offline, path, "--records")]
    assert [row["offset"] for row in shown] == list(range(2 * RECORDS))
    assert (shown[5]["key"], shown[5]["value"]) == ("key 5", "5" + "x" * 50)
    assert shown[RECORDS + 7]["key"] == "key 7", "compressed records are unfolded"


def test_the_table_has_a_line_for_each_batch(offline: Tidelog, segment: Path) -> None:
    shown = offline("log", "dump", str(segment))
    assert "base offset" in shown.out
    assert len([line for line in shown.lines if " plain " in line]) == len(batches_of(segment))


def test_an_offset_index_points_at_batches(offline: Tidelog, written: Path) -> None:
    (path, *_), (log, *_) = segments(written / "dumped-0", ".index"), segments(written / "dumped-0")
    shown = rows(offline, path)
    assert shown
    assert {row["position"] for row in shown} <= {batch.position for batch in batches_of(log)}


def test_time_indexes_snapshots_and_checkpoints_are_shown(offline: Tidelog, written: Path) -> None:
    partition = written / "dumped-0"
    assert set(rows(offline, segments(partition, ".timeindex")[0])[0]) == {"timestamp", "offset"}
    snapshot = rows(offline, segments(partition, ".snapshot")[-1])
    assert {row["last_offset"] for row in snapshot} <= set(range(2 * RECORDS))
    assert snapshot
    assert rows(offline, partition / "leader-epoch-checkpoint")[0]["start_offset"] == 0
    points = rows(offline, written / "recovery-point-offset-checkpoint")
    assert {"topic": "dumped", "partition": 0, "offset": 2 * RECORDS} in points


def test_a_torn_tail_is_named_by_its_position(offline: Tidelog, segment: Path) -> None:
    batches = batches_of(segment)
    segment.write_bytes(segment.read_bytes()[:-4])
    ended = offline("log", "dump", str(segment), "--format", "json")
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert f"at {batches[-1].position} " in ended.error
    assert len(ended.lines) == len(batches) - 1


def test_the_first_corrupt_batch_is_named_by_its_position(offline: Tidelog, segment: Path) -> None:
    batches = batches_of(segment)
    data = bytearray(segment.read_bytes())
    data[batches[1].end_position - 1] ^= 1
    segment.write_bytes(data)
    ended = offline("log", "dump", str(segment), "--records")
    assert ended.exit_code == 1
    assert f"at {batches[1].position} " in ended.error


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_a_cut_index_or_snapshot_is_reported(
    offline: Tidelog, written: Path, tmp_path: Path, suffix: str
) -> None:
    original = segments(written / "dumped-0", suffix)[-1 if suffix == ".snapshot" else 0]
    copy = tmp_path / original.name
    copy.write_bytes(original.read_bytes()[:-1])
    ended = offline("log", "dump", str(copy))
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)


def test_a_checkpoint_that_is_none_is_reported(offline: Tidelog, tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n5\n0 0\n")
    assert offline("log", "dump", str(path)).exit_code == 1


def test_dumping_changes_nothing_and_makes_nothing(offline: Tidelog, segment: Path) -> None:
    before = segment.read_bytes()
    offline("log", "dump", str(segment))
    offline("log", "dump", str(segment.with_name("00000000000000000009.log")))
    assert segment.read_bytes() == before
    assert [path.name for path in segment.parent.iterdir()] == [segment.name]
