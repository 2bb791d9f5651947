"""Metrics of clients: when they may speak, what is kept of what they say, and for how long."""

from __future__ import annotations

import pytest

from tests.protocol.otlp_samples import gauge, metrics, point, sum_of
from tests.wire.harness import new_client
from tidelog.broker import telemetry as module
from tidelog.broker.clients import Client
from tidelog.broker.telemetry import Push, Telemetry
from tidelog.protocol.compression import compress, decompress
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import ErrorCode

ID = bytes(range(16))
CLIENT = {"client_id": "c", "client_software_name": "soft", "client_software_version": "1.2"}
SIZE_MAX = 100_000
INTERVAL_MS = 1_000
SAMPLE = metrics(gauge("g", point(1)))


class Clients:
    """Telemetry with one subscription, and a clock."""

    def __init__(self) -> None:
        self.count = 0
        self.telemetry = Telemetry(self.entropy)
        self.now_ms = 50
        self.client = new_client()
        self.by_id = {ID: self.client}
        self.epoch = 0
        self.subscribe("*")

    def entropy(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")

    def subscribe(self, names: str) -> None:
        self.epoch += 1
        wanted = {"all": {"metrics": names, "interval.ms": str(INTERVAL_MS)}}
        self.telemetry.update(wanted, self.epoch)

    def of(self, instance_id: bytes) -> Client:
        """Every client has a connection of its own."""
        return self.by_id.setdefault(instance_id, new_client())

    def get(self, instance_id: bytes = ID) -> int | None:
        """The id of the subscription, or None if it is too soon to ask."""
        wanted = self.telemetry.get(instance_id, CLIENT, self.of(instance_id), self.now_ms)
        return wanted.subscription_id if wanted is not None else None

    def push(
        self,
        subscription_id: int | None,
        data: bytes = SAMPLE,
        *,
        instance_id: bytes = ID,
        terminating: bool = False,
        codec: int = 0,
        client: Client | None = None,
    ) -> ErrorCode:
        assert subscription_id is not None
        push = Push(subscription_id, terminating, codec, data)
        spoken = client or self.of(instance_id)
        return self.telemetry.push(instance_id, CLIENT, spoken, self.now_ms, push, SIZE_MAX)

    def values(self) -> dict[str, float]:
        return {row.name: row.value for row in self.telemetry.snapshot()}


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_what_was_pushed_is_shown(clients: Clients) -> None:
    data = metrics(
        gauge("rate", point(2.5, {"node": "1"}, time_ms=77)),
        sum_of("total", point(3)),
        resource={"client_rack": "r"},
    )
    assert clients.push(clients.get(), data) == 0
    first, second = clients.telemetry.snapshot()
    assert first == (
        "AAECAwQFBgcICQoLDA0ODw",
        "c",
        "soft",
        "1.2",
        "rate",
        (("client_rack", "r"), ("node", "1")),
        2.5,
        False,
        77,
    )
    assert (second.name, second.value, second.is_counter) == ("total", 3, True)


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_is_unpacked(clients: Clients, codec: int) -> None:
    assert clients.push(clients.get(), compress(codec, SAMPLE), codec=codec) == 0
    assert clients.values() == {"g": 1}


def test_the_newest_gauges_replace_the_last_and_deltas_add_up(clients: Clients) -> None:
    number = clients.get()
    delta = sum_of("added", point(5), temporality=1)
    whole = sum_of("counted", point(10))
    clients.push(number, metrics(gauge("old", point(1)), gauge("both", point(1)), delta, whole))
    clients.now_ms += INTERVAL_MS
    clients.push(number, metrics(gauge("both", point(2)), delta, sum_of("counted", point(30))))
    assert clients.values() == {"both": 2, "added": 10, "counted": 30}
    clients.now_ms += INTERVAL_MS
    clients.push(number, metrics(gauge("both", point(3))))
    assert clients.values() == {"both": 3, "added": 10, "counted": 30}


def test_a_question_or_a_push_within_the_interval_is_too_soon(clients: Clients) -> None:
    number = clients.get()
    assert clients.get() is None
    clients.now_ms += INTERVAL_MS - 1
    assert clients.get() is None
    assert clients.push(number) == 0, "the first push after a question comes early"
    assert clients.push(number) == ErrorCode.throttling_quota_exceeded
    clients.now_ms += INTERVAL_MS - 1
    assert clients.push(number) == ErrorCode.throttling_quota_exceeded
    assert clients.get() is None
    clients.now_ms += 1
    assert clients.push(number) == 0
    assert clients.get() is None
    clients.now_ms += INTERVAL_MS
    assert clients.get() == number


def test_the_last_push_may_come_at_any_time_and_none_after_it(clients: Clients) -> None:
    number = clients.get()
    assert clients.push(number) == 0
    assert clients.push(number, metrics(gauge("g", point(9))), terminating=True) == 0
    assert clients.values() == {"g": 9}
    clients.now_ms += INTERVAL_MS
    assert clients.push(number, terminating=True) == ErrorCode.invalid_request


def test_another_subscription_s_id_is_unknown_and_may_be_asked_for_at_once(clients: Clients) -> None:
    number = clients.get()
    assert number is not None
    assert clients.push(number + 1) == ErrorCode.unknown_subscription_id
    assert clients.values() == {}
    assert clients.get() == number
    assert clients.get() is None


def test_when_what_is_wanted_changes_it_may_be_asked_for_at_once(clients: Clients) -> None:
    number = clients.get()
    clients.push(number)
    clients.subscribe("g")
    assert clients.push(number) == ErrorCode.unknown_subscription_id
    changed = clients.get()
    assert changed not in (None, number)
    clients.now_ms += INTERVAL_MS
    assert clients.push(changed) == 0


@pytest.mark.parametrize("codec", [-1, 5, 127])
def test_a_codec_that_there_is_not_is_refused_and_the_right_ones_told_at_once(
    clients: Clients, codec: int
) -> None:
    number = clients.get()
    assert clients.push(number, codec=codec) == ErrorCode.unsupported_compression_type
    assert clients.get() == number


def test_too_much_is_refused_before_and_after_it_is_unpacked(clients: Clients) -> None:
    number = clients.get()
    assert clients.push(number, bytes(SIZE_MAX + 1)) == ErrorCode.telemetry_too_large
    for codec in (1, 2, 3, 4):
        clients.now_ms += INTERVAL_MS
        bomb = compress(codec, bytes(SIZE_MAX + 1))
        assert len(bomb) < SIZE_MAX
        assert clients.push(number, bomb, codec=codec) == ErrorCode.telemetry_too_large


@pytest.mark.parametrize(("data", "codec"), [(b"nonsense", 0), (b"nonsense", 1), (b"\x0a\x7f", 4)])
def test_what_cannot_be_read_is_refused(clients: Clients, data: bytes, codec: int) -> None:
    number = clients.get()
    assert clients.push(number, data, codec=codec) == ErrorCode.invalid_record
    assert clients.values() == {}


def test_an_empty_push_is_fine_and_changes_nothing(clients: Clients) -> None:
    number = clients.get()
    clients.push(number)
    clients.now_ms += INTERVAL_MS
    assert clients.push(number, b"") == 0
    assert clients.values() == {"g": 1}


def test_who_is_silent_for_long_or_hangs_up_is_forgotten(clients: Clients) -> None:
    clients.push(clients.get())
    clients.now_ms += 59_999
    clients.telemetry.expire(clients.now_ms)
    assert clients.values() == {"g": 1}
    clients.telemetry.expire(clients.now_ms + 1)
    assert (clients.values(), len(clients.telemetry), clients.telemetry.size) == ({}, 0, 0)
    clients.push(clients.get())
    clients.telemetry.drop(new_client())
    assert len(clients.telemetry) == 1
    clients.telemetry.drop(clients.client)
    assert (len(clients.telemetry), clients.telemetry.size) == (0, 0)


def test_counters_stay_while_any_connection_of_the_client_lives(clients: Clients) -> None:
    delta = metrics(sum_of("added", point(5), temporality=1))
    number = clients.get()
    other = new_client()
    clients.push(number, delta)
    clients.now_ms += INTERVAL_MS
    clients.push(number, delta, client=other)
    clients.telemetry.drop(clients.client)
    assert clients.values() == {"added": 10}
    clients.now_ms += INTERVAL_MS
    assert clients.push(number, delta, client=other) == 0
    assert clients.values() == {"added": 15}
    clients.telemetry.drop(other)
    assert (len(clients.telemetry), clients.telemetry.size) == (0, 0)


def test_a_connection_speaks_for_one_client_at_a_time_and_leaves_none_behind(clients: Clients) -> None:
    clients.push(clients.get())
    for number in range(1, 9):
        clients.telemetry.get(bytes([number] * 16), CLIENT, clients.client, clients.now_ms)
        assert len(clients.telemetry) == 1
    clients.telemetry.drop(clients.client)
    assert (len(clients.telemetry), clients.telemetry.size) == (0, 0)


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was unpacked."""
    sizes: list[int] = []

    def counted(codec: int, data: bytes, size_max: int) -> bytes:
        sizes.append(len(data))
        return decompress(codec, data, size_max)

    monkeypatch.setattr(module, "decompress", counted)
    return sizes


def test_what_nobody_wants_is_not_even_unpacked(clients: Clients, unpacked: list[int]) -> None:
    for wanted in ({}, {"one": {"metrics": "", "interval.ms": "1000"}}):
        clients.epoch += 1
        clients.telemetry.update(wanted, clients.epoch)
        number = clients.get()
        assert number is not None
        assert clients.push(number) == ErrorCode.unknown_subscription_id
        clients.now_ms += 300_000
        assert clients.push(number + 1) == ErrorCode.unknown_subscription_id
        clients.now_ms += 300_000
        assert clients.push(number, b"") == 0
    assert unpacked == []


@pytest.mark.parametrize("terminating", [False, True])
def test_fresh_ids_do_not_get_a_connection_round_the_interval(
    clients: Clients, unpacked: list[int], terminating: bool
) -> None:
    def push_with(number: int) -> ErrorCode:
        each = bytes([number] * 16)
        wanted = clients.telemetry.get(each, CLIENT, clients.client, clients.now_ms)
        assert wanted is not None
        return clients.push(
            wanted.subscription_id,
            instance_id=each,
            terminating=terminating,
            client=clients.client,
        )

    errors = [push_with(number) for number in range(1, 9)]
    assert errors == [0, 0, *[ErrorCode.throttling_quota_exceeded] * 6]
    assert len(unpacked) == 2
    clients.now_ms += INTERVAL_MS
    assert push_with(9) == 0


@pytest.mark.parametrize(
    "data",
    [SAMPLE, b"nonsense", bytes(SIZE_MAX + 1), metrics(gauge("g", *[b""] * 99))],
    ids=["good", "bad", "large", "points"],
)
def test_fresh_connections_do_not_get_an_address_beyond_its_bytes(
    clients: Clients, unpacked: list[int], monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(module, "TELEMETRY_UNPACKED_MAX", 200)
    packed = compress(4, data)

    def push_from(address: str, number: int) -> ErrorCode:
        each = bytes([number] * 16)
        clients.by_id[each] = Client(Connection(100), (address, number))
        return clients.push(clients.get(each), packed, instance_id=each, codec=4)

    errors = [push_from("10.0.0.1", number) for number in range(1, 40)]
    assert errors[0] != ErrorCode.throttling_quota_exceeded
    assert errors[-1] == ErrorCode.throttling_quota_exceeded
    assert len(unpacked) <= 200 // len(data) + 1
    assert push_from("10.0.0.2", 50) == errors[0]
    clients.now_ms += module.SECOND_MS
    assert push_from("10.0.0.1", 51) == errors[0]


def test_the_series_of_one_client_are_bounded(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELEMETRY_SERIES_MAX", 3)
    number = clients.get()
    for names in ("ab", "cd", "ae"):
        clients.push(number, metrics(*[sum_of(name, point(1)) for name in names]))
        clients.now_ms += INTERVAL_MS
    assert [*clients.values()] == ["d", "a", "e"], "those not told of for longest go"


def test_new_ids_are_random_uuids_that_nobody_has(clients: Clients) -> None:
    first = clients.telemetry.new_instance_id()
    assert first[6] >> 4 == 4 and first[8] >> 6 == 2
    clients.get(first)
    clients.count = 0
    assert clients.telemetry.new_instance_id() != first


def test_the_number_of_clients_is_bounded(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELEMETRY_CLIENTS_MAX", 3)
    ids = [bytes([number] * 16) for number in range(1, 5)]
    for each in ids[:3]:
        clients.push(clients.get(each), metrics(gauge(str(each[0]), point(1))), instance_id=each)
    clients.now_ms += INTERVAL_MS
    clients.get(ids[0])
    clients.get(ids[3])
    assert len(clients.telemetry) == 3
    assert clients.values() == {"1": 1, "3": 1}, "the second was silent for longest"


def test_the_bytes_kept_are_bounded(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    size_max = 50 * module.SERIES_SIZE
    monkeypatch.setattr(module, "TELEMETRY_BYTES_MAX", size_max)
    for number in range(1, 9):
        each = bytes([number] * 16)
        data = metrics(*[gauge(f"{number}.{place}", point(1)) for place in range(10)])
        assert clients.push(clients.get(each), data, instance_id=each) == 0
        assert clients.telemetry.size <= size_max
    assert {name[0] for name in clients.values()} == {"5", "6", "7", "8"}
    assert len(clients.telemetry) == 8


def test_rows_may_be_read_while_clients_come_and_go(clients: Clients) -> None:
    for number in range(1, 4):
        each = bytes([number] * 16)
        clients.push(clients.get(each), metrics(gauge("g", point(number))), instance_id=each)
    rows = clients.telemetry.rows()
    assert next(rows).value == 1
    clients.now_ms += INTERVAL_MS
    clients.push(clients.get(bytes([2] * 16)), metrics(gauge("g", point(7))), instance_id=bytes([2] * 16))
    clients.push(clients.get())
    for client in clients.by_id.values():
        clients.telemetry.drop(client)
    assert [row.value for row in rows] == [7, 3]


def test_long_names_are_not_kept_whole(clients: Clients) -> None:
    client = CLIENT | {"client_id": "c" * 10_000}
    clients.telemetry.get(ID, client, clients.client, clients.now_ms)
    clients.now_ms += INTERVAL_MS
    clients.push(clients.get())
    (row,) = clients.telemetry.snapshot()
    assert len(row.client_id) == 256
