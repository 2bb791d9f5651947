"""Kafka and Tidelog as one: what is asked of one is asked of the other, in the same bytes.

Some bytes cannot be the same, because each broker made them up: ids of topics, of fetch sessions and of
members of groups, the path of a log directory. A request has the suite's own value there, of the same
length, and each broker gets it replaced by its own.

**Invariant:** a difference that no row of `accepted.ACCEPTED` covers is kept, and `verdict` fails by it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from kio.index import load_response_schema

from tests.differential.accepted import ACCEPTED
from tests.differential.compare import Difference, differing, report
from tests.differential.entities import frame_of, parts, request, topic_id
from tests.differential.plain import Names, decode, plain
from tests.differential.sides import Reply, Side, Silence

PRODUCE, PRODUCE_OLDEST = 0, 3  # 0 is advertised for the sake of old clients, and served by nobody
METADATA, API_VERSIONS, CREATE_TOPICS = 3, 18, 19
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 7
DELETE_TOPICS, DELETE_TOPICS_VERSION = 20, 6
METADATA_VERSION, API_VERSIONS_VERSION, CREATE_TOPICS_VERSION = 12, 4, 7
SETTLE_SECONDS_MAX = 120.0
SAME_SECONDS_MAX = 30.0


class Pair:
    def __init__(self, kafka: Side, tidelog: Side, directories: Mapping[str, bytes]) -> None:
        self.kafka = kafka
        self.tidelog = tidelog
        canonical = directories[kafka.name]
        self.names = {
            side.name: Names(side.port, {}, directories[side.name], canonical, {}, {}, {})
            for side in (kafka, tidelog)
        }
        self.differences: list[Difference] = []
        self.used: Counter[int] = Counter()
        self.asked_count = 0
        self._served = {side.name: self._api_versions(side) for side in (kafka, tidelog)}

    # What both serve.

    def _api_versions(self, side: Side) -> dict[int, tuple[int, int]]:
        answer = self.ask_one(
            side, API_VERSIONS, API_VERSIONS_VERSION, client_software_name="x", client_software_version="1"
        )
        served = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        return served | {PRODUCE: (PRODUCE_OLDEST, served[PRODUCE][1])}

    def served_by_both(self) -> dict[int, range]:
        """The versions of each API that both advertise."""
        kafka, tidelog = self._served["kafka"], self._served["tidelog"]
        return {
            key: range(max(kafka[key][0], tidelog[key][0]), min(kafka[key][1], tidelog[key][1]) + 1)
            for key in sorted(kafka.keys() & tidelog.keys())
        }

    # Requests.

    def ask_one(self, side: Side, api_key: int, version: int, /, **values: Any) -> Any:
        """The decoded answer of one of the two."""
        side.send(self.translated(side, frame_of(api_key, version, request(api_key, version, **values))))
        reply = side.receive()
        assert not isinstance(reply, Silence), f"{side.name}: {reply.value}"
        return decode(api_key, version, reply)

    def ask(self, scenario: str, api_key: int, version: int, entity: Any) -> tuple[Any, Any]:
        """Ask both, note the differences; their decoded answers, or the silences."""
        replies = self.exchange(frame_of(api_key, version, entity))
        self.compare(scenario, api_key, version, replies, repr(entity))
        kafka, tidelog = (
            reply if isinstance(reply, Silence) else decode(api_key, version, reply) for reply in replies
        )
        return kafka, tidelog

    def exchange(self, frame: bytes) -> tuple[Reply, Reply]:
        self.asked_count += 1
        for side in (self.kafka, self.tidelog):
            side.send(self.translated(side, frame))
        return self.kafka.receive(), self.tidelog.receive()

    def reconnect(self) -> None:
        """Let go of both connections; the next request opens new ones."""
        self.kafka.close()
        self.tidelog.close()

    def translated(self, side: Side, frame: bytes) -> bytes:
        names = self.names[side.name]
        for own, canonical in names.topics.items():
            frame = frame.replace(canonical.bytes, own.bytes)
        for own_id, canonical_id in names.session_ids.items():
            frame = frame.replace(canonical_id.to_bytes(4, "big"), own_id.to_bytes(4, "big"))
        for own_producer, canonical_producer in names.producers.items():
            frame = frame.replace(canonical_producer.to_bytes(8, "big"), own_producer.to_bytes(8, "big"))
        for own_member, canonical_member in names.members.items():
            frame = frame.replace(canonical_member.encode(), own_member.encode())
        return frame.replace(names.canonical_directory, names.directory)

    def ask_until_same(self, scenario: str, api_key: int, version: int, entity: Any) -> None:
        """For what a change led to: Kafka's brokers hear of it a moment after it was answered."""
        found: list[Difference] = []

        def is_same() -> bool:
            replies = self.exchange(frame_of(api_key, version, entity))
            found[:] = self._unaccepted(self._differences(scenario, api_key, version, replies, repr(entity)))
            return not found

        try:
            self.wait_until("the same answers", is_same, SAME_SECONDS_MAX)
        except AssertionError:
            self.differences += found

    def compare(
        self, scenario: str, api_key: int, version: int, replies: tuple[Reply, Reply], asked: str
    ) -> None:
        found = self._differences(scenario, api_key, version, replies, asked)
        self.differences += self._unaccepted(found)

    def _differences(
        self, scenario: str, api_key: int, version: int, replies: tuple[Reply, Reply], asked: str
    ) -> list[Difference]:
        kafka = plain(api_key, version, replies[0], self.names["kafka"])
        tidelog = plain(api_key, version, replies[1], self.names["tidelog"])
        api = load_response_schema(api_key, version).__name__.removesuffix("Response")
        return [
            Difference(api, version, scenario, path, place, theirs, ours, asked)
            for path, place, theirs, ours in differing(kafka, tidelog)
        ]

    def _unaccepted(self, differences: list[Difference]) -> list[Difference]:
        left = []
        for difference in differences:
            row = next((place for place, row in enumerate(ACCEPTED) if row.covers(difference)), None)
            if row is None:
                left.append(difference)
            else:
                self.used[row] += 1
        return left

    def verdict(self) -> None:
        """Fail if anything differed since the last verdict."""
        found, self.differences = self.differences, []
        assert not found, f"{len(found)} differences\n" + report(found)

    # State.

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """The same topic on both, led and known by its id; its name."""
        part = parts(CREATE_TOPICS, CREATE_TOPICS_VERSION)
        configs = tuple(
            part.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        )
        topic = part.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=configs
        )
        for side in (self.kafka, self.tidelog):
            answer = self.ask_one(
                side, CREATE_TOPICS, CREATE_TOPICS_VERSION, topics=(topic,), timeout=timedelta(seconds=20)
            )
            assert answer.topics[0].error_code == 0, f"{side.name}: {answer}"
        self.settle(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """For a topic in which the two hold different records by now."""
        part = parts(DELETE_TOPICS, DELETE_TOPICS_VERSION)
        doomed = (part.DeleteTopicState(name=name, topic_id=None),)
        values = {"topics": doomed, "timeout": timedelta(seconds=20)}
        for side in (self.kafka, self.tidelog):
            answer = self.ask_one(side, DELETE_TOPICS, DELETE_TOPICS_VERSION, **values)
            assert answer.responses[0].error_code == 0, f"{side.name}: {answer}"

    def know_session(self, canonical: int, kafka: int, tidelog: int) -> None:
        """A fetch session that both have opened, under the id it has in requests."""
        self.names["kafka"].session_ids[kafka] = canonical
        self.names["tidelog"].session_ids[tidelog] = canonical

    def know_member(self, canonical: str, kafka: str, tidelog: str) -> None:
        """A member of a group that both have given an id, under the id it has in requests."""
        assert len(canonical) == len(kafka) == len(tidelog), (canonical, kafka, tidelog)
        self.names["kafka"].members[kafka] = canonical
        self.names["tidelog"].members[tidelog] = canonical

    def know_producer(self, canonical: int, kafka: int, tidelog: int) -> None:
        """A transactional producer that both have given an id, under the id it has in requests."""
        self.names["kafka"].producers[kafka] = canonical
        self.names["tidelog"].producers[tidelog] = canonical

    def has_topic(self, name: str) -> bool:
        """Whether it was created before, on both."""
        return topic_id(name) in self.names["tidelog"].topics.values()

    def settle(self, name: str, partitions: int | None = None) -> None:
        """Wait until both lead every partition of the topic, and learn its ids; Kafka takes a moment."""
        for side in (self.kafka, self.tidelog):
            self.wait_until(f"{side.name} leads {name}", partial(self._leads, side, name, partitions))

    def wait_until(
        self, what: str, holds: Callable[[], bool], seconds_max: float = SETTLE_SECONDS_MAX
    ) -> None:
        deadline = time.monotonic() + seconds_max
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what}"

    def _leads(self, side: Side, name: str, partitions: int | None) -> bool:
        """Whether it says so, and answers for every partition: Kafka names leaders before they lead."""
        part = parts(METADATA, METADATA_VERSION)
        wanted = (part.MetadataRequestTopic(name=name, topic_id=None),)
        values = {"topics": wanted, "allow_auto_topic_creation": False}
        (topic,) = self.ask_one(side, METADATA, METADATA_VERSION, **values).topics
        if topic.error_code or partitions not in (None, len(topic.partitions)):
            return False
        self.names[side.name].topics[topic.topic_id] = topic_id(name)
        part = parts(LIST_OFFSETS, LIST_OFFSETS_VERSION)
        rows = tuple(
            part.ListOffsetsPartition(
                partition_index=row.partition_index, current_leader_epoch=-1, timestamp=-1
            )
            for row in topic.partitions
        )
        asked = (part.ListOffsetsTopic(name=name, partitions=rows),)
        answer = self.ask_one(side, LIST_OFFSETS, LIST_OFFSETS_VERSION, topics=asked, replica_id=-1)
        return all(row.error_code == 0 for row in answer.topics[0].partitions)
