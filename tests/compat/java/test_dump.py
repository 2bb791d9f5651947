"""Kafka's own `DumpLogSegments` reads Tidelog's files without a complaint.

The tool knows `.log`, `.index`, `.timeindex`, `.txnindex` and `.snapshot`; it has no word for
`leader-epoch-checkpoint`, which `test_folders.py` has Kafka itself read.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.peers.kafka import Kafka

from tests.compat.broker import running_broker
from tests.compat.confluent.driver import Confluent
from tests.compat.java.history import SMALL_SEGMENTS, served, write_every_codec
from tests.compat.java.tools import DUMPED_SUFFIXES, INDEX_SUFFIXES, dump, files_of

TOPIC = "dumped"
RECORD_COUNT = 4000


@pytest.fixture(scope="module")
def folder(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of ours with several segments and every codec, after a clean stop."""
    log_dir = tmp_path_factory.mktemp("dumped") / "logs"
    with running_broker(log_dir) as bootstrap:
        Confluent(bootstrap).create_topic(TOPIC, 1, SMALL_SEGMENTS)
        write_every_codec(bootstrap, TOPIC)
        assert served(bootstrap, TOPIC).edges == (0, RECORD_COUNT)
    return log_dir / f"{TOPIC}-0"


def test_deep_iteration_finds_every_record(folder: Path) -> None:
    segments = files_of(folder, ".log")
    assert len(segments) > 3
    dumped = dump(segments, "--deep-iteration")
    assert dumped.complaints == ()
    offsets = [int(line.split()[2]) for line in dumped.lines if line.startswith("| offset: ")]
    assert offsets == list(range(RECORD_COUNT))
    assert set(dumped.fields("compresscodec")) == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_every_file_is_read_without_a_complaint(folder: Path) -> None:
    files = files_of(folder, *DUMPED_SUFFIXES)
    assert {path.suffix for path in files} >= {".log", ".index", ".timeindex", ".snapshot"}
    dumped = dump(files)
    assert dumped.complaints == ()
    assert len(dumped.fields("position")) > len(files_of(folder, ".index"))


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_the_indexes_pass_kafkas_checks(folder: Path, check: str) -> None:
    assert dump(files_of(folder, *INDEX_SUFFIXES), check).complaints == ()


def test_the_snapshot_names_the_idempotent_producers(folder: Path) -> None:
    newest = files_of(folder, ".snapshot")[-1]
    assert int(newest.stem) == RECORD_COUNT
    dumped = dump([newest])
    assert dumped.complaints == ()
    assert len(set(dumped.fields("producerId"))) == 3
    assert {int(sequence) for sequence in dumped.fields("lastSequence")} == {799}


def test_a_damaged_index_is_complained_about(folder: Path, tmp_path: Path) -> None:
    """Without this the silence above would prove nothing."""
    copy = tmp_path / "dumped-0"
    shutil.copytree(folder, copy)
    index = files_of(copy, ".index")[0]
    content = bytearray(index.read_bytes())
    content[3] ^= 1
    index.write_bytes(content)
    assert dump([index], "--verify-index-only").complaints != ()
