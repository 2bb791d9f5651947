"""Clients that come and go: whatever a broker keeps for somebody is made, and given up in many ways.

Frames are the benchmark's, made by hand, so that a round is the broker's work and not its clients'. All names
are of their round: nothing is found again that an earlier round has left.

**Invariant:** when a round is over, no client of it is there, and no topic, group or record is left but in
the topic `LIVE`. Only sessions of fetches may stay, `Counts.open_sessions` of them and no more.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.load import group_frames
from bench.load.admin import Admin
from bench.load.batches import uvarint
from bench.load.frames import compact_string, whole_frame

from tests.chaos.awaiting import await_that
from tests.wire.harness import batch_of

LIVE, QUIET = "live", "quiet"
SLOTS = 1_000  # of fetch sessions, as by default
REBALANCE_MS = 200  # of members that are killed
MEMBERS_PER_GROUP = 20  # of those
TOPICS_AT_ONCE, GROUPS_AT_ONCE = 100, 500
UNENDING_MS = 60_000
PARTITIONS_AT = 4 + 4 + 1 + 1  # in an answer of Produce: behind one topic's name comes one partition
ERROR_AT = 4 + 4 + 1 + 4  # in those of InitProducerId and Fetch
NO_ERROR, UNKNOWN_MEMBER_ID = 0, 25
GROUP_ID_NOT_FOUND = 69  # of one without members and offsets: the sweep for expired offsets takes it too
KINDS_OF_CONNECTIONS = 5
_ABORTED = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: a close sends RST
_HELLO = whole_frame(18, 3, 0, compact_string("churn") + compact_string("1") + b"\x00")
_INIT_PRODUCER = whole_frame(22, 4, 0, b"\x00" + struct.pack(">iqh", 60_000, -1, -1) + b"\x00")


@dataclass(frozen=True)
class Counts:
    """How many of each a round has."""

    connections: int
    topics: int
    groups: int
    producers: int
    sessions: int
    killed_members: int
    session_ms: int  # of those, and of all members of the newer protocol

    @property
    def open_sessions(self) -> int:
        """A tenth of them are not closed, as far as there are slots."""
        return min(self.sessions // 10, SLOTS)


class Churn:
    def __init__(self, port: int, counts: Counts) -> None:
        self.acknowledged_count = 0  # records in `LIVE`
        self._address = ("127.0.0.1", port)
        self._counts = counts
        self._round = 0
        self._killed: list[str] = []  # groups whose members were
        self._open_sessions: list[int] = []
        with Admin(*self._address) as admin:
            admin.create_topics([LIVE, QUIET], 1)
            await_that(lambda: _has_coordinator(admin), "no coordinator for groups", UNENDING_MS / 1_000)

    def go_round(self) -> None:
        """What goes by time comes first, so that the time passes meanwhile."""
        self._round += 1
        self._kill_members()
        self._come_as_producers()
        self._join_and_leave_groups()
        self._make_and_delete_topics()
        self._open_and_close_sessions()
        self._break_connections()

    def delete_killed_groups(self) -> None:
        """Once none of their members is left."""
        self._delete_groups(self._killed)

    # Connections.

    def _break_connections(self) -> None:
        half = _produce(LIVE, bytes(batch_of(value=bytes(20_000))))[:7_000]
        parked = _fetch(LIVE, wait_ms=UNENDING_MS, offset=self.acknowledged_count) + _fetch(
            QUIET, wait_ms=UNENDING_MS
        )
        said = (b"", _HELLO, half, parked, b"\x00\x00")
        assert len(said) == KINDS_OF_CONNECTIONS
        for number in range(self._counts.connections):
            with socket.create_connection(self._address, UNENDING_MS / 1_000) as opened:
                opened.sendall(said[number % KINDS_OF_CONNECTIONS])
                if said[number % KINDS_OF_CONNECTIONS] is _HELLO:
                    assert opened.recv(4_096)
                if number % 2:
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTED)

    # Topics.

    def _make_and_delete_topics(self) -> None:
        batch = bytes(batch_of(timestamp=_now_ms()))
        names = [f"topic-{self._round}-{number}" for number in range(self._counts.topics)]
        with Admin(*self._address) as admin:
            for piece in _pieces(names, TOPICS_AT_ONCE):
                admin.create_topics(piece, 1)
                for name in piece:
                    _check_produced(admin.exchange(_produce(name, batch)), name)
                admin.delete_topics(piece)

    # Groups.

    def _join_and_leave_groups(self) -> None:
        names = [f"group-{self._round}-{number}" for number in range(self._counts.groups)]
        with Admin(*self._address) as admin:
            for number, name in enumerate(names):
                if number % 2:
                    _be_consumer_member(admin, name)
                else:
                    _be_classic_member(admin, name)
        self._delete_groups(names)

    def _delete_groups(self, names: Sequence[str]) -> None:
        with Admin(*self._address) as admin:
            for piece in _pieces(names, GROUPS_AT_ONCE):
                answer = admin.exchange(_delete_groups(piece))
                errors = list(_errors_of_groups(answer, piece))
                assert set(errors) <= {NO_ERROR, GROUP_ID_NOT_FOUND}, errors

    def _kill_members(self) -> None:
        """The first has yet to say who reads what, and the others wait for it, when all of them die."""
        count = self._counts.killed_members // MEMBERS_PER_GROUP
        self._killed = [f"killed-{self._round}-{number}" for number in range(count)]
        for number, name in enumerate(self._killed):
            for place in range(MEMBERS_PER_GROUP):
                with Admin(*self._address) as member:
                    if number % 2:
                        joining = group_frames.consumer_join_frame(name, f"{name}-{place}", LIVE)
                    else:
                        times = self._counts.session_ms, REBALANCE_MS
                        given = _given_id(member, name, *times)
                        joining = group_frames.join_frame(name, given, LIVE, *times)
                    member.socket.sendall(joining)
                    if place % 2:
                        member.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTED)

    # Producers.

    def _come_as_producers(self) -> None:
        for _ in range(self._counts.producers):
            with Admin(*self._address) as producer:
                answer = producer.exchange(_INIT_PRODUCER)
                error, producer_id, epoch = struct.unpack_from(">hqh", answer, ERROR_AT)
                assert error == 0, error
                own = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
                batch = bytes(batch_of(timestamp=_now_ms(), **own))
                _check_produced(producer.exchange(_produce(LIVE, batch)), LIVE)
                self.acknowledged_count += 1

    # Fetch sessions.

    def _open_and_close_sessions(self) -> None:
        """Those of the round before that were left open are closed first, or no slot would be free."""
        with Admin(*self._address) as admin:
            for session in self._open_sessions:
                _close_session(admin, session)
            left_open = self._counts.sessions // 10
            for _ in range(self._counts.sessions - left_open):
                session = _open_session(admin)
                assert session, "a slot was free"
                _close_session(admin, session)
            opened = [_open_session(admin) for _ in range(left_open)]
            self._open_sessions = [session for session in opened if session]
        assert len(self._open_sessions) == self._counts.open_sessions


def _be_classic_member(admin: Admin, group: str) -> None:
    member_id = _given_id(admin, group)
    joined = group_frames.read_joined(_well(admin.exchange(group_frames.join_frame(group, member_id, LIVE))))
    assigned = group_frames.assignments([group_frames.assigned(member_id, LIVE, [0])])
    _well(admin.exchange(group_frames.sync_frame(group, joined.generation, member_id, assigned)))
    _commit(admin, group, joined.generation, member_id)
    _well(admin.exchange(group_frames.leave_frame(group, [member_id])))


def _given_id(
    admin: Admin,
    group: str,
    session_ms: int = group_frames.SESSION_TIMEOUT_MS,
    rebalance_ms: int = group_frames.REBALANCE_TIMEOUT_MS,
) -> str:
    answer = admin.exchange(group_frames.join_frame(group, "", LIVE, session_ms, rebalance_ms))
    assert group_frames.error_of(answer) == group_frames.MEMBER_ID_REQUIRED, answer
    return group_frames.read_joined(answer).member_id


def _be_consumer_member(admin: Admin, group: str) -> None:
    member_id = f"{group}-member"
    told = group_frames.read_told(
        _well(admin.exchange(group_frames.consumer_join_frame(group, member_id, LIVE)))
    )
    _commit(admin, group, told.epoch, member_id)
    _well(admin.exchange(group_frames.consumer_heartbeat_frame(group, member_id, -1)))


def _commit(admin: Admin, group: str, epoch: int, member_id: str) -> None:
    answer = admin.exchange(group_frames.commit_frame(group, epoch, member_id, LIVE, [0], 1))
    layout = group_frames.commit_layout(LIVE, 1)
    assert answer[layout.error_position : layout.error_position + 2] == b"\x00\x00", answer


def _has_coordinator(admin: Admin) -> bool:
    """Whether it is found, and answers; who asks has the topic made that keeps groups."""
    admin.exchange(whole_frame(10, 4, 0, b"\x00" + b"\x02" + compact_string("first") + b"\x00"))
    answer = admin.exchange(group_frames.heartbeat_frame("first", 0, "nobody"))
    return group_frames.error_of(answer) == UNKNOWN_MEMBER_ID


def _well(answer: bytes) -> bytes:
    error = group_frames.error_of(answer)
    assert error == group_frames.NO_ERROR, error
    return answer


def _delete_groups(groups: Sequence[str]) -> bytes:
    return whole_frame(42, 2, 0, uvarint(len(groups) + 1) + b"".join(map(compact_string, groups)) + b"\x00")


def _errors_of_groups(answer: bytes, groups: Sequence[str]) -> Iterator[int]:
    position = 4 + 4 + 1 + 4 + len(uvarint(len(groups) + 1))
    for _ in groups:
        position += answer[position]  # a name of less than 127 bytes: its length and one, then the name
        yield int.from_bytes(answer[position : position + 2], "big", signed=True)
        position += 2 + 1


def _produce(topic: str, batch: bytes) -> bytes:
    data = struct.pack(">i", 0) + uvarint(len(batch) + 1) + batch + b"\x00"
    body = b"\x00" + struct.pack(">hi", -1, 30_000) + b"\x02" + compact_string(topic) + b"\x02" + data
    return whole_frame(0, 11, 0, body + b"\x00\x00")


def _check_produced(answer: bytes, topic: str) -> None:
    position = PARTITIONS_AT + len(compact_string(topic)) + 1 + 4
    error = int.from_bytes(answer[position : position + 2], "big", signed=True)
    assert error == 0, f"writing to {topic}: {error}"


def _fetch(
    topic: str | None, session: int = 0, epoch: int = -1, *, wait_ms: int = 0, offset: int = 0
) -> bytes:
    body = struct.pack(">iiiibii", -1, wait_ms, 1, 50 << 20, 0, session, epoch)
    if topic is None:
        body += b"\x01"
    else:
        part = struct.pack(">iiqiqib", 0, -1, offset, -1, -1, 1 << 20, 0)
        body += b"\x02" + compact_string(topic) + b"\x02" + part + b"\x00"
    return whole_frame(1, 12, 0, body + b"\x01\x01\x00")


def _open_session(admin: Admin) -> int:
    """0 if there is no slot for it."""
    error, session = struct.unpack_from(">hi", admin.exchange(_fetch(QUIET, epoch=0)), ERROR_AT)
    assert error == 0, error
    return int(session)


def _close_session(admin: Admin, session: int) -> None:
    error, left = struct.unpack_from(">hi", admin.exchange(_fetch(None, session)), ERROR_AT)
    assert (error, left) == (0, 0)


def _pieces(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
