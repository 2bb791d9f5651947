"""What checkpoints remember of topics that are gone, and what waits for them."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.parts import make_disks, make_kernel
from tests.wire.harness import CREATE_TOPICS, DELETE_TOPICS, Harness, batch_of, parts, seconds
from tests.wire.requests import fetch, produce
from tests.wire.test_handlers_partitions import CREATE_PARTITIONS, grow_values
from tests.wire.test_handlers_records_deletion import trim
from tidelog.base.files import DiskFile
from tidelog.broker.data_plane.checkpoints import Checkpoint, Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.log.checkpoint import read_offsets
from tidelog.log.format.names import CLEANED_OFFSETS
from tidelog.replication.partition import Role


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def delete(harness: Harness, name: str) -> None:
    part = parts(DELETE_TOPICS, 6)
    asked = (part.DeleteTopicState(name=name, topic_id=None),)
    answer = harness.ask(DELETE_TOPICS, 6, topics=asked, timeout=seconds(1))
    assert answer.responses[0].error_code == 0


def values(harness: Harness, topic: str) -> bytes:
    return bytes(fetch(harness, 12, topic, harness.partition(topic).log.start_offset).records or b"")


def trimmed(harness: Harness) -> None:
    harness.create_topic("t")
    for number in range(6):
        produce(harness, 9, "t", batch_of(1, b"old%d" % number))
    trim(harness, 2, "t", {0: 4})
    for _ in range(3):
        harness.advance(2_000)


def test_a_topic_made_again_keeps_what_it_acknowledged_whatever_the_first_one_s_offsets_were(
    harness: Harness,
) -> None:
    trimmed(harness)
    delete(harness, "t")
    harness.create_topic("t", flush_messages="1")
    for number in range(3):
        assert produce(harness, 9, "t", batch_of(1, b"new%d" % number)).base_offset == number
    harness.start()
    log = harness.partition("t").log
    assert (log.start_offset, log.end_offset) == (0, 3)
    assert b"new0" in values(harness, "t")


def test_so_does_one_whose_first_life_ended_before_a_crash(harness: Harness) -> None:
    trimmed(harness)
    harness.holds_copies = True
    delete(harness, "t")
    harness.start()
    harness.create_topic("t", flush_messages="1")
    assert produce(harness, 9, "t", batch_of(1, b"new")).base_offset == 0
    harness.start()
    assert (harness.partition("t").log.end_offset, b"new" in values(harness, "t")) == (1, True)


def test_so_does_one_that_grows_before_the_offsets_of_the_first_are_gone(harness: Harness) -> None:
    trimmed(harness)
    delete(harness, "t")
    harness.holds_checkpoints = True
    creating = parts(CREATE_TOPICS, 7)
    flushed = (creating.CreatableTopicConfig(name="flush.messages", value="1"),)
    topic = creating.CreatableTopic(
        name="t", num_partitions=1, replication_factor=-1, assignments=(), configs=flushed
    )
    harness.send(CREATE_TOPICS, 7, topics=(topic,), timeout=seconds(5), validate_only=False)
    harness.send(CREATE_PARTITIONS, 3, **grow_values(3, ("t", 2)))
    assert harness.broker.partitions.of("t") is None, "it waits"
    harness.holds_checkpoints = False
    harness.write_checkpoints()
    assert len(harness.answers()) == 2
    assert produce(harness, 9, "t", batch_of(1, b"new")).base_offset == 0
    harness.start()
    assert harness.partition("t").log.end_offset == 1


def test_deleted_records_stay_so_when_a_partition_could_not_be_opened_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed(harness)

    def fail(*asked: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("tidelog.broker.data_plane.partitions.open_log", fail)
        harness.start()
    assert harness.partition("t").role is Role.OFFLINE
    harness.advance(61_000)
    harness.advance(61_000)
    harness.start()
    assert harness.partition("t").log.start_offset == 4


def cleaned_in(harness: Harness) -> dict[str, int]:
    """By topic: what the cleaner's next checkpoint has."""
    for _ in range(2):
        harness.advance(61_000)
    (home,) = harness.broker.disks.directories
    return {topic: offset for (topic, _), offset in read_offsets(home.directory, CLEANED_OFFSETS).items()}


