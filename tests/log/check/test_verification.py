"""A broker's directory is well, and each kind of damage is named where it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.files import batches_of, segments
from tests.log.check.directories import FIRST, flip, tear, write_directory
from tidelog.base.limits import BAD_BATCHES_MAX
from tidelog.base.reading import ReadOnlyFolder
from tidelog.log.check.findings import Findings, Problem
from tidelog.log.check.verification import Verification
from tidelog.protocol.records import Marker, build_batch, build_control_batch

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written, tmp_path / "data"))


def problems_in(path: Path) -> list[Problem]:
    findings = Findings()
    Verification(ReadOnlyFolder(str(path)), findings).run()
    return findings.problems


def only_problem(path: Path) -> Problem:
    (problem,) = problems_in(path)
    return problem


def test_a_corrupt_batch_is_named_and_the_ones_behind_it_are_still_read(copy: Path) -> None:
    log = segments(copy / "checked-0")[0]
    second, third = batches_of(log)[1:3]
    for batch in (second, third):
        flip(log, batch.end_position - 1)
    found = problems_in(copy)
    assert [(problem.position, problem.offset) for problem in found] == [
        (second.position, second.base_offset),
        (third.position, third.base_offset),
    ]
    assert {problem.file for problem in found} == {f"checked-0/{log.name}"}
    assert "the last stop was clean; consumers stop here" in found[0].at_start


def test_a_segment_of_bad_batches_is_given_up_after_some(transactions: Path) -> None:
    log = transactions / f"{FIRST}.log"
    batches = [build_batch([(b"k", b"v", (), 5)], base_offset=number) for number in range(100)]
    for batch in batches:
        batch[-1] ^= 1
    log.write_bytes(b"".join(batches))
    found = [problem for problem in problems_in(transactions) if problem.file.endswith(".log")]
    assert len(found) == BAD_BATCHES_MAX + 1
    assert "not read" in found[-1].problem


def test_what_happens_at_start_follows_from_the_stop_and_the_recovery_point(copy: Path) -> None:
    logs = segments(copy / "checked-0")
    flip(logs[0], 100)
    (copy / ".kafka_cleanshutdown").unlink()
    assert "below the recovery point" in only_problem(copy).at_start
    (copy / "recovery-point-offset-checkpoint").unlink()
    rest = logs[0].stat().st_size
    assert only_problem(copy).at_start.startswith(f"cut off here, with the {rest} bytes")


def test_a_torn_tail_is_named_and_is_going_to_be_cut(copy: Path) -> None:
    position = tear(copy / "checked-0")
    torn = next(problem for problem in problems_in(copy) if problem.position is not None)
    assert (torn.file, torn.position) == (
        f"checked-0/{segments(copy / 'checked-0')[-1].name}",
        position,
    )
    assert torn.problem.startswith("is cut off at ")
    assert torn.at_start.startswith("cut off here, with the ")


def test_records_that_were_flushed_and_are_gone_are_missed(copy: Path) -> None:
    segments(copy / "checked-0")[-1].write_bytes(b"")
    gone = [problem for problem in problems_in(copy) if problem.file == "checked-0"]
    assert [problem.problem.split()[3] for problem in gone] == ["flushed", "replicated"]


def test_offsets_that_go_back_are_named(copy: Path) -> None:
    log = segments(copy / "checked-0")[0]
    batch = batches_of(log)[2]
    data = bytearray(log.read_bytes())
    data[batch.position : batch.position + 8] = (1).to_bytes(8, "big")
    log.write_bytes(data)
    found = problems_in(copy)
    assert (found[0].position, found[0].offset) == (batch.position, 1)
    assert "offset 1 comes after" in found[0].problem


Damage = Callable[[Path], None]


def rewrite(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: (path.write_bytes(change(path.read_bytes())), None)[1]


@pytest.mark.parametrize(
    ("suffix", "damage", "problem", "at_start"),
    [
        (".index", rewrite(lambda data: data[:-3]), "the last entry is cut off", "rebuilt"),
        (".index", rewrite(lambda data: data[:7] + b"\x07" + data[8:]), "is inside a batch", "by the first"),
        (".index", rewrite(lambda data: data[8:16] + data[:8]), "does not follow", "by the first read"),
        (".index", rewrite(lambda data: data + b"\x00\x00\xff\xff" * 2), "behind the log's end", "rebuilt"),
        (
            ".index",
            rewrite(lambda data: bytes((0, 0, 0, 1)) + data[4:]),
            "ends with offset 1",
            "by the first",
        ),
        (".index", Path.unlink, "missing", "rebuilt"),
        (".timeindex", rewrite(lambda data: data[:-3]), "the last entry is cut off", "rebuilt"),
        (".timeindex", rewrite(lambda data: data[:-12]), "greatest timestamp", "remove it"),
        (".timeindex", rewrite(lambda data: b"\x00\x00\x00\x01" + data[4:]), "greatest up to", "remove it"),
        (".timeindex", Path.unlink, "missing", "rebuilt"),
    ],
)
def test_a_wrong_index_is_named(copy: Path, suffix: str, damage: Damage, problem: str, at_start: str) -> None:
    path = segments(copy / "checked-0", suffix)[0]
    damage(path)
    found = only_problem(copy)
    assert found.file == f"checked-0/{path.name}"
    assert problem in found.problem
    assert at_start in found.at_start


def test_an_index_that_kafka_made_at_full_size_is_well(copy: Path) -> None:
    for suffix in (".index", ".timeindex"):
        path = segments(copy / "checked-0", suffix)[-1]
        path.write_bytes(path.read_bytes() + bytes(24 * 4096))
    assert problems_in(copy) == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("checked-0/partition.metadata", "version: 0", "topic id"),
        ("checked-0/partition.metadata", None, "missing"),
        ("checked-0/partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}", "but checked-0 has"),
        ("checked-0/leader-epoch-checkpoint", "0\n5\n0 0\n", "not a checkpoint"),
        ("checked-0/leader-epoch-checkpoint", None, "missing"),
        ("checked-0/leader-epoch-checkpoint", "0\n2\n0 0\n0 7\n", "'0 7' does not follow"),
        ("checked-0/leader-epoch-checkpoint", "0\n2\n0 0\n9 100000\n", "begins at 100000"),
        ("checked-0/leader-epoch-checkpoint", "0\n0\n", "no line for epoch 0"),
        (f"checked-0/{FIRST}.snapshot", "nonsense as long as a snapshot", "snapshot has"),
        ("checked-0/00000000000000009999.index", "", "no .log beside it"),
        ("checked-0/1.log", "", "20 digits"),
        ("recovery-point-offset-checkpoint", "0\n1\n", "not a checkpoint"),
        ("replication-offset-checkpoint", "0\n1\nchecked 0 99999\n", "replicated up to offset 99999"),
        ("log-start-offset-checkpoint", "0\n1\nchecked 0 99999\n", "must begin at 99999"),
        ("recovery-point-offset-checkpoint", "0\n1\ngone 0 7\n", "names gone-0"),
        ("meta.properties", None, "missing"),
        ("meta.properties", "version=7\n", "version 7"),
        ("meta.properties", "version=1\n", "no cluster.id"),
        (f"no partition/{FIRST}.log", "", "not named"),
    ],
)
def test_a_wrong_small_file_is_named(copy: Path, name: str, content: str | None, problem: str) -> None:
    path = copy / name
    if content is None:
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    found = only_problem(copy)
    assert problem in found.problem
    assert (
        found.file in name or found.file == name or name.startswith("checked-0") or found.file == "checked-0"
    )


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """A partition with an aborted transaction of producer 7 at offsets 0 and 1, and its index."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data = build_batch(
        [(b"k", None, (), 5)],
        base_offset=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        leader_epoch=-1,
    )
    (folder / f"{FIRST}.log").write_bytes(data + build_control_batch(Marker.ABORT, 7, 0, 3, 6, base_offset=1))
    (folder / f"{FIRST}.index").write_bytes(b"")
    (folder / f"{FIRST}.timeindex").write_bytes((6).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    (folder / f"{FIRST}.txnindex").write_bytes(aborted(7, 0, 1, 2))
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    return folder


def aborted(*fields: int) -> bytes:
    return b"\0\0" + b"".join(field.to_bytes(8, "big") for field in fields)


def test_an_aborted_transaction_with_its_entry_is_well(transactions: Path) -> None:
    assert problems_in(transactions) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "lacks the transaction that producer 7 aborted"),
        (aborted(7, 0, 1, 2)[:-1], "torn or corrupt"),
        (aborted(7, 0, 1, 2) + aborted(8, 0, 1, 2), "no abort marker of producer 8 at offset 1"),
    ],
)
def test_a_wrong_transaction_index_is_named(transactions: Path, content: bytes, problem: str) -> None:
    (transactions / f"{FIRST}.txnindex").write_bytes(content)
    assert only_problem(transactions).problem == problem


def test_offsets_beyond_31_bits_are_well(transactions: Path) -> None:
    offset = 5_000_000_000
    for path in sorted(transactions.glob(f"{FIRST}*")):
        path.unlink()
    log = transactions / f"{offset:020}.log"
    log.write_bytes(build_batch([(b"k", b"v", (), 5)], base_offset=offset, leader_epoch=-1))
    log.with_suffix(".index").write_bytes(b"")
    log.with_suffix(".timeindex").write_bytes(b"")
    assert problems_in(transactions) == []


def test_an_end_that_a_broker_would_believe_is_not_held_against_the_checkpoints(copy: Path) -> None:
    log = segments(copy / "checked-0")[-1]
    first = batches_of(log)[0]
    data = bytearray(log.read_bytes())
    data[first.position + 8 : first.position + 12] = b"\0\0\0\1"
    log.write_bytes(data)
    found = only_problem(copy)
    assert (found.file, found.position) == (f"checked-0/{log.name}", 0)
    assert found.problem.endswith(", and what follows is no batch")
    assert "because the last stop was clean" in found.at_start
