"""Answers and records of groups in short words, for scripts.

**Invariant:** member ids that the broker made are told by the names that the script gave their members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tests.sim.groups import Beat, Call, GroupNode, Leave
from tidelog.groups import records
from tidelog.groups.classic_member import JoinAnswer, SyncAnswer
from tidelog.groups.facts import Fact
from tidelog.groups.heartbeat import HeartbeatAnswer
from tidelog.groups.offsets import CommitAsk
from tidelog.groups.reconcile import MemberState
from tidelog.groups.records import ClassicValue, CurrentValue, MemberValue
from tidelog.protocol.embedded import read_assignment
from tidelog.protocol.errors import ErrorCode


class Words:
    def __init__(self, node: GroupNode) -> None:
        self._node = node
        self.names: dict[str, str] = {}  # by member id

    def name(self, member_id: str | None) -> str:
        return self.names.get(member_id or "", member_id or "nobody")

    # Partitions.

    def spots(self, by_topic: Mapping[bytes, Collection[int]]) -> str:
        named = {self._node.topic_name(topic_id) or "gone": part for topic_id, part in by_topic.items()}
        return self.named_spots(named)

    @staticmethod
    def named_spots(by_name: Mapping[str, Collection[int]]) -> str:
        spots = [f"{name}-{index}" for name in sorted(by_name) for index in sorted(by_name[name])]
        return " ".join(spots) or "nothing"

    # Answers.

    def answer(self, call: Call, answer: Any) -> str:
        match answer:
            case JoinAnswer():
                return self._join(answer)
            case SyncAnswer():
                part = self.named_spots(read_assignment(answer.assignment))
                return error(answer.error) or f"synced: {part}"
            case HeartbeatAnswer():
                return error(answer.error) or self._heartbeat(answer)
            case ErrorCode():
                assert isinstance(call.request, Beat)
                return error(answer) or "ok"
            case _:
                assert isinstance(call.request, Leave | CommitAsk)
                return " ".join(error(code) or "ok" for code in answer)

    def _join(self, answer: JoinAnswer) -> str:
        if answer.error is not ErrorCode.none:
            return error(answer.error)
        text = f"joined generation {answer.generation}"
        if answer.leader_id:
            text += f", led by {self.name(answer.leader_id)}"
        if answer.members:
            text += f", with {' '.join(self.name(member_id) for member_id, _, _ in answer.members)}"
        return text + (", skip the assignment" if answer.skips_assignment else "")

    def _heartbeat(self, answer: HeartbeatAnswer) -> str:
        if answer.assigned is None:
            return f"epoch {answer.epoch}"
        return f"epoch {answer.epoch}: {self.spots(answer.assigned)}"

    # Records.

    def fact(self, fact: Fact) -> str:
        what = {
            records.OFFSET: f"offset {fact.name}-{fact.partition}",
            records.CLASSIC: "classic group",
            records.CONSUMER: "consumer group",
            records.MEMBER: f"member {self.name(fact.name)}",
            records.TARGET: "target",
            records.TARGET_MEMBER: f"target {self.name(fact.name)}",
            records.CURRENT: f"current {self.name(fact.name)}",
            records.PATTERN: f"pattern {fact.name}",
        }[fact.kind]
        return f"{what}: removed" if fact.value is None else f"{what}: {self._value(fact)}"

    def _value(self, fact: Fact) -> str:
        value = fact.value
        match fact.kind:
            case records.OFFSET:
                return str(value.offset)
            case records.CLASSIC:
                return self._classic(value)
            case records.CONSUMER | records.TARGET:
                return f"epoch {value.epoch}"
            case records.MEMBER:
                return self._member(value)
            case records.TARGET_MEMBER:
                return self.spots(value)
            case records.CURRENT:
                return self._current(value)
            case _:
                return " ".join(value.topics) or "nothing"

    def _classic(self, group: ClassicValue) -> str:
        if not group.members:
            return f"generation {group.generation}, empty"
        parts = [
            f"{self.name(member.member_id)}=[{self.named_spots(read_assignment(member.assignment))}]"
            for member in group.members
        ]
        head = f"generation {group.generation}, {group.protocol_name}, led by {self.name(group.leader_id)}"
        return f"{head}, {' '.join(parts)}"

    @staticmethod
    def _member(member: MemberValue) -> str:
        words = [f"topics {','.join(member.topics)}"] if member.topics else []
        words += [f"pattern {member.pattern}"] if member.pattern else []
        words += [f"instance {member.instance_id}"] if member.instance_id else []
        words += ["classic"] if member.classic is not None else []
        return ", ".join(words)

    def _current(self, current: CurrentValue) -> str:
        text = f"epoch {current.epoch}, {MemberState(current.state).name}, {self.spots(current.assigned)}"
        return text + (f", gives up {self.spots(current.revoking)}" if current.revoking else "")


def error(code: ErrorCode) -> str:
    return "" if code is ErrorCode.none else code.name.upper()
