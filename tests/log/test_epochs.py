"""Leader epochs: where each began, where each ended, what of it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.base.files import DiskDirectory
from tidelog.log.epochs import LeaderEpochs


def made(folder: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(DiskDirectory(str(folder)))
    for epoch, offset in entries:
        epochs.assign(epoch, offset)
    return epochs


def test_an_epoch_ends_where_the_next_known_one_begins(tmp_path: Path) -> None:
    epochs = made(tmp_path, (2, 0), (4, 10), (7, 30))
    assert epochs.end_of(2, 99) == (2, 10)
    assert epochs.end_of(4, 99) == (4, 30)
    assert epochs.end_of(7, 99) == (7, 99)


def test_an_epoch_between_two_ends_with_the_one_before_it(tmp_path: Path) -> None:
    epochs = made(tmp_path, (2, 0), (4, 10))
    assert epochs.end_of(3, 99) == (2, 10)
    assert epochs.end_of(1, 99) == (1, 0)


def test_an_epoch_from_the_future_or_of_an_empty_log_is_undefined(tmp_path: Path) -> None:
    assert made(tmp_path, (2, 0)).end_of(5, 99) == (-1, -1)
    assert made(tmp_path / "empty").end_of(0, 99) == (-1, -1)
    assert made(tmp_path / "none", (2, 0)).end_of(-1, 99) == (-1, -1)


def test_an_offset_belongs_to_the_last_epoch_that_began_at_or_before_it(tmp_path: Path) -> None:
    epochs = made(tmp_path, (2, 5), (4, 10))
    assert [epochs.at(offset) for offset in (4, 5, 9, 10, 50)] == [-1, 2, 2, 4, 4]


def test_an_old_epoch_changes_nothing(tmp_path: Path) -> None:
    epochs = made(tmp_path, (4, 10), (4, 20), (3, 30), (-1, 40))
    assert epochs.entries() == [(4, 10)]


def test_a_new_epoch_at_an_offset_that_was_taken_replaces_what_began_there(tmp_path: Path) -> None:
    assert made(tmp_path, (1, 0), (2, 10), (3, 10)).entries() == [(1, 0), (3, 10)]


def test_cutting_the_end_forgets_what_began_there_or_later(tmp_path: Path) -> None:
    epochs = made(tmp_path, (1, 0), (2, 10), (3, 20))
    epochs.cut_end(20)
    assert epochs.entries() == [(1, 0), (2, 10)]
    epochs.cut_end(15)
    assert epochs.entries() == [(1, 0), (2, 10)]


def test_cutting_the_start_keeps_the_epoch_that_holds_it(tmp_path: Path) -> None:
    epochs = made(tmp_path, (1, 0), (2, 10), (3, 20))
    epochs.cut_start(15)
    assert epochs.entries() == [(2, 15), (3, 20)]
    epochs.cut_start(20)
    assert epochs.entries() == [(3, 20)]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    made(tmp_path, (1, 0), (2, 10))
    again = made(tmp_path)
    assert again.load() and again.entries() == [(1, 0), (2, 10)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0\n2\n1 0\n2 10\n", [(1, 0), (2, 10)]),
        ("0\n3\n1 0\n1 10\n2 20\n", [(1, 0)]),
        ("0\n2\n1 10\n2 5\n", [(1, 10)]),
        ("0\n2\n1 0\nx 5\n", [(1, 0)]),
        ("0\n2\n1 0\n2 1", []),
        ("0\n9\n1 0\n", []),
        ("1\n1\n1 0\n", []),
        ("", []),
    ],
)
def test_a_damaged_file_yields_only_what_can_be_believed(
    tmp_path: Path, content: str, expected: list[tuple[int, int]]
) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    epochs = made(tmp_path)
    epochs.load()
    assert epochs.entries() == expected
