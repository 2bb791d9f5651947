"""Member ids that were given to clients which have yet to join with them.

**Invariant:** an id is here from the moment it is given until somebody joins or leaves with it, or until its
time is over or its group is. All of them together are bounded in number and size.
"""

from __future__ import annotations

from tidelog.base.limits import PENDING_BYTES_MAX, PENDING_MEMBERS_MAX

Given = tuple[str, str]  # group, member


class GivenIds:
    def __init__(self) -> None:
        self._ids: dict[Given, None] = {}  # the oldest first
        self._size = 0

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, group_id: str, member_id: str) -> None:
        self._ids[group_id, member_id] = None
        self._size += len(group_id) + len(member_id)

    def remove(self, group_id: str, member_id: str) -> None:
        if (group_id, member_id) in self._ids:
            del self._ids[group_id, member_id]
            self._size -= len(group_id) + len(member_id)

    @property
    def excess(self) -> Given | None:
        """The oldest if there are too many; never the only one."""
        if len(self._ids) > PENDING_MEMBERS_MAX or (self._size > PENDING_BYTES_MAX and len(self._ids) > 1):
            return next(iter(self._ids))
        return None
