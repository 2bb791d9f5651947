"""Commit load: members, or nobody's name, commit rising offsets; what is kept afterwards is checked.

**Invariant:** the same frames go round on a lane, so the offset that is kept names the last frame answered.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse
from kio.static.primitive import i8

from bench.load import pipeline
from bench.load.admin import TIMEOUT_SECONDS, Admin, read_response
from bench.load.classic_members import ClassicGroup
from bench.load.group_frames import commit_frame, commit_layout, offset_fetch_frame
from bench.load.members import Address
from bench.load.pipeline import BadAnswer, Lane, Span

DISTINCT_OFFSETS = 64
NOBODY = (-1, "")
FILL_LANES = 16
FILL_WINDOW = 4
GROUPS_PER_REQUEST = 16


def member_frames(groups: Sequence[ClassicGroup], topic: str, partitions_each: int) -> list[list[bytes]]:
    """For each member of all groups, its commits of partitions of its own, in the order of the offsets."""
    members = [(group.group, member) for group in groups for member in group.members]
    return [
        [
            commit_frame(group, member.generation, member.member_id, topic, own, offset)
            for offset in range(1, DISTINCT_OFFSETS + 1)
        ]
        for place, (group, member) in enumerate(members)
        for own in [range(place * partitions_each, (place + 1) * partitions_each)]
    ]


def commit(
    address: Address,
    frames: Sequence[Sequence[bytes]],
    topic: str,
    partitions_each: int,
    seconds: float,
    window: int = 1,
) -> tuple[Span, list[int]]:
    """One connection for each list of frames, `window` in flight; also the offset each committed last."""
    layout = commit_layout(topic, partitions_each)
    lanes = [Lane(address, own, 1, window, layout) for own in frames]
    try:
        span = pipeline.run(lanes, seconds=seconds)
    finally:
        pipeline.close(lanes)
    return span, [(lane.answered_count - 1) % DISTINCT_OFFSETS + 1 for lane in lanes]


def check_kept(
    address: Address, groups: Sequence[str], topic: str, partitions_each: int, last: Sequence[int]
) -> None:
    """What members committed last is what is fetched; members are spread evenly over the groups."""
    wanted = [offset for offset in last for _ in range(partitions_each)]
    with Admin(*address) as admin:
        answer = read_response(
            admin.exchange(offset_fetch_frame(groups, topic, len(wanted))), OffsetFetchResponse
        )
    kept = [-1] * len(wanted)
    for group in answer.groups:
        for partition in group.topics[0].partitions:
            kept[partition.partition_index] = max(kept[partition.partition_index], partition.committed_offset)
    if kept != wanted:
        raise BadAnswer(f"of {len(wanted)} last commits, {sum(map(int.__ne__, kept, wanted))} were not kept")


def fill(address: Address, groups: Sequence[str], topic: str, partition_count: int, times: int) -> None:
    """`times` commits of every group to every partition, a group to a request, by nobody in particular."""
    layout = commit_layout(topic, partition_count)
    lanes = []
    for place in range(FILL_LANES):
        own = [
            commit_frame(group, *NOBODY, topic, range(partition_count), offset)
            for offset in range(1, times + 1)
            for group in groups[place::FILL_LANES]
        ]
        lanes.append(Lane(address, own, 1, FILL_WINDOW, layout))
    try:
        pipeline.run(lanes, frame_count=times * len(groups) // FILL_LANES)
    finally:
        pipeline.close(lanes)


def fetch_frames(groups: Sequence[str], topic: str, partition_count: int) -> list[bytes]:
    starts = range(0, len(groups), GROUPS_PER_REQUEST)
    return [offset_fetch_frame(groups[at : at + GROUPS_PER_REQUEST], topic, partition_count) for at in starts]


def sum_of_commits(answer: bytes) -> int:
    total = 0
    for group in read_response(answer, OffsetFetchResponse).groups:
        if group.error_code is not ErrorCode.none:
            raise BadAnswer(f"fetching the commits of {group.group_id}: {group.error_code.name}")
        total += sum(part.committed_offset for topic in group.topics for part in topic.partitions)
    return total


def wait_for_coordinator(address: Address, groups: Sequence[str]) -> None:
    """The first question makes the internal topic; return once every group can be asked about."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with Admin(*address) as admin:
        while not (_is_found(admin, groups) and _is_loaded(admin, groups)):
            if time.monotonic() > deadline:
                raise BadAnswer(f"no coordinator of all groups after {TIMEOUT_SECONDS:.0f} s")
            time.sleep(0.02)


def _is_found(admin: Admin, groups: Sequence[str]) -> bool:
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=tuple(groups))
    found = admin.call(request, FindCoordinatorResponse).coordinators
    return all(coordinator.error_code is ErrorCode.none for coordinator in found)


def _is_loaded(admin: Admin, groups: Sequence[str]) -> bool:
    answer = read_response(admin.exchange(offset_fetch_frame(groups, "none", 1)), OffsetFetchResponse)
    return all(group.error_code is ErrorCode.none for group in answer.groups)
