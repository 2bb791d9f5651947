"""OffsetCommit, OffsetFetch and OffsetDelete of groups that nobody is in; members commit elsewhere."""

from __future__ import annotations

from tests.differential.case import Case
from tests.differential.entities import milliseconds
from tests.differential.group_talk import COMMIT, FETCH_OFFSETS, GroupTalk
from tests.differential.world import ORDERS, SMALL

HERE = {ORDERS: [(0, 3), (2, 5)]}
METADATA_SIZE_MAX = 4_096


def offset_commit(case: Case) -> None:
    talk = GroupTalk(case, "committed")
    for epoch in (1, 0, -2, 2**31 - 1):
        talk.commit(f"of epoch {epoch} without a group", "", epoch)
        talk.commit(f"of a member of epoch {epoch} without a group", "nobody", epoch)
    talk.commit("of a member without a group", "nobody")
    talk.commit("of no group", group_id="")
    talk.commit("a simple one", spots=HERE)
    for offset in (0, -1, -2, 2**63 - 1, -(2**63)):
        talk.commit(f"offset {offset}", spots={ORDERS: [(1, offset)]})
        talk.fetch_offsets(f"of offset {offset}", {ORDERS: [1]})
    for leader in (-1, 5, -2):
        talk.commit(f"leader epoch {leader}", leader=leader)
        talk.fetch_offsets(f"of leader epoch {leader}", {ORDERS: [0]})
    for metadata in (None, "", "x" * METADATA_SIZE_MAX, "x" * (METADATA_SIZE_MAX + 1), "ü" * 4_000):
        what = f"metadata of {len(metadata)}" if metadata is not None else "no metadata"
        talk.commit(what, metadata=metadata)
        talk.fetch_offsets(f"of {what}", {ORDERS: [0]})
    for index in (3, 9, -1, 2**31 - 1):
        talk.commit(f"to partition {index}", spots={ORDERS: [(index, 1)]})
    for name in ("absent", "", "a b", "__consumer_offsets"):
        talk.commit(f"to {name!r}", spots={name: [(0, 1)]})
    talk.commit(
        "to known and unknown", spots={ORDERS: [(0, 1), (9, 1)], "absent": [(0, 1), (1, 1)], SMALL: [(0, 4)]}
    )
    talk.commit("to a partition twice", spots={ORDERS: [(1, 1), (1, 2)]})
    talk.fetch_offsets("of a partition committed twice", {ORDERS: [1]})
    talk.commit("to nothing", spots={})
    talk.commit("to no partitions", spots={ORDERS: []})
    talk.commit("to nothing, of a member", "nobody", 5, spots={})
    talk.commit("to unknown ones of an unknown member", "nobody", 5, spots={"absent": [(0, 1)]})
    talk.commit("by an instance of nobody", "", -1, group_instance_id="one")
    if case.api_key == COMMIT and case.version <= 4:
        for retention_ms in (0, 1, -2, 10**12):
            talk.commit(f"kept for {retention_ms}", retention_time=milliseconds(retention_ms))
    talk.describe("of commits alone")
    talk.delete("of commits alone")
    talk.close()


def offset_fetch(case: Case) -> None:
    talk = GroupTalk(case, "fetched")
    talk.fetch_offsets("of no such group", {ORDERS: [0]})
    talk.fetch_offsets("all of no such group", None)
    talk.commit("to be fetched", spots=HERE | {SMALL: [(0, 7)]})
    for is_stable in (False, True):
        talk.fetch_offsets(f"some, stable {is_stable}", {ORDERS: [0, 1, 2]}, require_stable=is_stable)
        talk.fetch_offsets(f"all, stable {is_stable}", None, require_stable=is_stable)
    talk.fetch_offsets("nothing", {})
    talk.fetch_offsets("no partitions", {ORDERS: []})
    talk.fetch_offsets("a partition twice", {ORDERS: [0, 0]})
    for index in (9, -1, 2**31 - 1):
        talk.fetch_offsets(f"of partition {index}", {ORDERS: [index]})
    for name in ("absent", "", "a b"):
        talk.fetch_offsets(f"of {name!r}", {name: [0]})
    talk.fetch_offsets("of known and unknown", {"absent": [0, 1], ORDERS: [0]})
    for member in (("nobody", 1), ("nobody", -1), ("", 0), (None, 5)):
        talk.fetch_offsets(f"by {member}", {ORDERS: [0]}, member)
    if talk.version_of(FETCH_OFFSETS) >= 8:
        talk.fetch_offsets("of two groups", {ORDERS: [0]}, group_ids=(talk.group_id, "absent"))
        talk.fetch_offsets("all of two groups", None, group_ids=(talk.group_id, "absent"))
        talk.fetch_offsets("of no group id", {ORDERS: [0]}, group_ids=("",))
        talk.case.ask("of no groups", groups=())
    talk.delete("to be fetched no more")
    talk.fetch_offsets("of a deleted group", {ORDERS: [0]})
    talk.close()


def offset_delete(case: Case) -> None:
    talk = GroupTalk(case, "forgotten")
    talk.delete_offsets("of no such group", {ORDERS: [0]})
    talk.delete_offsets("of no group", {ORDERS: [0]}, group_id="")
    talk.commit("to be forgotten", spots=HERE)
    for name, indexes in (
        (ORDERS, [1]),
        (ORDERS, [9]),
        (ORDERS, [-1]),
        ("absent", [0]),
        ("", [0]),
        (ORDERS, []),
    ):
        talk.delete_offsets(f"of {name!r} {indexes}", {name: indexes})
    talk.delete_offsets("nothing", {})
    talk.delete_offsets("a partition twice", {ORDERS: [0, 0]})
    talk.fetch_offsets("what is left", None)
    talk.delete_offsets("the last", {ORDERS: [2], "absent": [0, 1], SMALL: [0]})
    talk.describe("without offsets")
    talk.delete("without offsets")
    talk.close()
