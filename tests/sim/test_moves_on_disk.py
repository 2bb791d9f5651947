"""A partition changes directory while it is written, cut and trimmed, and the power goes or the broker is
killed at any moment: what was acknowledged as durable is there afterwards, once, in one of the two
directories (AlterReplicaLogDirs). A directory that is lost with it takes the log along, or takes nothing:
what is left of a move never passes for the log."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from tests.log.making import make_batch, read_log, split
from tests.sim.disk import Killed
from tests.sim.node import BrokerOnDisk
from tests.sim.test_log_on_disk import PART_COUNT, seeds
from tests.soak import is_soak
from tidelog.base.files import File
from tidelog.base.limits import MOVE_REST_SIZE_MAX, MOVE_SEALS_MAX
from tidelog.broker.data_plane import moves
from tidelog.log.directory import LogDirectory
from tidelog.log.format.names import LEADER_EPOCHS
from tidelog.log.manifest import LEFT, MANIFEST
from tidelog.protocol.records import read_records
from tidelog.replication.follower import Cut
from tidelog.replication.partition import Partition, Role

FOLDERS = ("logs", "more")
RETENTION_CHECK_MS = 400_000
LIFE_COUNT_MAX = 3
POWER_CUTS, POWER_CUTS_IN_SOAK = 2, 25  # of each step of a move


def moving(seed: int) -> BrokerOnDisk:
    node = BrokerOnDisk(seed, flush_messages=1, segment_bytes=2_000)
    node.stop()
    node.start(FOLDERS)
    node.create_topic()
    return node


def records_in(partition: Partition) -> dict[int, bytes]:
    return {
        record.offset: record.value or b""
        for _, batch in split(read_log(partition.log))
        for record in read_records(batch)
    }


class Writer:
    """Writes to a partition that moves, and knows what must be found of it, and what may be."""

    def __init__(self, node: BrokerOnDisk, random: Random) -> None:
        self.node = node
        self.random = random
        self.acknowledged: dict[int, bytes] = {}
        self.possible: dict[int, set[bytes]] = {}  # what was written there, and not cut off for good
        self.move_count = 0
        self.cut_count = 0
        self._sent: dict[int, tuple[int, bytes]] = {}
        self._cut_from: int | None = None
        self._number = 0

    @property
    def partition(self) -> Partition:
        return self.node.partition()

    def step(self) -> None:
        before = self.partition.directory
        match self.random.randrange(9):
            case 0 | 1:
                self.produce()
            case 2 | 3:
                self.node.end_flushes()
            case 4 | 5:
                self.node.run_copies()
            case 6:
                self.cut()
            case 7 if self.random.randrange(3) == 0:
                self.trim()
            case _:
                self.node.tick(100)
                if self.random.randrange(2):
                    self.move_to(self.random.randrange(2))
        self.note()
        self.move_count += self.partition.directory is not before

    def produce(self) -> None:
        """Values are of one size: a copy with some from before a cut is not found out by its length."""
        self._number += 1
        value = b"%04d-%010d" % (self._number, self.random.randrange(1 << 30))
        offset = self.partition.log.end_offset
        self.possible.setdefault(offset, set()).add(value)
        self._sent[self.node.produce(make_batch(value=value))] = offset, value

    def note(self) -> None:
        """Hear what was answered, and whether a cut is through."""
        for answered, outcome in self.node.take_answers().items():
            offset, value = self._sent.pop(answered)
            if not outcome.error_code:
                assert outcome.base_offset == offset
                self.acknowledged[offset] = value
        partition = self.partition
        if self._cut_from is not None and not self.node.broker.replicas.cuts.is_pending(partition):
            if partition.is_open:
                self.forget(partition.log.end_offset, self.possible)
                self.cut_count += 1
            self._cut_from = None

    @staticmethod
    def forget(offset: int, written: dict[int, bytes] | dict[int, set[bytes]]) -> None:
        for above in [each for each in written if each >= offset]:
            del written[above]

    def move_to(self, place: int) -> None:
        partition, target = self.partition, self.node.directories[place]
        if not partition.error_code and target.failure is None:
            self.node.broker.relocation.move(partition, target)
            self.node.settle()

    def cut(self) -> None:
        """Another broker leads for a moment, and has less."""
        partition = self.partition
        if partition.role is not Role.LEADER or partition.facts is None or self._sent:
            return
        if self.node.disk.is_faulty:
            return
        log = partition.log
        self.cut_to(self.random.randint(max(log.start_offset, log.end_offset - 8), log.end_offset))

    def cut_to(self, offset: int) -> None:
        partition, replicas = self.partition, self.node.broker.replicas
        assert partition.facts is not None
        self._cut_from = offset
        self.forget(offset, self.acknowledged)
        partition.become_follower(replace(partition.facts, leader=2, version=-1))
        replicas.cuts.plan(replicas.fetching.fetcher(2), [(partition, Cut(offset))])
        self.node.settle()

    def trim(self) -> None:
        """Delete records, and let retention look."""
        partition = self.partition
        if partition.is_open:
            offset = self.random.randint(partition.log.start_offset, partition.high_watermark)
            try:
                partition.trim(offset)
            except OSError as failure:
                self.node.broker.disks.fail(partition.directory, failure)
            for below in [each for each in self.acknowledged if each < offset]:
                del self.acknowledged[below]
            self.node.tick(RETENTION_CHECK_MS)

    def check(self) -> None:
        """After a crash: all is there, nothing else is, and in one place."""
        found = records_in(self.partition)
        expected = self.acknowledged
        assert {offset: found.get(offset) for offset in expected} == expected
        for offset, value in found.items():
            assert value in self.possible.get(offset, ()), f"{value!r} at {offset} had been cut off"
        homes = [name for name in FOLDERS if self.node.disk.root.folder(name).exists("t-0")]
        assert len(homes) == 1, homes

    def begin_life(self, is_settled: bool) -> None:
        """If the last one ended with a power cut, what is there is on the disk. Else a cut may not be."""
        self._sent, self._cut_from = {}, None
        if is_settled:
            start_offset = self.partition.log.start_offset  # what was before it may be seen once more
            self.possible = {offset: each for offset, each in self.possible.items() if offset < start_offset}
            self.possible |= {offset: {value} for offset, value in records_in(self.partition).items()}


def live(seed: int) -> Writer:
    random = Random(seed)
    rest_max, seals_max = random.choice(((MOVE_REST_SIZE_MAX, MOVE_SEALS_MAX), (200, 1), (100, 2)))
    with patch.multiple(moves, MOVE_REST_SIZE_MAX=rest_max, MOVE_SEALS_MAX=seals_max):
        return live_with(seed, random)


def live_with(seed: int, random: Random) -> Writer:
    node = moving(seed)
    writer = Writer(node, random)
    for _ in range(random.randint(1, LIFE_COUNT_MAX)):
        if random.randrange(4) == 0:
            random.choice([node.disk.fail_sync, node.disk.fail_write])(random.randrange(40))
        try:
            for _ in range(random.randrange(5, 80)):
                if node.disk.kills_after is None and random.randrange(20) == 0:
                    node.disk.kills_after = random.randrange(80)
                writer.step()
        except Killed:
            pass
        is_power_cut = random.randrange(2) == 0
        node.crash() if is_power_cut else node.disk.kill()
        lost = random.choice(FOLDERS) if random.randrange(8) == 0 else None
        if lost is not None:
            node.disk.root.remove(lost)
        node.start(FOLDERS)
        if lost is not None and writer.partition.role is not Role.LEADER:
            return writer  # it was with the log, and nothing else passes for that
        writer.check()
        writer.begin_life(is_power_cut)
    return writer


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_nothing_acknowledged_is_lost_by_a_crash_in_a_move(part: int) -> None:
    for seed in seeds(part):
        try:
            live(seed)
        except Exception as failure:
            failure.add_note(f"TIDELOG_SEED={seed}")
            raise


def test_the_steps_do_move_partitions_and_cut_them() -> None:
    lived = [live(seed) for seed in range(60)]
    assert sum(each.move_count for each in lived) >= 10
    assert sum(each.cut_count for each in lived) >= 20


def go(writer: Writer, place: int) -> None:
    """Move, while the log is written, until it is done or nothing happens any more."""
    node = writer.node
    writer.move_to(place)
    for _ in range(5):
        node.run_copies()
        node.end_flushes()
        writer.note()
        node.tick(100)
    node.run_copies()


def go_there(writer: Writer) -> Iterator[None]:
    """To the second directory; what comes before a `yield` is not killed."""
    for _ in range(12):
        writer.produce()
    writer.node.end_flushes()
    writer.move_to(1)
    yield
    for _ in range(3):  # they are the rest that is copied at the switch
        writer.produce()
    writer.node.end_flushes()
    writer.note()
    go(writer, 1)


def go_there_in_rounds(writer: Writer) -> Iterator[None]:
    """The active segment is copied in pieces, and written in between."""
    writer.produce()
    writer.node.end_flushes()
    writer.move_to(1)
    with patch.multiple(moves, MOVE_REST_SIZE_MAX=100, MOVE_SEALS_MAX=1):
        for count in (2, 3):
            for _ in range(count):
                writer.produce()
            while writer.node.end_flushes():
                writer.note()
            writer.node.run_copies()
        writer.produce()
        while writer.node.end_flushes():
            writer.note()
        yield
        go(writer, 1)


def go_there_and_back(writer: Writer) -> Iterator[None]:
    for _ in range(4):
        writer.produce()
    writer.node.end_flushes()
    writer.note()
    go(writer, 1)
    writer.node.tick(1_100)
    go(writer, 1)
    assert writer.partition.directory is writer.node.directories[1]
    writer.produce()
    writer.node.end_flushes()
    writer.note()
    yield
    go(writer, 0)


Story = Callable[[Writer], Iterator[None]]


def tell(story: Story, kills_after: int, seed: int) -> tuple[Writer, bool]:
    """A story, killed after so many steps; whether it was."""
    node = moving(seed)
    writer = Writer(node, node.random)
    parts = story(writer)
    next(parts)
    home = node.partition().directory
    node.disk.kills_after = kills_after
    try:
        next(parts, None)
    except Killed:
        return writer, True
    assert node.partition().directory is not home, "it has moved"
    return writer, False


@pytest.mark.soak
@pytest.mark.parametrize("story", [go_there, go_there_in_rounds, go_there_and_back])
@pytest.mark.parametrize("lost", [None, *FOLDERS])
def test_a_move_may_end_at_any_step(story: Story, lost: str | None) -> None:
    """By a kill, by a power cut, and with a directory that is lost as well."""
    power_cuts = POWER_CUTS_IN_SOAK if is_soak() else POWER_CUTS
    kills_after, is_killed = 0, True
    while is_killed:
        for seed in range(power_cuts + 1):
            writer, is_killed = tell(story, kills_after, seed)
            node = writer.node
            node.disk.kill() if seed == 0 else node.crash()
            if lost is not None:
                node.disk.root.remove(lost)
            node.start(FOLDERS)
            if lost is None or writer.partition.role is Role.LEADER:
                try:
                    writer.check()
                except AssertionError as failure:
                    failure.add_note(f"killed after {kills_after} steps, seed {seed}")
                    raise
        kills_after += 1
    assert kills_after > 40


@pytest.mark.parametrize("is_sealed", [True, False])
def test_what_is_cut_while_it_is_copied_is_not_in_the_copy(is_sealed: bool) -> None:
    """Neither from a sealed segment nor from the one that is copied in pieces."""
    node = moving(0)
    writer = Writer(node, node.random)
    with patch.multiple(moves, MOVE_REST_SIZE_MAX=0, MOVE_SEALS_MAX=9 if is_sealed else 0):
        writer.produce()
        writer.move_to(1)
        for count in (2, 1):
            for _ in range(count):
                writer.produce()
            while node.end_flushes():
                writer.note()
            node.run_copies()
        writer.cut_to(2)
        for _ in range(3):
            node.end_flushes()
            node.tick(1_100)
            writer.note()
        assert writer.cut_count == 1
        for _ in range(2):
            writer.produce()
        while node.end_flushes():
            writer.note()
    go(writer, 1)
    assert writer.partition.directory is node.directories[1]
    writer.check()


def test_an_epoch_that_began_while_the_log_was_copied_takes_another_round() -> None:
    """The flush that made it durable was the old folder's."""
    node = moving(0)
    writer = Writer(node, node.random)
    writer.produce()
    writer.move_to(1)
    writer.partition.log.epochs.assign(7, writer.partition.log.end_offset)
    while node.end_flushes():
        pass
    node.run_copies()
    assert len(node.copies) == 1
    count = node.disk.sync_count
    node.copies[0].copy.run()
    assert LEADER_EPOCHS in node.disk.synced_names[count:]
    node.run_copies()
    assert writer.partition.directory is node.directories[1]
    assert writer.partition.log.epochs.latest == 7


