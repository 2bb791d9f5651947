"""Sessions end when they end: the loop is told when, and a request that comes later finds them over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.shards import groups_broker, join, share_out
from tests.wire.group_requests import HEARTBEAT, OFFSET_COMMIT, beat_values, commit_values, join_values
from tests.wire.harness import Harness
from tidelog.protocol.errors import ErrorCode

SESSION_MS = int(join_values(3)["session_timeout"].total_seconds() * 1_000)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return groups_broker(tmp_path / "data")


def pass_time(harness: Harness, milliseconds: int) -> None:
    """With a loop that is too busy to see to it."""
    broker = harness.broker
    broker.clock.set(broker.clock.now_ms + milliseconds, broker.clock.uptime_ms + milliseconds)


def beat(harness: Harness, member_id: str) -> ErrorCode:
    answer = harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1))
    code: ErrorCode = answer.error_code
    return code


def commit(harness: Harness, member_id: str, offset: int) -> ErrorCode:
    values = commit_values(harness, 8, {"t": [(0, offset)]}, member_id, 1)
    code: ErrorCode = harness.ask(OFFSET_COMMIT, 8, **values).topics[0].partitions[0].error_code
    return code


def test_the_loop_is_told_when_a_session_ends(harness: Harness) -> None:
    member_id = join(harness)
    share_out(harness, member_id)
    assert harness.broker.next_due_ms == harness.broker.clock.uptime_ms + SESSION_MS
    harness.advance(1_000)
    beat(harness, member_id)
    harness.advance(SESSION_MS - 1_000)
    assert harness.broker.next_due_ms == harness.broker.clock.uptime_ms + 1_000
    assert beat(harness, member_id) == ErrorCode.none


def test_a_heartbeat_one_moment_late_finds_the_session_over(harness: Harness) -> None:
    member_id = join(harness)
    share_out(harness, member_id)
    pass_time(harness, SESSION_MS - 1)
    assert beat(harness, member_id) == ErrorCode.none
    pass_time(harness, SESSION_MS)
    assert beat(harness, member_id) == ErrorCode.unknown_member_id


def test_a_commit_one_moment_late_is_refused(harness: Harness) -> None:
    member_id = join(harness)
    share_out(harness, member_id)
    assert commit(harness, member_id, 5) == ErrorCode.none
    pass_time(harness, SESSION_MS)
    assert commit(harness, member_id, 6) == ErrorCode.unknown_member_id
