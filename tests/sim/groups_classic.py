"""Members that speak the classic protocol, eager or cooperative, with the leader's part in it.

**Invariant:** an eager member gives up all before it joins again; a cooperative leader gives nobody what
another says that it still owns.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from struct import pack
from typing import Any

from tests.sim.groups import Beat, GroupNode, Leave, Line
from tests.sim.groups_members import FENCING, RETRY_MS, SimulatedMember, by_topic
from tidelog.groups.classic_member import Join, JoinAnswer, Leaving, Sync, SyncAnswer
from tidelog.protocol.embedded import Subscription, read_assignment, read_subscription, write_assignment
from tidelog.protocol.errors import ErrorCode

EAGER, COOPERATIVE = "range", "cooperative-sticky"


def write_subscription(topics: tuple[str, ...], owned: dict[str, tuple[int, ...]]) -> bytes:
    out = pack(">hi", 1, len(topics)) + b"".join(_text(name) for name in topics) + pack(">i", -1)
    out += pack(">i", len(owned))
    for name, indexes in owned.items():
        out += _text(name) + pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return out


def _text(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


class ClassicMember(SimulatedMember):
    def __init__(
        self,
        node: GroupNode,
        line: Line,
        group_id: str,
        name: str,
        instance_id: str | None,
        random: Random,
        protocol: str = EAGER,
    ) -> None:
        super().__init__(node, line, group_id, name, instance_id, random)
        self.protocol = protocol
        self.session_timeout_ms = random.choice((10_000, 30_000, 60_000))
        self.epoch = -1  # the generation whose part it has; only in that does it commit
        self._joined_epoch = -1  # the generation that it has joined
        self._must_join = True
        self._join_ms = 0
        self._sync: dict[str, bytes] | None = None  # to be sent, for whom the member leads
        self._seen: dict[str, tuple[bytes | None, int]] | None = None  # the topics that a leader shared out

    # What it says.

    def speak(self) -> None:
        if self._sync is not None:
            self._send_sync(self._sync)
        elif self._must_join and self.now_ms >= self._join_ms:
            self._send_join()
        elif self.epoch < 0:
            self.next_ms = self._join_ms
        else:
            if self._seen is not None and self._seen != self._look_at(self._seen):
                self._rejoin()
            beat = Beat(self.group_id, self.member_id, self.instance_id, self.epoch)
            self.call = self.line.send(beat)
            self.next_ms = self.now_ms + 3_000

    def _send_join(self) -> None:
        if self.protocol == EAGER:
            self.owned.clear()
            self.noted.clear()
        owned = {}
        for topic_id, indexes in by_topic(self.owned).items():
            name = self.node.topic_name(topic_id)
            if name is not None:
                owned[name] = indexes
        self._must_join = False
        metadata = write_subscription(self.topics, owned)
        self.call = self.line.send(
            Join(
                self.group_id,
                self.member_id,
                self.instance_id,
                self.name,
                "/127.0.0.1",
                self.session_timeout_ms,
                self.rebalance_timeout_ms,
                "consumer",
                ((self.protocol, metadata),),
                True,
                True,
            )
        )

    def _send_sync(self, assignments: dict[str, bytes]) -> None:
        self._sync = None
        self.call = self.line.send(
            Sync(
                self.group_id,
                self.member_id,
                self.instance_id,
                self._joined_epoch,
                "consumer",
                self.protocol,
                assignments,
            )
        )

    def subscribe_anew(self) -> None:
        self._rejoin()

    def _rejoin(self) -> None:
        if not self._must_join:
            self._must_join = True
            self._join_ms = self.now_ms + (self.slow_ms if self.owned else 0)
        self.next_ms = min(self.next_ms, self._join_ms)

    def hurry(self) -> None:
        """Be slow no more."""
        self.slow_ms = 0
        self._join_ms = min(self._join_ms, self.now_ms)

    def leave(self) -> None:
        self.line.send(Leave(self.group_id, [Leaving(self.member_id, self.instance_id)]))
        self.die()

    # What it hears.

    def on_lost(self) -> None:
        super().on_lost()
        self._sync = None
        self._must_join = True
        self._join_ms = self.now_ms

    def hear(self, answer: Any) -> None:
        error = answer if isinstance(answer, ErrorCode) else answer.error
        if error is ErrorCode.fenced_instance_id:
            self.die()
        elif error in FENCING:
            self.drop_everything()
        elif isinstance(answer, JoinAnswer):
            self._hear_join(answer)
        elif isinstance(answer, SyncAnswer):
            self._hear_sync(answer)
        elif error is ErrorCode.rebalance_in_progress:
            self._rejoin()

    def drop_everything(self) -> None:
        super().drop_everything()
        self.member_id = ""
        self.epoch = -1
        self._must_join = True
        self._sync = self._seen = None
        self._join_ms = self.next_ms = self.now_ms + RETRY_MS

    def _hear_join(self, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.none:
            self.member_id, self._joined_epoch = answer.member_id, answer.generation
            self._seen = None
            self._sync = {}
            if answer.skips_assignment:  # the topics may have changed since they were shared out
                self._seen = {"": (None, -1)}
            elif answer.leader_id == answer.member_id:
                self._sync = self._share_out(answer)
            self.next_ms = self.now_ms
            return
        self._must_join = True
        if answer.error is ErrorCode.member_id_required:
            self.member_id = answer.member_id
            self._join_ms = self.next_ms = self.now_ms
        else:
            self._join_ms = self.next_ms = self.now_ms + RETRY_MS

    def _hear_sync(self, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.none:
            self._must_join = True
            self._join_ms = self.next_ms = self.now_ms + RETRY_MS
            return
        given = set()
        for name, indexes in read_assignment(answer.assignment).items():
            topic_id = self.node.topic_id(name)
            if topic_id is not None:
                given |= {(topic_id, index) for index in indexes}
        has_lost = bool(self.owned - given)
        self.epoch = self._joined_epoch
        self.owned = given
        self.next_ms = self.now_ms + 3_000
        if has_lost and self.protocol == COOPERATIVE:
            self._must_join = True
            self._join_ms = self.next_ms = self.now_ms

    # The leader's part.

    def _look_at(self, names: Iterable[str]) -> dict[str, tuple[bytes | None, int]]:
        return {name: (self.node.topic_id(name), self.node.partition_count(name)) for name in names}

    def _share_out(self, answer: JoinAnswer) -> dict[str, bytes]:
        said = {member_id: read_subscription(metadata) for member_id, _, metadata in answer.members}
        names = sorted({name for each in said.values() for name in each.topics})
        seen = self._seen = self._look_at(names)
        parts: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in said}
        for name in names:
            for index in range(seen[name][1]):
                self._give(name, index, said, parts)
        return {member_id: write_assignment(1, part) for member_id, part in parts.items()}

    def _give(
        self, name: str, index: int, said: dict[str, Subscription], parts: dict[str, dict[str, list[int]]]
    ) -> None:
        wanting = [member_id for member_id, each in said.items() if name in each.topics]
        load = {member_id: sum(map(len, parts[member_id].values())) for member_id in wanting}
        chosen = min(wanting, key=lambda member_id: load[member_id])
        holders = [member_id for member_id, each in said.items() if index in each.owned.get(name, ())]
        if self.protocol == COOPERATIVE and holders:
            if holders[0] in load and load[holders[0]] <= load[chosen] + 1:
                chosen = holders[0]
            if holders != [chosen]:
                self._seen = {"": (None, -1)}  # it is nobody's for now; all join again to give it to somebody
                return
        parts[chosen].setdefault(name, []).append(index)