def test_what_retention_takes_after_it_was_copied_leaves_the_copy_too() -> None:
    node = moving(0)
    writer = Writer(node, node.random)
    for _ in range(60):
        writer.produce()
    while node.end_flushes():
        writer.note()
    writer.move_to(1)
    (request,), node.copies = node.copies, []
    request.copy.run()
    partition = writer.partition
    partition.trim(30)
    for _ in range(3):
        node.tick(RETENTION_CHECK_MS)
        node.end_flushes()
    first_base = partition.log.bases[0]
    assert first_base > 0
    node.broker.relocation.on_copied(request.move, None)
    node.settle()
    assert len(node.copies) == 1, "another round"
    node.run_copies()
    assert partition.directory is node.directories[1]
    names = [name for name in partition.log.directory.names() if name.endswith(".log")]
    assert min(names) == f"{first_base:020}.log"


@pytest.mark.parametrize("rest", [0, 3])
def test_the_loop_waits_for_no_more_fsyncs_of_a_move_than_it_must(rest: int) -> None:
    node = moving(0)
    writer = Writer(node, node.random)
    for _ in range(12):
        writer.produce()
    writer.move_to(1)
    for _ in range(rest):
        writer.produce()
    while node.end_flushes():
        pass
    disk, (request,) = node.disk, node.copies
    node.copies = []
    request.copy.run()
    count = disk.sync_count
    node.broker.relocation.on_copied(request.move, None)
    if rest:  # the segment that began with the move
        assert disk.synced_names[count] == f"{12:020}.log"
    assert disk.synced_names[count + bool(rest) :] == ["sim/more", MANIFEST]
    assert node.partition().directory is node.directories[1]


