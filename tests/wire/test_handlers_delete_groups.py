"""DeleteGroups, in every version."""

from __future__ import annotations

from tests.wire.group_requests import (
    DELETE_GROUPS,
    GROUP,
    LEAVE_GROUP,
    leave_values,
)
from tests.wire.harness import Harness
from tests.wire.test_handlers_group_membership import LONG, each_version, joined
from tests.wire.test_handlers_group_offsets import commit, committed
from tests.wire.test_handlers_list_groups import listed, one_of_each
from tidelog.protocol.errors import ErrorCode


@each_version(DELETE_GROUPS)
def test_groups_without_members_are_deleted(coordinator: Harness, version: int) -> None:
    one_of_each(coordinator)
    names = ("simple", GROUP, "modern", "absent", "", LONG, "simple")
    answer = coordinator.ask(DELETE_GROUPS, version, groups_names=names)
    absent, busy = ErrorCode.group_id_not_found, ErrorCode.non_empty_group
    assert {row.group_id: row.error_code for row in answer.results} == {
        "simple": ErrorCode.none,
        GROUP: busy,
        "modern": busy,
        "absent": absent,
        "": absent,
        LONG: absent,
    }
    assert len(answer.results) == len({*names})
    assert committed(coordinator, 0, group_id="simple")[0][0] == -1


def test_a_deleted_group_stays_deleted_after_a_restart(coordinator: Harness) -> None:
    member_id = joined(coordinator)
    commit(coordinator, 9, {"t": [(0, 1)]}, member_id, 1)
    coordinator.ask(LEAVE_GROUP, 5, **leave_values(5, (member_id, None)))
    assert coordinator.ask(DELETE_GROUPS, 2, groups_names=(GROUP,)).results[0].error_code == 0
    coordinator.start()
    assert listed(coordinator, 5) == ()
    assert committed(coordinator, 0)[0][0] == -1
