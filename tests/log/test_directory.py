"""A log directory: whose it is, how it was left, what lies around in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.base.files import DiskDirectory
from tidelog.log.directory import ForeignDirectory, LogDirectory
from tidelog.log.format.metadata import decode_properties
from tidelog.log.trust import Kept, Life

BOOT, LIFE = "boot-1", Life(7, {"directory": 7})


def opened(folder: Path, cluster_id: str = "cluster", node_id: int = 1) -> LogDirectory:
    directory = LogDirectory(DiskDirectory(str(folder)))
    directory.peek(BOOT, LIFE)
    directory.open(cluster_id, node_id, "directory")
    directory.write_note(BOOT, 7, [])
    return directory


def peeked(folder: Path, boot: str = BOOT, life: Life = LIFE) -> Kept:
    directory = LogDirectory(DiskDirectory(str(folder)))
    directory.peek(boot, life)
    return directory.kept


def test_a_new_directory_is_clean_and_is_signed(tmp_path: Path) -> None:
    assert opened(tmp_path).was_clean
    assert decode_properties((tmp_path / "meta.properties").read_bytes()) == {
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
    left = {path.name for path in tmp_path.iterdir()} - {"meta.properties", ".tidelog-running"}
    assert left == {"t-0.abc-stray", "t-0"}


def test_checkpoints_are_read_at_the_next_start(tmp_path: Path) -> None:
    opened(tmp_path).write_checkpoints({("t", 0): 5}, {("t", 0): 6}, {("t", 0): 2}, {("t", 0): 4})
    again = opened(tmp_path)
    assert (again.recovery_points, again.start_offsets) == ({("t", 0): 5}, {("t", 0): 2})
    assert again.cleaned_offsets == {("t", 0): 4}
    assert "t 0 6" in (tmp_path / "replication-offset-checkpoint").read_text()


def test_a_kill_loses_nothing_while_the_machine_runs_on(tmp_path: Path) -> None:
    opened(tmp_path)
    assert peeked(tmp_path) is Kept.WHOLE
    assert peeked(tmp_path, boot="boot-2") is Kept.UNFLUSHED  # the machine was started since
    assert peeked(tmp_path, boot="") is Kept.UNFLUSHED


def test_a_directory_that_missed_a_life_of_its_broker_may_have_lost_anything(tmp_path: Path) -> None:
    opened(tmp_path)
    assert peeked(tmp_path, life=Life(8, {"directory": 8})) is Kept.LOST
    opened(tmp_path).mark_clean(7)
    assert peeked(tmp_path, life=LIFE) is Kept.WHOLE
    assert peeked(tmp_path, life=Life(8, {"directory": 8})) is Kept.LOST


def test_a_full_directory_that_could_not_be_noted_has_lost_nothing(tmp_path: Path) -> None:
    """The broker registered once more meanwhile, and the store knows the note that is there."""
    opened(tmp_path)
    assert peeked(tmp_path, life=Life(9, {"directory": 7, "other": 9})) is Kept.WHOLE
    assert peeked(tmp_path, life=Life(9, {"other": 9})) is Kept.LOST  # the store never knew it


def test_the_note_of_a_failed_directory_never_vouches_once_the_broker_registers_again(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    note = (tmp_path / ".tidelog-running").read_bytes()
    directory.fail("Input/output error", is_lost=True)
    (tmp_path / ".tidelog-running").write_bytes(note)  # as where the failed disk let nothing be removed
    life = Life(9, {"directory": directory.epoch_to_vouch(9), "other": 9})
    assert peeked(tmp_path, life=life) is Kept.LOST


def test_an_older_copy_that_could_not_be_noted_does_not_vouch_at_the_next_start(tmp_path: Path) -> None:
    opened(tmp_path)
    directory = LogDirectory(DiskDirectory(str(tmp_path)))
    directory.peek(BOOT, Life(8, {"directory": 8}))
    assert directory.kept is Kept.LOST
    directory.fail("No space left on device", is_lost=False)
    life = Life(9, {"directory": directory.epoch_to_vouch(9)})
    assert peeked(tmp_path, life=life) is Kept.LOST


def test_a_directory_that_was_full_from_the_first_has_lost_nothing_that_was_flushed(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / ".tidelog-running").unlink()
    assert peeked(tmp_path, life=Life(9, {"directory": -1, "other": 9})) is Kept.UNFLUSHED


def test_a_directory_without_its_name_is_new_only_if_it_has_no_logs(tmp_path: Path) -> None:
    opened(tmp_path).mark_clean(7)
    (tmp_path / "meta.properties").unlink()
    assert peeked(tmp_path) is Kept.WHOLE
    (tmp_path / "t-0").mkdir()
    assert peeked(tmp_path) is Kept.LOST
    assert peeked(tmp_path, life=Life()) is Kept.UNFLUSHED


def test_a_mark_of_a_clean_stop_that_came_back_is_not_of_the_last_life(tmp_path: Path) -> None:
    """It is removed without a sync."""
    directory = opened(tmp_path)
    directory.mark_clean(6)
    again = LogDirectory(DiskDirectory(str(tmp_path)))
    again.peek("boot-2", LIFE)
    assert not again.was_clean and again.kept is Kept.UNFLUSHED


def test_a_full_directory_vouches_by_the_note_that_it_has(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.fail("No space left on device", is_lost=False)
    assert peeked(tmp_path, life=Life(9, {"directory": directory.epoch_to_vouch(9)})) is Kept.WHOLE


def test_the_note_of_a_version_before_vouches_by_boot_and_epoch_alone(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / ".tidelog-running").write_text('{"boot":"boot-1","brokerEpoch":7}')
    assert peeked(tmp_path, life=Life(7)) is Kept.WHOLE
    assert peeked(tmp_path, life=Life(8)) is Kept.UNFLUSHED
    (tmp_path / ".tidelog-running").unlink()
    assert peeked(tmp_path, life=Life(7)) is Kept.UNFLUSHED
    assert peeked(tmp_path, life=LIFE) is Kept.LOST  # this version's note would be there


def test_a_file_system_that_was_mounted_again_may_have_lost_what_was_not_flushed(tmp_path: Path) -> None:
    opened(tmp_path)
    note = json.loads((tmp_path / ".tidelog-running").read_text())
    note["mount"][2] = "-1"
    (tmp_path / ".tidelog-running").write_text(json.dumps(note))
    assert peeked(tmp_path) is Kept.UNFLUSHED
    note["mount"][1] = "another namespace"  # whose mounts have numbers of their own
    (tmp_path / ".tidelog-running").write_text(json.dumps(note))
    assert peeked(tmp_path) is Kept.WHOLE


def test_what_the_store_does_not_know_yet_is_not_forgotten_by_the_next_start(tmp_path: Path) -> None:
    opened(tmp_path)
    for doubt in (Kept.UNFLUSHED, Kept.LOST):
        directory = LogDirectory(DiskDirectory(str(tmp_path)))
        directory.kept = doubt
        directory.write_note(BOOT, 8, [])
        assert peeked(tmp_path) is doubt


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"boot":1,"brokerEpoch":7}'])
def test_a_note_that_cannot_be_read_vouches_for_nothing(tmp_path: Path, content: bytes) -> None:
    opened(tmp_path)
    (tmp_path / ".tidelog-running").write_bytes(content)
    assert peeked(tmp_path) is Kept.LOST


def test_after_an_i_o_error_nothing_is_sure_and_a_full_disk_has_lost_nothing(tmp_path: Path) -> None:
    opened(tmp_path).fail("No space left on device", is_lost=False)
    assert peeked(tmp_path) is Kept.WHOLE
    opened(tmp_path).fail("Input/output error", is_lost=True)
    assert peeked(tmp_path) is Kept.LOST
