"""The queue of partitions that change their directory: one at a time, and which of two wishes counts."""

from __future__ import annotations

from tests.broker.parts import append, make_disks, make_kernel, make_partitions, make_topic
from tests.log.making import NOW_MS
from tidelog.broker.data_plane.moves import Move, Moves


class Wanted:
    """Three partitions in the first of three directories."""

    def __init__(self) -> None:
        kernel = make_kernel()
        disks = make_disks(kernel, 3)
        for directory in disks.directories[1:]:
            directory.partition_count = 10
        self.home, self.second, self.third = disks.directories
        topic = make_topic(partition_count=3)
        self.partitions = list(make_partitions(kernel, disks, topic).all())
        for partition in self.partitions:
            append(partition)
        self.moves = Moves()

    def begin(self) -> Move:
        move = self.moves.next_move()
        assert move is not None
        move.begin_round(NOW_MS)
        move.next_copy().run()
        return move


def test_partitions_move_one_at_a_time_in_the_order_in_which_they_were_asked_for() -> None:
    wanted = Wanted()
    for partition in wanted.partitions:
        assert wanted.moves.request(partition, wanted.second, bytes(16)) is None
    moved = []
    while wanted.moves:
        move = wanted.begin()
        assert wanted.moves.next_move() is None, "one copy is under way"
        assert wanted.moves.on_copied(move)
        ready = wanted.moves.ready()
        if ready is not None:
            moved.append(wanted.moves.finish(ready, NOW_MS).partition)
    assert moved == wanted.partitions
    assert {partition.directory for partition in moved} == {wanted.second}


def test_the_last_wish_counts_and_the_one_before_is_thrown_away() -> None:
    wanted = Wanted()
    partition = wanted.partitions[0]
    wanted.moves.request(partition, wanted.second, bytes(16))
    first = wanted.moves.of(partition)
    assert wanted.moves.request(partition, wanted.second, bytes(16)) is None
    assert wanted.moves.of(partition) is first, "the same wish again"
    assert wanted.moves.request(partition, wanted.third, bytes(16)) is first
    second = wanted.moves.of(partition)
    assert second is not None and second.target is wanted.third


def test_naming_the_home_is_no_move() -> None:
    wanted = Wanted()
    partition = wanted.partitions[0]
    wanted.moves.request(partition, wanted.second, bytes(16))
    assert wanted.moves.request(partition, wanted.home, bytes(16)) is not None
    assert wanted.moves.of(partition) is None and not wanted.moves


def test_a_folder_that_is_being_written_is_kept_until_its_copy_has_ended() -> None:
    wanted = Wanted()
    partition = wanted.partitions[0]
    wanted.moves.request(partition, wanted.second, bytes(16))
    move = wanted.begin()
    assert wanted.moves.cancel(partition) is None
    assert not wanted.moves.on_copied(move) and not wanted.moves


def test_a_directory_knows_the_moves_out_of_it_and_into_it() -> None:
    wanted = Wanted()
    first, second, _ = wanted.partitions
    wanted.moves.request(first, wanted.second, bytes(16))
    wanted.moves.request(second, wanted.third, bytes(16))
    assert wanted.moves.touching(wanted.second) == [first]
    assert wanted.moves.touching(wanted.home) == [first, second]
    wanted.moves.stop()
    assert wanted.moves.touching(wanted.home) == []
