"""A request that waits for what a coordinator decides; the answers of a shard that nobody waits for."""

from __future__ import annotations

import pytest

from tests.broker.parts import make_disks, make_kernel, make_partitions, make_topic
from tests.broker.test_runtime import Counts, Told
from tidelog.broker.data_plane.shard import Awaited, Shard
from tidelog.broker.waiting import WaitingRoom
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.journal import Journal

CONNECTION_MAX = 1_000


@pytest.fixture
def waiting() -> WaitingRoom:
    return WaitingRoom()


def asked(waiting: WaitingRoom) -> Awaited:
    return Awaited(waiting, 100, lambda answer: b"+%d" % answer, lambda code: b"-%d" % code)


def test_what_is_decided_at_once_is_not_parked(waiting: WaitingRoom) -> None:
    request = asked(waiting)
    request.give(5)
    request.fail(ErrorCode.not_coordinator)
    assert request.result() == b"+5", "the first answer counts"


def test_what_is_decided_later_leaves_the_waiting_room(waiting: WaitingRoom) -> None:
    request, connection = asked(waiting), Connection(CONNECTION_MAX)
    assert request.result() is request and waiting.park(request, connection)
    request.fail(ErrorCode.not_coordinator)
    assert request.is_gone and connection.output == [b"-%d" % ErrorCode.not_coordinator]


def test_who_waits_too_long_is_told_to_try_again(waiting: WaitingRoom) -> None:
    request, connection = asked(waiting), Connection(CONNECTION_MAX)
    waiting.park(request, connection)
    waiting.tick(101)
    while waiting.wake_next():
        pass
    assert request.is_gone and connection.output == [b"-%d" % ErrorCode.coordinator_not_available]


def test_a_shard_forgets_the_answers_of_those_who_are_gone() -> None:
    kernel = make_kernel()
    (partition,) = make_partitions(kernel, make_disks(kernel), make_topic()).all()
    machine = Counts()
    shard = Shard(Journal(partition, machine), machine)
    stays, gone = Told(), Told()
    gone.is_gone = True
    shard.uncommitted.extend([(1, [(gone, 1), (stays, 2)]), (2, [(gone, 3)])])
    shard.drop_gone()
    assert list(shard.uncommitted) == [(1, [(stays, 2)])] and shard.partition is partition
