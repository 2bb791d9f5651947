"""The target of groups: bytes are a play in which members come, commit, go and lie, before a whole broker.

| byte  | what it says                                                                      |
|-------|-----------------------------------------------------------------------------------|
| first | which of the scenes is played: a request of an API, or time that goes by          |
| next  | the version; then the group, the member, the epoch or generation, and what is said |

Members are those that the broker has told of so far, and some that nobody knows; epochs are those that it has
told, give or take one. So a play gets as deep into a group as clients do, by bytes that a fuzzer can change.

**Invariant:** whatever is played, each request has one answer or waits; and when enough time has passed,
nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz.serving import the_broker
from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    beat_values,
    commit_values,
    consumer_beat_values,
    delete_offsets_values,
    fetch_offsets_values,
    group_values,
    join_values,
    leave_values,
    sync_values,
)
from tests.wire.harness import Harness, decode_answer, new_client, request_frame, seconds
from tests.wire.requests import topic_uuid
from tidelog.protocol.apis import APIS

SCENES_MAX = 24
SEATS = 3  # connections, so that one can wait while others speak
GROUPS = ("group", "other", "third", "")
STRANGERS = ("", "nobody", "m", "n")
INSTANCES = (None, None, None, "one", "two", "")
TOPICS = (("t",), ("t", "compacted"), (), ("absent",), None)
PATTERNS = (None, None, "", "t", "c.*", "(", ".*")
WAITS_MS = (0, 1_000, 6_000, 50_000, 400_000)
HOUR_MS, HOURS_MAX = 60 * 60 * 1_000, 25
_VERSIONS = {api.key: (api.oldest_version, api.newest_version) for api in APIS}
_ABOUT_ALL = (15, 16, 42, 69)


class Play:
    """One input: what is left of its bytes, and what the broker has told so far."""

    def __init__(self, data: bytes, harness: Harness) -> None:
        self._data = data
        self._position = 0
        self.harness = harness
        harness.holds_checkpoints = True  # days go by in a play, and each would be written down
        self.members = list(STRANGERS)
        self.epochs = [-1, 0, 1]
        self._seats = [new_client() for _ in range(SEATS)]
        self._asked: list[dict[int, tuple[int, int]]] = [{} for _ in range(SEATS)]
        self._count = 0

    @property
    def is_over(self) -> bool:
        return self._position >= len(self._data) or self._count >= SCENES_MAX

    def byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1] if self._position <= len(self._data) else 0

    def pick(self, choices: Any) -> Any:
        return choices[self.byte() % len(choices)]

    def epoch(self) -> int:
        """One that was told, or near it."""
        byte = self.byte()
        return int(self.epochs[-1 - byte % len(self.epochs)]) + (byte >> 6) - 1

    def member(self) -> str:
        return str(self.members[-1 - self.byte() % len(self.members)])

    def scene(self) -> None:
        self._count += 1
        byte = self.byte()
        if byte % (len(SCENES) + 1) == len(SCENES):
            self.harness.advance(self.pick(WAITS_MS))
            self._listen()
            return
        api_key, values_of = SCENES[byte % (len(SCENES) + 1)]
        oldest, newest = _VERSIONS[api_key]
        version = oldest + self.byte() % (newest - oldest + 1)
        seat = self.byte() % SEATS
        self._asked[seat][self._count] = api_key, version
        self.harness.client = self._seats[seat]
        self.harness.send_frame(request_frame(api_key, version, self._count, **values_of(self, version)))
        self._listen()

    def _listen(self) -> None:
        for seat, asked in zip(self._seats, self._asked, strict=True):
            self.harness.client = seat
            for frame in self.harness.answers():
                correlation_id = int.from_bytes(frame[4:8], "big")
                api_key, version = asked.pop(correlation_id)
                self._learn(decode_answer(api_key, version, frame, correlation_id))

    def _learn(self, answer: Any) -> None:
        member_id = getattr(answer, "member_id", None)
        if member_id and member_id not in self.members:
            self.members.append(member_id)
        for name in ("generation_id", "member_epoch"):
            epoch = getattr(answer, name, -1)
            if epoch not in self.epochs:
                self.epochs.append(epoch)

    def end(self) -> None:
        """Everybody is answered in the end; who waited longest, with an error."""
        for _ in range(HOURS_MAX if any(self._asked) else 0):
            self.harness.advance(HOUR_MS)
            self._listen()
            if not any(self._asked):
                break
        assert not any(self._asked), self._asked
        self.harness.held_checkpoints.clear()
        self.harness.client = new_client()


def _join(play: Play, version: int) -> dict[str, Any]:
    protocols = play.pick(((("range", b"a"),), (("range", b"b"), ("other", b"")), (("other", b"c"),), ()))
    return join_values(
        version,
        play.member(),
        group_id=play.pick(GROUPS),
        instance_id=play.pick(INSTANCES),
        session_ms=play.pick((10_000, 6_000, 1_800_000, 0)),
        rebalance_ms=play.pick((60_000, 0, 5_000, -1)),
        protocols=protocols,
    )


def _sync(play: Play, version: int) -> dict[str, Any]:
    group_id, member_id, epoch = play.pick(GROUPS), play.member(), play.epoch()
    shares = {play.member(): b"part", member_id: b"own"} if play.byte() % 3 else {}
    return sync_values(version, member_id, epoch, shares, group_id=group_id, instance_id=play.pick(INSTANCES))


def _beat(play: Play, _: int) -> dict[str, Any]:
    group_id = play.pick(GROUPS)
    return beat_values(play.member(), play.epoch(), group_id=group_id, instance_id=play.pick(INSTANCES))


def _leave(play: Play, version: int) -> dict[str, Any]:
    group_id = play.pick(GROUPS)
    leaving = [(play.member(), play.pick(INSTANCES)) for _ in range(play.byte() % 3 + 1)]
    return leave_values(version, *leaving, group_id=group_id)


def _consumer_beat(play: Play, version: int) -> dict[str, Any]:
    owned = {topic_uuid(play.harness, "t"): [index for index in (0, 1) if play.byte() & 1 << index]}
    says_owned, is_full = play.byte() % 2, play.byte() % 2
    return consumer_beat_values(
        version,
        play.member(),
        play.pick((0, play.epoch(), play.epoch(), -1, -2)),
        group_id=play.pick(GROUPS),
        instance_id=play.pick(INSTANCES),
        subscribed_topic_names=play.pick(TOPICS),
        subscribed_topic_regex=play.pick(PATTERNS),
        server_assignor=play.pick((None, "range", "uniform", "best")),
        rebalance_timeout=seconds(60 if is_full else -0.001),
        **({"owned": owned} if says_owned else {}),
    )


def _commit(play: Play, version: int) -> dict[str, Any]:
    spots = {play.pick(("t", "compacted", "absent")): [(play.byte() % 3, play.byte()), (0, 5)]}
    group_id = play.pick(GROUPS)
    return commit_values(
        play.harness, version, spots, play.member(), play.epoch(), group_id=group_id, instance_id=None
    )


def _fetch(play: Play, version: int) -> dict[str, Any]:
    asked = play.pick(({"t": [0, 1]}, {"absent": [0]}, {}))
    group_id, member = play.pick(GROUPS), (play.member(), play.epoch())
    return fetch_offsets_values(play.harness, version, (group_id, asked), member=member)


def _delete(play: Play, _: int) -> dict[str, Any]:
    return delete_offsets_values({"t": [0, 1], "compacted": [0]}, play.pick(GROUPS))


def _about_all(api_key: int) -> Callable[[Play, int], dict[str, Any]]:
    def values(play: Play, version: int) -> dict[str, Any]:
        asked = group_values(play.harness, api_key, version)
        return asked | {name: GROUPS for name in ("groups", "groups_names", "group_ids") if name in asked}

    return values


SCENES: tuple[tuple[int, Callable[[Play, int], dict[str, Any]]], ...] = (
    (JOIN_GROUP, _join),
    (SYNC_GROUP, _sync),
    (HEARTBEAT, _beat),
    (LEAVE_GROUP, _leave),
    (CONSUMER_HEARTBEAT, _consumer_beat),
    (OFFSET_COMMIT, _commit),
    (OFFSET_FETCH, _fetch),
    (OFFSET_DELETE, _delete),
    *((api_key, _about_all(api_key)) for api_key in _ABOUT_ALL),
)


def fuzz_groups(data: bytes) -> None:
    """Scenes of one play; the groups that earlier plays left behind are still there."""
    play = Play(data, the_broker())
    while not play.is_over:
        play.scene()
    play.end()
