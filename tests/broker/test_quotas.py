"""Whose quota counts, who shares it, and what is forgotten."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog.base.config import BrokerSettings
from tidelog.base.limits import QUOTA_USE_KEPT_MS
from tidelog.broker.clients import Client
from tidelog.broker.clock import Clock
from tidelog.broker.quotas import Quotas
from tidelog.cluster.quotas import PRODUCER_RATE, Entity, ordered
from tidelog.protocol.connection import Connection

# From the first that counts to the last, as seen in Kafka, each with who shares it.
LEVELS: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", "")),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", "")),
    ({"client-id": "c"}, ("", "c")),
    ({"client-id": None}, ("", "c")),
]


class Room:
    """Quotas with a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.quotas = Quotas(BrokerSettings({}), self.clock)

    def set(self, *entities: Mapping[str, str | None], rate: float = 1_000.0) -> None:
        found: dict[Entity, dict[str, float]] = {ordered(each): {PRODUCER_RATE: rate} for each in entities}
        self.quotas.use(found)

    def client(self) -> Client:
        return Client(Connection(1_000), principal="User:u")

    def produce(self, client: Client, size: int) -> int:
        """The throttle time."""
        head = b"\0\0\0\x0c" + b"\0\0\0\1" + b"\0\1c"
        self.quotas.begin(client, memoryview(bytearray(head + bytes(size - len(head)))))
        return client.throttle_time_ms

    def pass_time(self, milliseconds: int) -> None:
        self.clock.set(self.clock.now_ms + milliseconds, self.clock.uptime_ms + milliseconds)


@pytest.fixture
def room() -> Room:
    return Room()


def test_the_first_of_eight_levels_counts(room: Room) -> None:
    for place, (entity, shared) in enumerate(LEVELS):
        quotas = {ordered(each): {PRODUCER_RATE: 1e12} for each, _ in LEVELS[place + 1 :]}
        room.quotas.use(quotas | {ordered(entity): {PRODUCER_RATE: 7.0}})
        found = room.quotas.limit_of(PRODUCER_RATE, "u", "c")
        assert found is not None
        limit, owner = found
        assert (limit, owner.user, owner.client_id) == (7.0, *shared)


def test_each_quota_has_its_own_level(room: Room) -> None:
    room.quotas.use(
        {(("client-id", "c"),): {PRODUCER_RATE: 7.0}, (("user", "u"),): {"consumer_byte_rate": 8.0}}
    )
    found = room.quotas.limit_of(PRODUCER_RATE, "u", "c")
    assert found is not None and found[0] == 7.0
    assert room.quotas.limit_of(PRODUCER_RATE, "u", "other") is None


def test_nothing_is_remembered_of_clients_without_a_quota(room: Room) -> None:
    room.set({"client-id": "other"})
    client = room.client()
    assert room.produce(client, 100_000) == 0
    assert [*room.quotas.uses] == []


def test_two_connections_of_a_client_share_its_use(room: Room) -> None:
    room.set({"client-id": None})
    assert room.produce(room.client(), 9_000) == 0
    assert room.produce(room.client(), 9_000) == 8_000


def test_the_longest_of_several_throttles_counts(room: Room) -> None:
    room.quotas.use({(("client-id", "c"),): {PRODUCER_RATE: 1_000.0, "request_percentage": 1.0}})
    client = room.client()
    room.produce(client, 20_000)
    room.quotas.end(10**9)
    assert room.produce(client, 20) == 10_020


def test_a_use_of_a_silent_client_is_forgotten_and_found_again_as_one(room: Room) -> None:
    room.set({"client-id": None})
    first, second = room.client(), room.client()
    room.produce(first, 100)
    room.pass_time(QUOTA_USE_KEPT_MS + 1)
    room.quotas.expire()
    assert [*room.quotas.uses] == []
    assert room.produce(first, 9_000) == 0
    assert room.produce(second, 9_000) == 8_000
    assert len([*room.quotas.uses]) == 1


def test_a_clock_that_jumps_throttles_nobody(room: Room) -> None:
    room.set({"client-id": None})
    client = room.client()
    room.produce(client, 9_000)
    room.clock.set(room.clock.now_ms - 10**9, room.clock.uptime_ms)
    assert room.produce(client, 500) == 0
    room.clock.set(10**15, room.clock.uptime_ms)
    assert room.produce(client, 400) == 0


def test_windows_are_as_long_as_the_settings_say() -> None:
    room = Room()
    settings = BrokerSettings({"quota.window.num": "2", "quota.window.size.seconds": "5"})
    room.quotas = Quotas(settings, room.clock)
    room.set({"client-id": None})
    assert room.produce(room.client(), 6_000) == 1_000
