"""The process of the cleaner: what it writes, and what becomes of a broker whose cleaner dies or hangs."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append, flush, make_batch, open_new
from tidelog.base.config import Compaction
from tidelog.base.events import Event
from tidelog.base.files import DiskDirectory
from tidelog.broker.data_plane.compacting import RoundCancelled, RoundFailed
from tidelog.log.compaction.request import CleaningRequest, SourcesChanged, encode_request
from tidelog.log.dirtiness import assess, request_round
from tidelog.log.scan import Damage
from tidelog.server.cleaner.cleaner import WORKER, ProcessCleaner, ThreadCleaner

WAIT_S = 300
COMPACTION = Compaction(0.5, 0, 2**63 - 1, 1_000)
UNLIMITED = 1e300


def filled(folder: Path, bytes_per_second: float = UNLIMITED) -> CleaningRequest:
    """A log of some dirty segments, and the request for a round of it."""
    log = open_new(folder, cleanup_policy="compact", segment_bytes=2_000)
    for number in range(40):
        append(log, make_batch(key=b"%d" % (number % 3), value=b"v" * 100))
    flush(log)
    found = assess(log, log.end_offset, COMPACTION, NOW_MS)
    request = request_round(log, found, COMPACTION, NOW_MS, 1 << 20, bytes_per_second, 7)
    log.close(clean=True)
    return request


def cleaned(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.cleaned")}


def go_on(size: int) -> None:
    pass


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def cleaner(told: list[Event]) -> Iterator[ProcessCleaner]:
    made = ProcessCleaner(told.append)
    yield made
    made.close()


def test_a_process_writes_what_a_thread_writes_and_says_how_a_round_ended(
    tmp_path: Path, cleaner: ProcessCleaner
) -> None:
    request = filled(tmp_path)
    directory = DiskDirectory(str(tmp_path))
    sizes: list[int] = []
    by_thread = ThreadCleaner().clean(directory, request, sizes.append)
    written = cleaned(tmp_path)
    assert written and sum(sizes) == by_thread.bytes_read + by_thread.bytes_written
    by_process = cleaner.clean(directory, request, go_on)
    assert by_process.segments == by_thread.segments and cleaned(tmp_path) == written
    process_id = cleaner.process_id
    with pytest.raises(SourcesChanged):
        cleaner.clean(DiskDirectory.existing(str(tmp_path / "gone")), request, go_on)
    assert not (tmp_path / "gone").exists(), "a folder was made"
    first = tmp_path / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    with pytest.raises(Damage) as damage:
        cleaner.clean(directory, request, go_on)
    assert (damage.value.file, damage.value.position) == (first.name, 0)
    assert cleaner.process_id == process_id, "one process for all of them"
    cleaner.age()
    assert cleaner.process_id == process_id
    cleaner._idle_since_s -= 3_600
    cleaner.age()
    assert cleaner.process_id is None


def test_a_process_that_dies_or_hangs_ends_its_round_and_the_next_has_another(tmp_path: Path) -> None:
    request, directory = filled(tmp_path), DiskDirectory(str(tmp_path))
    cleaner = ProcessCleaner(lambda event: None, silence_s_max=1.0)
    with Locked(tmp_path):
        for number in (signal.SIGKILL, signal.SIGSTOP):

            def strike(size: int, number: int = number) -> None:
                assert cleaner.process_id is not None
                os.kill(cleaner.process_id, number)

            with pytest.raises(RoundFailed):
                cleaner.clean(directory, request, strike)
            assert cleaner.process_id is None
    patient = ProcessCleaner(lambda event: None)
    assert patient.clean(directory, request, go_on).segments
    patient.close()


def test_a_round_that_nobody_wants_any_more_ends_with_its_process(
    tmp_path: Path, cleaner: ProcessCleaner
) -> None:
    request, directory = filled(tmp_path, bytes_per_second=1.0), DiskDirectory(str(tmp_path))
    calls = 0

    def cancel(size: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise RoundCancelled

    for each in (cleaner, ThreadCleaner()):
        calls = 0
        with pytest.raises(RoundCancelled):
            each.clean(directory, request, cancel)
    assert cleaner.process_id is None


def test_the_process_ends_with_its_broker_and_until_then_nobody_else_writes(tmp_path: Path) -> None:
    """A broker that is killed closes the pipe; its cleaner is at work in the folder."""
    request, directory = filled(tmp_path), DiskDirectory(str(tmp_path))
    script = (
        "import sys; from tidelog.base.files import DiskDirectory;"
        "from tidelog.server.cleaner.cleaner import *;"
        "from tidelog.log.compaction.request import decode_request;"
        "c = ProcessCleaner(print); d = DiskDirectory(sys.argv[1]);"
        "r = decode_request(sys.stdin.readline());"
        "c.clean(d, r, lambda size: print(c.process_id, flush=True) if c.process_id else None)"
    )
    slow = request._replace(bytes_per_second=1.0)
    broker = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert broker.stdin is not None and broker.stdout is not None
    broker.stdin.write(encode_request(slow).encode() + b"\n")
    broker.stdin.flush()
    process_id = int(broker.stdout.readline())
    while not cleaned(tmp_path) and is_free(tmp_path):
        assert broker.stdout.readline()
    broker.kill()
    broker.wait()
    next_one = ThreadCleaner().clean(directory, request, go_on)
    assert next_one.segments and is_free(tmp_path)
    await_end(process_id)
    for new in next_one.segments:
        assert (tmp_path / f"{new.base_offset:020}.log.cleaned").stat().st_size == new.size


def await_end(process_id: int) -> None:
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    waiting = select.poll()  # unlike `select`, for any number of open files
    waiting.register(descriptor, select.POLLIN)
    ended = waiting.poll(WAIT_S * 1_000)
    os.close(descriptor)
    assert ended, "the process outlives its broker"


class Locked:
    """The lock of a round in that folder, held by somebody else."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY)

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *args: object) -> None:
        os.close(self._descriptor)


def is_free(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_what_is_slow_is_said_once(told: list[Event], cleaner: ProcessCleaner) -> None:
    for _ in range(2):
        cleaner._note({"compiled": False})
    assert [event.name for event in told] == ["cleaner slowed"] and WORKER


def test_a_process_is_heard_whatever_descriptors_its_pipe_has(
    tmp_path: Path, cleaner: ProcessCleaner
) -> None:
    """A broker has thousands open; `select` takes none above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip("the limit of open files is low")
    request = filled(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    taken = [os.dup(0) for _ in range(1_100)]
    try:
        assert cleaner.clean(DiskDirectory(str(tmp_path)), request, go_on).segments
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