def test_a_cleaner_s_checkpoint_is_there_after_a_start_and_goes_with_its_topic(harness: Harness) -> None:
    for topic in ("t", "u"):
        harness.create_topic(topic)
        produce(harness, 9, topic, batch_of(5, b"old"))
        harness.partition(topic).log.clean_to(3)
    assert cleaned_in(harness) == {"t": 3, "u": 3}
    harness.start()
    assert harness.partition("t").log.cleaned_offset == 3
    delete(harness, "t")
    harness.create_topic("t")
    assert harness.partition("t").log.cleaned_offset == 0
    assert cleaned_in(harness) == {"u": 3}
    trim(harness, 2, "u", {0: 4})
    assert cleaned_in(harness) == {"u": 4}


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_batch_that_is_refused_for_want_of_descriptors_is_not_in_the_log(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t")
    produce(harness, 9, "t", batch_of(1, b"first" * 1_000))
    fetch(harness, 12, "none", 0)
    active = harness.partition("t").log.active
    for file in (*active.offset_index.files(), *active.time_index.files()):
        assert isinstance(file, DiskFile)
        file.suspend()  # others needed the descriptor
    with no_more_descriptors():
        refused = produce(harness, 9, "t", batch_of(1, b"GHOST"))
    assert refused.error_code != 0
    for number in range(3):
        assert produce(harness, 9, "t", batch_of(1, b"kept%d" % number)).base_offset == number + 1
    assert b"GHOST" not in values(harness, "t")
    harness.start()
    assert harness.partition("t").log.end_offset == 4
    assert all(word in values(harness, "t") for word in (b"first", b"kept0", b"kept1", b"kept2"))


def made(directory_count: int) -> tuple[Kernel, Disks, Checkpoints]:
    kernel = make_kernel()
    disks = make_disks(kernel, directory_count)
    return kernel, disks, Checkpoints(kernel, Standing(1), disks, Partitions(1, disks.directories))


def taken(kernel: Kernel, checkpoints: Checkpoints) -> list[Checkpoint]:
    """Those of all directories that somebody waits for."""
    checkpoints.write_urgent()
    return [effect for effect in kernel.outbox.take_effects() if isinstance(effect, Checkpoint)]


def test_what_waits_goes_on_when_every_working_directory_has_a_later_checkpoint() -> None:
    kernel, disks, checkpoints = made(2)
    done: list[str] = []
    checkpoints.wait(lambda: done.append("early"))
    early = taken(kernel, checkpoints)
    checkpoints.wait(lambda: done.append("waited"))
    first, _ = taken(kernel, checkpoints)
    assert taken(kernel, checkpoints) == [], "nobody waits for one that is not being taken yet"
    for checkpoint in early:
        checkpoint.on_done(None)
    first.on_done(None)
    assert done == ["early"]
    disks.directories[1].failure = "broken"
    checkpoints.release()
    assert done == ["early", "waited"]


def test_a_name_is_stale_until_a_checkpoint_taken_after_it_went_is_written() -> None:
    kernel, _, checkpoints = made(1)
    checkpoints.wait(lambda: None)
    (before,) = taken(kernel, checkpoints)
    checkpoints.forget(["t"])
    before.on_done(None)
    assert checkpoints.is_stale("t") and checkpoints.is_wanted
    checkpoints.wait_for_name("t", lambda: None)
    (after,) = taken(kernel, checkpoints)
    after.on_done(None)
    assert not checkpoints.is_stale("t")


def test_a_checkpoint_that_could_not_be_written_is_wanted_again() -> None:
    kernel, disks, checkpoints = made(1)
    checkpoints.wait(lambda: None)
    (checkpoint,) = taken(kernel, checkpoints)
    checkpoint.on_done(OSError(errno.EMFILE, "Too many open files"))
    assert checkpoints.is_wanted and disks.directories[0].failure is None
