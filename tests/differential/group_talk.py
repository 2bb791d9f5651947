"""The requests of one group, by the few values that matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from tests.differential.entities import milliseconds, topic_id
from tests.differential.talk import Answers, Sent, Talk
from tests.differential.world import ORDERS

COMMIT, FETCH_OFFSETS, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 8, 9, 10, 11, 12, 13, 14, 15, 16
DELETE, DELETE_OFFSETS, CONSUMER_BEAT, CONSUMER_DESCRIBE = 42, 47, 68, 69
REBALANCE_IN_PROGRESS = 27
SESSION_MS = 30_000
Protocols = tuple[tuple[str, bytes], ...]
Spots = Mapping[str, Sequence[tuple[int, int]]]  # topic to (partition, offset)
LOOKER = "looker"


def subscription(*topics: str) -> bytes:
    names = b"".join(pack(">h", len(name)) + name.encode() for name in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">ii", -1, 0)


def assignment(topic: str, *indexes: int) -> bytes:
    rows = pack(">h", len(topic)) + topic.encode() + pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return pack(">hi", 1, 1) + rows + pack(">i", -1)


SUBSCRIBED: Protocols = (("range", subscription(ORDERS)),)
TWO_PROTOCOLS: Protocols = (*SUBSCRIBED, ("roundrobin", subscription(ORDERS)))


class GroupTalk(Talk):
    # The classic protocol.

    def join_values(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        protocols: Protocols = SUBSCRIBED,
        **own: Any,
    ) -> dict[str, Any]:
        rows = tuple(
            self.make(JOIN, "JoinGroupRequestProtocol", name=name, metadata=metadata)
            for name, metadata in protocols
        )
        return {
            "group_id": self.group_id,
            "session_timeout": milliseconds(SESSION_MS),
            "rebalance_timeout": milliseconds(60_000),
            "member_id": member_id,
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": rows,
        } | own

    def join(self, scenario: str, who: str, member_id: str = "", **own: Any) -> Answers:
        return self.ask(scenario, who, JOIN, **self.join_values(member_id, **own))

    def send_join(self, who: str, member_id: str = "", **own: Any) -> Sent:
        return self.send(who, JOIN, **self.join_values(member_id, **own))

    def new_id(self, who: str) -> str:
        """The id of a member to be, in versions that give one before joining."""
        if self.version_of(JOIN) < 4:
            return ""
        return self.learn(who, self.join(f"{who} asks for an id", who))

    def join_alone(self, who: str, **own: Any) -> str:
        """Become the only member; its id."""
        member_id = self.new_id(who)
        answers = self.join(f"{who} joins alone", who, member_id, **own)
        return member_id or self.learn(who, answers)

    def sync_values(self, member_id: str, generation: int, **own: Any) -> dict[str, Any]:
        shares: dict[str, bytes] = own.pop("shares", {})
        rows = tuple(
            self.make(SYNC, "SyncGroupRequestAssignment", member_id=each, assignment=share)
            for each, share in shares.items()
        )
        return {
            "group_id": self.group_id,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": rows,
        } | own

    def sync(self, scenario: str, who: str, member_id: str, generation: int, **own: Any) -> Answers:
        return self.ask(scenario, who, SYNC, **self.sync_values(member_id, generation, **own))

    def beat_values(self, member_id: str, generation: int, **own: Any) -> dict[str, Any]:
        return {"group_id": self.group_id, "generation_id": generation, "member_id": member_id} | own

    def beat(self, scenario: str, who: str, member_id: str, generation: int, **own: Any) -> Answers:
        return self.ask(scenario, who, HEARTBEAT, **self.beat_values(member_id, generation, **own))

    def await_rebalance(self, who: str, member_id: str, generation: int) -> None:
        self.ask_until(who, HEARTBEAT, REBALANCE_IN_PROGRESS, **self.beat_values(member_id, generation))

    def leave(self, scenario: str, who: str, *leaving: tuple[str, str | None], **own: Any) -> None:
        """All at once, or one after the other where a version knows one."""
        values: dict[str, Any] = {"group_id": self.group_id} | own
        if self.version_of(LEAVE) < 3:
            for place, (member_id, _) in enumerate(leaving):
                self.ask(f"{scenario}, {place}", who, LEAVE, **values, member_id=member_id)
            return
        rows = tuple(
            self.make(LEAVE, "MemberIdentity", member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in leaving
        )
        self.ask(scenario, who, LEAVE, **values, members=rows)

    # The consumer protocol.

    def consumer_beat(self, scenario: str, who: str, member_id: str, epoch: int, **own: Any) -> Answers:
        """A heartbeat that says nothing new, unless told what."""
        owned: Mapping[str, Sequence[int]] | None = own.pop("owned", None)
        rows = None
        if owned is not None:
            rows = tuple(
                self.make(
                    CONSUMER_BEAT, "TopicPartitions", topic_id=topic_id(name), partitions=tuple(indexes)
                )
                for name, indexes in owned.items()
            )
        values = {
            "group_id": self.group_id,
            "member_id": member_id,
            "member_epoch": epoch,
            "rebalance_timeout": milliseconds(-1),
            "subscribed_topic_names": None,
            "topic_partitions": rows,
        } | own
        return self.ask(scenario, who, CONSUMER_BEAT, **values)

    def consumer_join(self, scenario: str, who: str, member_id: str, **own: Any) -> Answers:
        values = {
            "owned": {},
            "rebalance_timeout": milliseconds(60_000),
            "subscribed_topic_names": (ORDERS,),
        } | own
        return self.consumer_beat(scenario, who, member_id, 0, **values)

    def ask_until_assigned(self, scenario: str, topic: str) -> None:
        """Until the first member has partitions of the topic by both: Kafka matches patterns by and by."""

        def is_assigned() -> bool:
            values = {"group_id": self.group_id, "member_id": "m", "rebalance_timeout": milliseconds(-1)}
            sent = self.send(LOOKER, CONSUMER_DESCRIBE, group_ids=(self.group_id,))
            told = [answer.groups[0].members[0] for answer in self.heard(sent)[0]]
            for side, member in zip((self.pair.kafka, self.pair.tidelog), told, strict=True):
                own = {
                    "member_epoch": member.member_epoch,
                    "subscribed_topic_names": None,
                    "topic_partitions": None,
                }
                self.pair.ask_one(side, CONSUMER_BEAT, self.version_of(CONSUMER_BEAT), **values, **own)
            assigned = [member.assignment.topic_partitions for member in told]
            return all(parts and parts[0].topic_name == topic for parts in assigned)

        self.pair.wait_until(f"{topic} is assigned", is_assigned)
        self.describe(scenario)

    # Offsets.

    def commit(
        self, scenario: str, member_id: str = "", epoch: int = -1, spots: Spots | None = None, **own: Any
    ) -> Answers:
        said = {
            "committed_metadata": own.pop("metadata", "said"),
            "committed_leader_epoch": own.pop("leader", 0),
        }
        topics = tuple(
            self.make(
                COMMIT,
                "OffsetCommitRequestTopic",
                name=name,
                topic_id=topic_id(name),
                partitions=tuple(
                    self.make(
                        COMMIT,
                        "OffsetCommitRequestPartition",
                        partition_index=index,
                        committed_offset=offset,
                        **said,
                    )
                    for index, offset in asked
                ),
            )
            for name, asked in (spots if spots is not None else {ORDERS: [(0, 3)]}).items()
        )
        values = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "topics": topics,
            "retention_time": milliseconds(-1),
        } | own
        return self.ask(scenario, LOOKER, COMMIT, **values)

    def fetch_offsets(
        self,
        scenario: str,
        asked: Mapping[str, Sequence[int]] | None,
        member: tuple[str | None, int] = (None, -1),
        group_ids: Sequence[str] = (),
        require_stable: bool = False,
    ) -> Answers:
        version = self.version_of(FETCH_OFFSETS)
        part = "OffsetFetchRequestTopics" if version >= 8 else "OffsetFetchRequestTopic"
        topics: Any = None
        if asked is not None or version < 2:
            topics = tuple(
                self.make(
                    FETCH_OFFSETS, part, name=name, topic_id=topic_id(name), partition_indexes=tuple(indexes)
                )
                for name, indexes in (asked or {}).items()
            )
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "topics": topics,
            "require_stable": require_stable,
        }
        if version >= 8:
            rows = tuple(
                self.make(
                    FETCH_OFFSETS,
                    "OffsetFetchRequestGroup",
                    group_id=group_id,
                    topics=topics,
                    member_id=member[0],
                    member_epoch=member[1],
                )
                for group_id in (group_ids or (self.group_id,))
            )
            values["groups"] = rows
        return self.ask(scenario, LOOKER, FETCH_OFFSETS, **values)

    def delete_offsets(self, scenario: str, asked: Mapping[str, Sequence[int]], **own: Any) -> Answers:
        topics = tuple(
            self.make(
                DELETE_OFFSETS,
                "OffsetDeleteRequestTopic",
                name=name,
                partitions=tuple(
                    self.make(DELETE_OFFSETS, "OffsetDeleteRequestPartition", partition_index=index)
                    for index in indexes
                ),
            )
            for name, indexes in asked.items()
        )
        return self.ask(
            scenario, LOOKER, DELETE_OFFSETS, **({"group_id": self.group_id, "topics": topics} | own)
        )

    # What others see.

    def describe(self, scenario: str) -> None:
        """As a group of either kind."""
        self.ask(f"described, {scenario}", LOOKER, DESCRIBE, groups=(self.group_id,))
        group_ids = (self.group_id,)
        self.ask(f"described as a consumer group, {scenario}", LOOKER, CONSUMER_DESCRIBE, group_ids=group_ids)

    def delete(self, scenario: str) -> Answers:
        return self.ask(scenario, LOOKER, DELETE, groups_names=(self.group_id,))
