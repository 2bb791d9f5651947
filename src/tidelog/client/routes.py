"""Connections to brokers, and which of them leads which partition.

Leaders are looked up when first needed, and again only after a request has failed at the wrong broker or an
unreachable one: `forget_leaders`.

**Invariant:** a connection is used only by the process that made it: after a fork all are opened again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

from tidelog.client.attempts import Attempts
from tidelog.client.codes import name_of, passes
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    BadProperty,
    ConnectionLost,
    Refused,
    TopicGone,
    TopicPartition,
)
from tidelog.client.exchange import Exchange
from tidelog.client.metadata import DescribedTopic, Metadata, MetadataExchange
from tidelog.client.properties import Address, Properties, read_addresses
from tidelog.client.security import Security
from tidelog.protocol.errors import ErrorCode

Answer = TypeVar("Answer")


class Routes:
    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self._bootstrap = read_addresses(properties)
        self._security = Security(properties)
        self._connections: dict[Address, Connection] = {}
        self._nodes: dict[int, Address] = {}
        self._topics: dict[str, DescribedTopic] = {}
        self._process_id = os.getpid()
        self._is_closed = False

    def ask(self, exchange: Exchange[Answer], attempts: Attempts) -> Answer:
        """The answer of any reachable broker."""
        problems = []
        for address in self._addresses():
            try:
                connection = self.connect(address, attempts)
                return connection.call(exchange, attempts.seconds_left)
            except ConnectionLost as problem:
                problems.append(str(problem))
        raise ConnectionLost(f"no broker can be reached: {'; '.join(problems)}")

    def connect(self, address: Address, attempts: Attempts) -> Connection:
        """The connection to that address, opened if needed."""
        self._drop_if_forked()
        if self._is_closed:
            raise BadProperty("the Cluster is closed")
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            if connection.is_fresh or connection.under_way_count:
                return connection
            connection.close()
        connection = Connection(
            *address, self._properties, security=self._security, timeout_seconds=attempts.seconds_left
        )
        self._connections[address] = connection
        return connection

    def refresh(self, topics: Collection[str] | None, attempts: Attempts) -> dict[str, DescribedTopic]:
        """The existing ones of the topics, as a broker describes them now."""
        metadata: Metadata = self.ask(MetadataExchange(topics), attempts)
        if metadata.error_code:
            raise Refused(f"Metadata: {name_of(metadata.error_code)}", metadata.error_code)
        self._nodes = metadata.nodes
        found: dict[str, DescribedTopic] = {}
        for topic in metadata.topics:
            if topic.error_code == ErrorCode.none:
                found[topic.name] = self._topics[topic.name] = topic
            elif topic.error_code == ErrorCode.unknown_topic_or_partition:
                self._topics.pop(topic.name, None)
            elif passes(topic.error_code):
                raise ConnectionLost(f"topic {topic.name}: {name_of(topic.error_code)}")
            elif topics is not None:
                raise Refused(f"topic {topic.name!r}: {name_of(topic.error_code)}", topic.error_code)
        return found

    def brokers(self, attempts: Attempts) -> list[Address]:
        """The addresses of all brokers, as one of them lists them now."""
        self.refresh((), attempts)
        return list(self._nodes.values())

    def learn(self, topics: Collection[str], attempts: Attempts) -> None:
        """Look up the topics whose leaders are unknown, in one request."""
        self._drop_if_forked()
        unknown = sorted(set(topics) - self._topics.keys())
        if unknown:
            self.refresh(unknown, attempts)

    def knows(self, topic: str) -> bool:
        """Whether the topic was described since a leader of it was last forgotten."""
        self._drop_if_forked()
        return topic in self._topics

    def leader_address(self, partition: TopicPartition) -> Address:
        """The known address of the leader. Raises TopicGone or ConnectionLost if there is none; after looking
        up all partitions of the topic, call `forget_leaders` then."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            raise TopicGone(f"{partition} does not exist: the topic was deleted, or never had that partition")
        address = self._nodes.get(topic.leaders[partition.partition])
        if address is None:
            raise ConnectionLost(f"{partition} has no leader at the moment")
        return address

    def topic_id(self, topic: str) -> bytes | None:
        """The known id of a topic."""
        known = self._topics.get(topic)
        return None if known is None else known.id

    def forget_leaders(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._topics.pop(topic, None)

    def close(self) -> None:
        self._is_closed = True
        self._drop()

    def _addresses(self) -> Iterator[Address]:
        """Open connections first, then the known brokers, then the bootstrap servers."""
        self._drop_if_forked()
        is_open = [address for address, connection in self._connections.items() if connection.is_fresh]
        yield from dict.fromkeys([*is_open, *self._nodes.values(), *self._bootstrap])

    def _drop_if_forked(self) -> None:
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._drop()

    def _drop(self) -> None:
        connections: list[Any] = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
