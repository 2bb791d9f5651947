"""A broker on a simulated disk that keeps groups, and two lines to it: straight to the coordinator, which is
fast, and through request frames, as clients do.

**Invariant:** time goes on over a restart; a call that a restart cuts off is lost and never answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tests.log.making import NOW_MS
from tests.sim.node import BrokerOnDisk
from tidelog.base.decision import Ticket
from tidelog.broker.data_plane.shard import Awaited, Shard
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.cluster.store import Done, Outcome
from tidelog.groups.classic_member import Join, JoinAnswer, Leaving, Sync, SyncAnswer
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.heartbeat import Heartbeat, HeartbeatAnswer
from tidelog.groups.offsets import CommitAsk
from tidelog.groups.turn import Turn
from tidelog.protocol.errors import ErrorCode


class Beat(NamedTuple):
    """A heartbeat of the classic protocol."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leave(NamedTuple):
    group_id: str
    leaving: list[Leaving]


class Fetch(NamedTuple):
    """An OffsetFetch of one partition, answered with its offset; None if there is none."""

    group_id: str
    topic: str
    partition: int


Request = Fetch | Join | Sync | Beat | Leave | Heartbeat | CommitAsk


class Call:
    """One request, and its answer when it has come."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answers: list[Any] = []
        self.is_lost = False

    @property
    def is_over(self) -> bool:
        return bool(self.answers) or self.is_lost

    def hear(self, answer: Any) -> None:
        assert not self.is_lost, "an answer from an earlier life"
        self.answers.append(answer)


class Heard(Awaited):
    """The ticket of a call that goes straight to the coordinator."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call
        self.is_gone = False

    def give(self, answer: Any) -> None:
        self._call.hear(answer)

    def fail(self, code: int) -> None:
        self._call.hear(refusal(self._call.request, ErrorCode(code)))


def refusal(request: Request, code: ErrorCode) -> Any:
    """What a request is answered with that no coordinator has seen."""
    match request:
        case Join():
            return JoinAnswer(code, request.member_id)
        case Sync():
            return SyncAnswer(code)
        case Beat():
            return ErrorCode.none if code is ErrorCode.coordinator_load_in_progress else code
        case Leave():
            return [code] * len(request.leaving)
        case Heartbeat():
            return HeartbeatAnswer(code)
        case CommitAsk():
            return [code] * len(request.commits)
        case Fetch():
            return code


def carry_out(groups: GroupCoordinator, turn: Turn, request: Request, ticket: Ticket) -> None:
    match request:
        case Join():
            groups.join(turn, request, ticket)
        case Sync():
            groups.sync(turn, request, ticket)
        case Beat():
            groups.heartbeat(turn, Sync(*request, None, None, {}), ticket)
        case Leave():
            groups.leave(turn, request.group_id, request.leaving, ticket)
        case Heartbeat():
            groups.consumer_heartbeat(turn, request, ticket)
        case CommitAsk():
            groups.commit(turn, request, ticket)
        case Fetch():
            found = groups.committed(turn.topics, request.group_id, (request.topic, request.partition))
            turn.decision.answer(ticket, found.offset if found is not None else None)


class GroupNode(BrokerOnDisk):
    """One life after the other of a broker with groups."""

    properties: Mapping[str, str] = MappingProxyType({"group.initial.rebalance.delay.ms": "1000"})

    def __init__(
        self, seed: int = 0, partition_count: int = 1, is_flushed: bool = True, **properties: str
    ) -> None:
        self.wall_ms = NOW_MS
        self.is_flushed = is_flushed
        self.gathers: Callable[[], bool] = lambda: False  # whether a moment goes on after a request
        named = {name.replace("_", "."): value for name, value in properties.items()}
        self.properties = MappingProxyType({**self.properties, **named})
        super().__init__(seed)
        self._make_groups_topic(partition_count)

    def _make_groups_topic(self, partition_count: int) -> None:
        outcomes: list[Outcome] = []
        config = {"cleanup.policy": "compact", "segment.bytes": str(self.random.choice((2_000, 100_000)))}
        if self.is_flushed:
            config["flush.messages"] = "1"
        self.broker.topics.create(GROUPS_TOPIC, config, [[1]] * partition_count, outcomes.append)
        self.settle()
        assert outcomes == [Done()]

    def start(self, folders: tuple[str, ...] = ("logs",)) -> None:
        super().start(folders)
        self.broker.clock.set(self.wall_ms, 0)

    def settle(self) -> None:
        if not self.gathers():
            self.broker.coordinators.write()
        super().settle()

    def tick(self, passed_ms: int) -> None:
        self.wall_ms += passed_ms
        super().tick(passed_ms)

    def grow_topic(self, name: str) -> None:
        self.broker.topics.grow(self.broker.image.topics[name], [[1]], lambda outcome: None)
        self.settle()

    def topic_id(self, name: str) -> bytes | None:
        topic = self.broker.image.topics.get(name)
        return topic.topic_id if topic is not None else None

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.broker.image.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def partition_count(self, name: str) -> int:
        topic = self.broker.image.topics.get(name)
        return len(topic.partitions) if topic is not None else 0

    # The coordinators.

    def shards(self) -> list[Shard[GroupCoordinator]]:
        """Those that serve."""
        return [shard for shard in self.broker.coordinators.all() if isinstance(shard, Shard)]

    def coordinator(self, group_id: str) -> GroupCoordinator | None:
        shard = self.broker.coordinators.find(group_id)
        return shard.machine if isinstance(shard, Shard) else None

    def work(self) -> bool:
        """One piece of what the coordinators do besides; whether there was one."""
        if not self.broker.coordinators.has_work:
            return False
        self.broker.coordinators.work()
        self.settle()
        return True

    def load(self) -> None:
        """Wait until every coordinator serves."""
        for _ in range(10_000):
            if len(self.shards()) == len(list(self.broker.coordinators.all())):
                return
            self.work()
        raise AssertionError("the groups are never loaded")


class Line(Protocol):
    """How requests get to the broker."""

    def send(self, request: Request) -> Call: ...

    def poll(self) -> None:
        """Let the calls hear what has been answered."""
        ...


class DirectLine:
    def __init__(self, node: GroupNode) -> None:
        self._node = node

    def send(self, request: Request) -> Call:
        call = Call(request)
        coordinators = self._node.broker.coordinators
        shard = coordinators.find(request.group_id)
        if isinstance(shard, Shard):
            ticket = Heard(call)
            if not coordinators.run(shard, partial(carry_out, request=request, ticket=ticket)):
                ticket.fail(ErrorCode.coordinator_load_in_progress)
        else:
            call.hear(refusal(request, shard))
        self._node.settle()
        return call

    def poll(self) -> None:
        """Answers are heard when they are given."""
