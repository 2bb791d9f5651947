"""The loop wakes when a session of a group ends, not with the tick after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.compat.cluster.raw import ask, part
from tidelog.server import loop
from tidelog.testing import Broker

JOIN_GROUP, SYNC_GROUP, FIND_COORDINATOR = (11, 3), (14, 2), (10, 3)
SESSION_MS = 300
LONG_MS = 60_000


def join(broker: Broker) -> Any:
    """Answered when the generation begins."""
    protocol = part(JOIN_GROUP, "JoinGroupRequestProtocol", name="range", metadata=b"")
    return ask(
        broker,
        JOIN_GROUP,
        group_id="g",
        session_timeout=timedelta(milliseconds=SESSION_MS),
        rebalance_timeout=timedelta(milliseconds=LONG_MS),
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )


def test_who_waits_for_a_silent_member_is_answered_when_its_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1) as broker:
        ask(broker, FIND_COORDINATOR, key="g", key_type=0)
        silent = join(broker)
        assignment = part(
            SYNC_GROUP, "SyncGroupRequestAssignment", member_id=silent.member_id, assignment=b""
        )
        monkeypatch.setattr(loop, "TICK_MS", 100 * LONG_MS)
        ask(
            broker,
            SYNC_GROUP,
            group_id="g",
            generation_id=silent.generation_id,
            member_id=silent.member_id,
            assignments=(assignment,),
        )
        answer = join(broker)
        monkeypatch.undo()
    assert answer.error_code == 0
    assert [member.member_id for member in answer.members] == [answer.member_id]