def test_an_old_directory_that_may_not_say_that_a_partition_left_is_not_trusted() -> None:
    """The line may be there or not: neither folder may be lost for it."""
    for seed in range(20):
        writer, node, old_home = switched(seed, lambda node: node.disk.fail_sync(2))
        assert old_home.failure is not None
        assert writer.partition.directory is node.directories[1] and writer.partition.role is Role.LEADER
        node.crash() if seed else node.disk.kill()
        node.start(FOLDERS)
        writer.check()


def test_a_line_that_cannot_be_written_leaves_the_partition_where_it_is() -> None:
    """The copy had its name by then: until it durably has another one, the log is not cut."""
    for seed in range(20):
        writer, node, old_home = switched(seed, fail_the_line)
        partition, relocation = writer.partition, node.broker.relocation
        assert partition.directory is old_home and old_home.failure is None
        assert relocation.is_leaving(partition) and not node.removals
        if seed % 2:
            node.run_copies()
            assert not relocation.is_leaving(partition)
            assert [each.names[0].endswith("-future") for each in node.removals] == [True]
        node.crash()
        node.start(FOLDERS)
        writer.check()
        writer.move_to(1)  # and its manifest is whole
        go(writer, 1)
        assert writer.partition.directory is node.directories[1]


def switched(seed: int, fail: Callable[[BrokerOnDisk], None]) -> tuple[Writer, BrokerOnDisk, LogDirectory]:
    """A move whose switch meets a failure."""
    node = moving(seed)
    writer = Writer(node, node.random)
    for number in range(6):
        if number == 3:
            writer.move_to(1)
        writer.produce()
    while node.end_flushes():
        pass
    writer.note()
    old_home, (request,) = node.partition().directory, node.copies
    node.copies = []
    request.copy.run()
    fail(node)
    node.broker.relocation.on_copied(request.move, None)
    node.disk.repair()
    node.settle()
    return writer, node, old_home


def fail_the_line(node: BrokerOnDisk) -> None:
    """Of the lines that the switch writes the second one: a full disk takes half of it."""
    manifest = node.partition().directory.manifest
    real = manifest._append

    def append(file: File, line: str) -> None:
        if line.startswith(LEFT):
            node.disk.fail_write(code=errno.ENOSPC, partial=0.5)
        real(file, line)

    manifest._append = append  # type: ignore[method-assign]
