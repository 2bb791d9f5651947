"""Members of groups as clients are them: they join, hold partitions, call, commit, give up and come back.

A member holds a partition from the answer that gives it, or from when it has got round to that, until it has
given it up itself, however slow it is about that, or is told that it is no member any more. A paused one
hears nothing and holds what it held.

**Invariant:** a member knows what its answers told it, and the topics there are; nothing else.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from tests.sim.groups import Call, GroupNode, Line
from tidelog.groups.heartbeat import Heartbeat, HeartbeatAnswer
from tidelog.groups.offsets import Commit, CommitAsk
from tidelog.protocol.errors import ErrorCode

Spot = tuple[bytes, int]  # topic id, partition
RETRY_MS = 500
NEVER_MS = 10**9
FENCING = (
    ErrorCode.fenced_member_epoch,
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.group_id_not_found,
    ErrorCode.stale_member_epoch,
)


class SimulatedMember:
    """What members of both protocols have."""

    def __init__(
        self, node: GroupNode, line: Line, group_id: str, name: str, instance_id: str | None, random: Random
    ) -> None:
        self.node = node
        self.line = line
        self.group_id = group_id
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = 0  # or generation
        self.owned: set[Spot] = set()
        self.noted: set[Spot] = set()  # of these, what a checker has seen
        self.topics: tuple[str, ...] = ()
        self.call: Call | None = None
        self.is_alive = True
        self.paused_until_ms = 0
        self.next_ms = 0
        self.slow_ms = random.choice((0, 0, 0, 2_000, 8_000, NEVER_MS))  # to give up what it is asked for
        self.rebalance_timeout_ms = random.choice((10_000, 30_000))

    @property
    def now_ms(self) -> int:
        return self.node.wall_ms

    def subscribed(self) -> list[str]:
        """The topics that it wants and that are there."""
        return [name for name in self.topics if self.node.topic_id(name) is not None]

    def step(self) -> None:
        """Hear what has been answered, and speak if it is time."""
        if not self.is_alive or self.now_ms < self.paused_until_ms:
            return
        self.prepare()
        if self.call is not None:
            if not self.call.is_over:
                return
            call, self.call = self.call, None
            if call.is_lost:
                self.on_lost()
            else:
                self.hear(call.answers[0])
        if self.call is None and self.now_ms >= self.next_ms and self.is_alive:
            self.speak()

    def prepare(self) -> None:
        """What it does by itself, whether it waits for an answer or not."""

    def on_lost(self) -> None:
        self.next_ms = self.now_ms

    def hear(self, answer: Any) -> None:
        raise AssertionError

    def speak(self) -> None:
        raise AssertionError

    def drop_everything(self) -> None:
        """It is told that it is no member any more."""
        self.owned.clear()
        self.noted.clear()

    def die(self) -> None:
        """The process is gone, and with it what it held."""
        self.is_alive = False
        self.owned.clear()

    def commit(self, spot: Spot, offset: int) -> Call | None:
        topic = self.node.topic_name(spot[0])
        if topic is None:
            return None
        commits = [Commit(topic, spot[1], offset, -1, "", spot[0])]
        return self.line.send(
            CommitAsk(self.group_id, self.member_id, self.instance_id, self.epoch, -1, True, commits)
        )


class ModernMember(SimulatedMember):
    """A member that speaks the consumer protocol."""

    def __init__(
        self, node: GroupNode, line: Line, group_id: str, name: str, instance_id: str | None, random: Random
    ) -> None:
        super().__init__(node, line, group_id, name, instance_id, random)
        self.member_id = name
        self.pattern: str | None = None
        self.assignor = random.choice((None, None, "uniform", "range"))
        # As librdkafka does, it may take its time to take on what it is given, say everything once more
        # meanwhile, and turn to what it is told next only then.
        self._take_slow_ms = Random(name).choice((0, 0, 0, 1_000))
        self._target: set[Spot] = set()
        self._taking: set[Spot] = set()
        self._take_ms: int | None = None
        self._revoke_ms: int | None = None
        self._must_say_all = True
        self._said: set[Spot] | None = None
        self._said_topics: tuple[tuple[str, ...], str | None] | None = None

    def subscribed(self) -> list[str]:
        names = super().subscribed()
        if self.pattern:
            found = [each for each in self.node.broker.image.topics if re.fullmatch(self.pattern, each)]
            names += [each for each in found if each not in names and not each.startswith("__")]
        return names

    def speak(self) -> None:
        is_all = self._must_say_all or self.epoch == 0
        reported = None
        if is_all or self.owned != self._said:
            self._said = set(self.owned)
            reported = by_topic(self.owned)
        subscription = self.topics, self.pattern
        has_changed = is_all or subscription != self._said_topics
        self._said_topics = subscription
        self._must_say_all = False
        self.call = self.line.send(
            Heartbeat(
                self.group_id,
                self.member_id,
                self.epoch,
                self.instance_id,
                None,
                self.rebalance_timeout_ms if is_all else -1,
                self.topics if has_changed else None,
                (self.pattern or "") if has_changed else None,
                self.assignor if is_all else None,
                reported,
                self.name,
                "/127.0.0.1",
            )
        )
        self.next_ms = self.now_ms + 3_000

    def on_lost(self) -> None:
        super().on_lost()
        self._must_say_all = True

    def hear(self, answer: Any) -> None:
        assert isinstance(answer, HeartbeatAnswer)
        if answer.error is ErrorCode.none:
            self._follow(answer)
        elif answer.error is ErrorCode.fenced_instance_id:
            self.die()
        elif answer.error in FENCING:
            self.drop_everything()
        else:
            self._must_say_all = True
            self.next_ms = self.now_ms + RETRY_MS

    def drop_everything(self) -> None:
        super().drop_everything()
        self.slow_ms = min(self.slow_ms, 2_000)  # two that never give up would take turns in being fenced
        self.epoch = 0
        self._target.clear()
        self._revoke_ms = self._take_ms = None
        self._must_say_all = True
        self.next_ms = self.now_ms

    def _follow(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self._target = {(topic_id, index) for topic_id, part in answer.assigned.items() for index in part}
        self._reconcile()
        self.prepare()

    def _reconcile(self) -> None:
        if self._take_ms is not None:
            return
        if self.owned - self._target:
            if self._revoke_ms is None:
                self._revoke_ms = self.now_ms + self.slow_ms
        else:
            self._revoke_ms = None
            self._begin_to_take()

    def prepare(self) -> None:
        if self._revoke_ms is not None and self.now_ms >= self._revoke_ms:
            self._revoke_ms = None
            self.owned &= self._target
            self._begin_to_take()
        if self._take_ms is not None and self.now_ms >= self._take_ms:
            self._take_ms = None
            self._take(self._taking)
            self._reconcile()

    def _begin_to_take(self) -> None:
        if self._take_slow_ms and self._target - self.owned:
            self._taking, self._take_ms = set(self._target), self.now_ms + self._take_slow_ms
            self._must_say_all = True
            self.next_ms = self.now_ms + self._take_slow_ms // 2
        else:
            self._take(self._target)

    def _take(self, given: set[Spot]) -> None:
        self.owned |= given
        if self.owned != self._said:
            self.next_ms = self.now_ms

    def leave(self, epoch: int) -> None:
        """Say goodbye: -1, or -2 for a static member that will be back."""
        self.line.send(
            Heartbeat(
                self.group_id,
                self.member_id,
                epoch,
                self.instance_id,
                None,
                -1,
                None,
                None,
                None,
                None,
                "",
                "",
            )
        )
        self.die()


def by_topic(spots: set[Spot]) -> dict[bytes, tuple[int, ...]]:
    found: dict[bytes, tuple[int, ...]] = {}
    for topic_id, index in sorted(spots):
        found[topic_id] = (*found.get(topic_id, ()), index)
    return found
