"""A log directory: whose it is, how it was left, what lies around in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.base.files import DiskDirectory
from tidelog.log.directory import ForeignDirectory, LogDirectory, deleted_folder_name, parse_properties


def opened(folder: Path, cluster_id: str = "cluster", node_id: int = 1) -> LogDirectory:
    directory = LogDirectory(DiskDirectory(str(folder)))
    directory.peek_clean()
    directory.open(cluster_id, node_id, "directory")
    return directory


def test_a_new_directory_is_clean_and_is_signed(tmp_path: Path) -> None:
    assert opened(tmp_path).was_clean
    assert parse_properties((tmp_path / "meta.properties").read_text()) == {
        "version": "1",
        "cluster.id": "cluster",
        "node.id": "1",
        "directory.id": "directory",
    }


def test_a_directory_without_the_sign_of_a_clean_stop_was_left_by_a_crash(tmp_path: Path) -> None:
    opened(tmp_path)
    assert not opened(tmp_path).was_clean


def test_a_clean_stop_is_believed_once(tmp_path: Path) -> None:
    opened(tmp_path).mark_clean(12)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":12}'
    assert opened(tmp_path).was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert not opened(tmp_path).was_clean


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("version=1\ncluster.id=other\nnode.id=1\n", "cluster other"),
        ("version=1\ncluster.id=cluster\nnode.id=2\n", "node 2"),
        ("version=0\nbroker.id=9\n", "node 9"),
        ("version=7\ncluster.id=cluster\nnode.id=1\n", "version 7"),
    ],
)
def test_somebody_else_s_directory_is_refused_with_a_line_that_says_so(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "meta.properties").write_text(content)
    (tmp_path / ".kafka_cleanshutdown").touch()
    with pytest.raises(ForeignDirectory, match=words):
        opened(tmp_path)
    assert (tmp_path / ".kafka_cleanshutdown").exists(), "a refused directory is left as it was"


def test_kafka_s_older_signature_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#Mon\nversion=0\nbroker.id=1\n")
    opened(tmp_path)


def test_deleted_partitions_and_unfinished_copies_are_removed_and_strays_are_left(tmp_path: Path) -> None:
    for name in ("t-0.abc-delete", "t-0.abc-future", "t-0.abc-stray", "t-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    opened(tmp_path)
    left = {path.name for path in tmp_path.iterdir()} - {"meta.properties"}
    assert left == {"t-0.abc-stray", "t-0"}


def test_checkpoints_are_read_at_the_next_start(tmp_path: Path) -> None:
    opened(tmp_path).write_checkpoints({("t", 0): 5}, {("t", 0): 6}, {("t", 0): 2})
    again = opened(tmp_path)
    assert (again.recovery_points, again.start_offsets) == ({("t", 0): 5}, {("t", 0): 2})
    assert "t 0 6" in (tmp_path / "replication-offset-checkpoint").read_text()


def test_the_name_of_a_deleted_folder_fits_the_file_system() -> None:
    short = deleted_folder_name("t", 3, bytes(16))
    assert short == f"t-3.{'0' * 32}-delete"
    assert len(deleted_folder_name("x" * 249, 99_999, bytes(16))) == 255


def test_a_kill_loses_nothing_while_the_machine_runs_on(tmp_path: Path) -> None:
    LogDirectory(DiskDirectory(str(tmp_path))).mark_running("boot-1", 7)
    again = LogDirectory(DiskDirectory(str(tmp_path)))
    again.peek_clean()
    assert again.has_kept_all("boot-1", 7)
    assert not again.has_kept_all("boot-2", 7)  # the machine was started since
    assert not again.has_kept_all("boot-1", 8)  # another one has run under this id since
    assert not again.has_kept_all("", 7)


def test_after_a_failed_write_nothing_is_sure(tmp_path: Path) -> None:
    directory = LogDirectory(DiskDirectory(str(tmp_path)))
    directory.mark_running("boot-1", 7)
    directory.fail("Input/output error")
    again = LogDirectory(DiskDirectory(str(tmp_path)))
    again.peek_clean()
    assert not again.has_kept_all("boot-1", 7)
