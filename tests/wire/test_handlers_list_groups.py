"""ListGroups, in every version."""

from __future__ import annotations

from typing import Any

from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    GROUP,
    LIST_GROUPS,
    consumer_beat_values,
)
from tests.wire.harness import Harness
from tests.wire.test_handlers_group_membership import LONG, each_version, joined
from tests.wire.test_handlers_group_offsets import commit


def listed(harness: Harness, version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
    answer = harness.ask(LIST_GROUPS, version, states_filter=states, types_filter=types)
    assert answer.error_code == 0
    return answer.groups


def one_of_each(harness: Harness) -> None:
    """A classic group that is stable, a consumer group, and one of commits alone."""
    joined(harness)
    harness.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, group_id="modern"))
    commit(harness, 9, {"t": [(0, 1)]}, group_id="simple")


@each_version(LIST_GROUPS)
def test_all_groups_are_listed(coordinator: Harness, version: int) -> None:
    one_of_each(coordinator)
    rows = {row.group_id: row for row in listed(coordinator, version)}
    types = {group_id: row.protocol_type for group_id, row in rows.items()}
    assert types == {GROUP: "consumer", "modern": "consumer", "simple": ""}
    if version >= 4:
        assert rows["simple"].group_state == "Empty" and rows[GROUP].group_state == "Stable"
    if version >= 5:
        kinds = {group_id: row.group_type for group_id, row in rows.items()}
        assert kinds == {GROUP: "classic", "modern": "consumer", "simple": "classic"}


def test_groups_are_filtered_by_state_and_type(coordinator: Harness) -> None:
    one_of_each(coordinator)

    def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        return sorted(row.group_id for row in listed(coordinator, 5, states, types))

    assert names(states=("Empty",)) == names(states=("eMPTY", "x")) == ["simple"]
    assert names(types=("consumer",)) == names(types=("CONSUMER",)) == ["modern"]
    assert names(("Stable", "Reconciling"), ("classic",)) == [GROUP]
    assert names(states=("", LONG)) == names(types=("share", "")) == []
