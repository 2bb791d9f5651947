"""A broker whose groups are asked and told in one line each, and whose calls fail when a test says so."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.group_requests import (
    DELETE_GROUPS,
    GROUP,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    commit_values,
    fetch_offsets_values,
    join_values,
    serve_groups,
    sync_values,
)
from tests.wire.harness import DELETE_TOPICS, Harness, seconds
from tidelog.broker.data_plane.coordinators import Coordinators
from tidelog.protocol.errors import ErrorCode


def groups_broker(directory: Path, **properties: str) -> Harness:
    """With all its groups in one partition, and a topic `t`."""
    own = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "1"}
    harness = Harness(directory, **own | properties)
    serve_groups(harness)
    harness.create_topic("t")
    return harness


def finish_work(harness: Harness) -> None:
    coordinators = harness.broker.coordinators
    while coordinators.has_work:
        coordinators.work()
        harness.settle()


def finish_loading(harness: Harness) -> None:
    """With what else there is to do left as it is."""
    for shard in harness.broker.coordinators._runtime.all():
        while not shard.journal.is_loaded:
            harness.broker.coordinators._runtime._load(shard)


def restart(harness: Harness) -> None:
    harness.start()
    finish_work(harness)


def commit(harness: Harness, offset: int, group_id: str = GROUP) -> ErrorCode:
    values = commit_values(harness, 8, {"t": [(0, offset)]}, group_id=group_id)
    answer = harness.ask(OFFSET_COMMIT, 8, **values)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed(harness: Harness, group_id: str = GROUP, is_stable: bool = True) -> int:
    values = fetch_offsets_values(harness, 7, (group_id, {"t": [0]}))
    answer = harness.ask(OFFSET_FETCH, 7, **values | {"require_stable": is_stable})
    assert answer.error_code == 0, answer
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def delete_topic(harness: Harness, name: str = "t") -> None:
    answer = harness.ask(DELETE_TOPICS, 3, topic_names=(name,), timeout=seconds(1))
    assert answer.responses[0].error_code == 0


def delete_group(harness: Harness, group_id: str = GROUP) -> ErrorCode:
    answer = harness.ask(DELETE_GROUPS, 2, groups_names=(group_id,))
    code: ErrorCode = answer.results[0].error_code
    return code


def join(harness: Harness) -> str:
    """The only member of a group that has yet to share out."""
    answer = harness.ask(JOIN_GROUP, 3, **join_values(3))
    assert answer.error_code == 0
    member_id: str = answer.member_id
    return member_id


def share_out(harness: Harness, member_id: str, generation: int = 1) -> Any:
    values = sync_values(4, member_id, generation, {member_id: b"all"})
    return harness.ask(SYNC_GROUP, 4, **values)


def hold_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards stay as they are, loading or long, until the test has them work."""
    monkeypatch.setattr(Coordinators, "has_work", False)


def fail_calls(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, failure: Exception, at: tuple[int, ...] = (1,)
) -> list[int]:
    """Have the calls of a method that `at` tells raise, counted from one; the count so far."""
    real: Callable[..., Any] = getattr(owner, name)
    count = [0]

    def flaky(*args: Any, **values: Any) -> Any:
        count[0] += 1
        if count[0] in at:
            raise failure
        return real(*args, **values)

    monkeypatch.setattr(owner, name, flaky)
    return count


def too_many_open() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")
