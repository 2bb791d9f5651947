"""Pending member ids: allocated for clients that have not joined with them yet.

**Invariant:** an id is here from its allocation until a client joins or leaves with it, its timeout expires
or its group is deleted. Their number and total size are bounded.
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
        """The oldest id if there are too many; never the only one."""
        if len(self._ids) > PENDING_MEMBERS_MAX or (self._size > PENDING_BYTES_MAX and len(self._ids) > 1):
            return next(iter(self._ids))
        return None
