"""Metrics of clients (KIP-714): what each is asked for, when it may speak, and the last it said.

| a client                                  | may ask for its subscription | may push                       |
|-------------------------------------------|------------------------------|--------------------------------|
| is new, or what is wanted of it changed   | yes                          | yes                            |
| asked within the interval                 | no                           | once                           |
| pushed within the interval                | no                           | no, unless it ends with that   |
| was told that its subscription is unknown | yes                          | as before                      |
| said that it ends                         | as before                    | no: INVALID_REQUEST            |

What a client said is kept until it says something else, is not heard of for three intervals, or none of its
connections is left. A connection speaks for one client at a time. Deltas are added up, so that what is
shown as a counter is one.

**Invariant:** the number of clients and the bytes kept for them are bounded; who was silent for longest
goes first. Nothing is unpacked that nobody wants, and ids, of which anybody can make as many as he likes, do
not get round the interval: it holds for a connection too, and an address has so many bytes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from tidelog.base.limits import (
    TELEMETRY_BYTES_MAX,
    TELEMETRY_CLIENT_ID_LENGTH_MAX,
    TELEMETRY_CLIENTS_MAX,
    TELEMETRY_KEPT_MS_MIN,
    TELEMETRY_PUSHES_MAX,
    TELEMETRY_SERIES_MAX,
    TELEMETRY_UNPACKED_MAX,
)
from tidelog.broker.clients import Client
from tidelog.broker.subscriptions import Subscription, Wanted, understand, wanted_of
from tidelog.cluster.controller import encode_id
from tidelog.protocol.compression import CODEC_NAMES, decompress
from tidelog.protocol.errors import CorruptBatch, ErrorCode, OversizedBatch
from tidelog.protocol.otlp import Labels, Point, decode_metrics

EXPIRY_INTERVALS = 3
NEVER_MS = -(2**62)
SECOND_MS = 1_000
POINT_SIZE = 20  # bytes that are as much work as one number
SERIES_SIZE = 700  # of the objects that a series is made of, without its texts
_ASKS_AT_ONCE = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)


class ClientMetric(NamedTuple):
    """One number of one client, as the metrics page shows it."""

    client_instance_id: str
    client_id: str
    software_name: str
    software_version: str
    name: str
    labels: Labels
    value: float
    is_counter: bool
    time_ms: int


class Series(NamedTuple):
    value: float
    is_counter: bool
    time_ms: int
    size: int


class Push(NamedTuple):
    subscription_id: int
    is_terminating: bool
    codec: int
    metrics: bytes


class Speaker:
    """A connection: the client that it speaks for, and how often it pushed within the interval."""

    __slots__ = ("instance_id", "push_count", "since_ms")

    def __init__(self, instance_id: bytes) -> None:
        self.instance_id = instance_id
        self.push_count = 0
        self.since_ms = NEVER_MS

    def admit_push(self, now_ms: int, interval_ms: int) -> bool:
        """Count one more; whether it is within what an interval allows."""
        if now_ms - self.since_ms >= interval_ms:
            self.since_ms, self.push_count = now_ms, 0
        self.push_count += 1
        return self.push_count <= TELEMETRY_PUSHES_MAX


class Instance:
    """One client: who it is, what it is asked for, when it spoke, what it said."""

    __slots__ = (
        "clients",
        "epoch",
        "expires_ms",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "selectors",
        "series",
        "size",
        "wanted",
    )

    def __init__(self, selectors: dict[str, str]) -> None:
        self.selectors = selectors  # with their values
        self.clients: set[Client] = set()  # that speak for it
        self.epoch: int | None = None
        self.series: dict[tuple[str, Labels], Series] = {}
        self.size = 0
        self.expires_ms = 0

    def subscribe(self, wanted: Wanted, epoch: int) -> None:
        """Start over with what is wanted by now."""
        self.wanted = wanted
        self.epoch = epoch
        self.last_get_ms = self.last_push_ms = NEVER_MS
        self.is_terminating = False
        self.last_error = ErrorCode.none

    def admit_get(self, now_ms: int) -> bool:
        """Whether the client asks late enough; if so, the next one is counted from here."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
            return True
        return self.last_error in _ASKS_AT_ONCE

    def admit_push(self, now_ms: int, is_terminating: bool) -> bool:
        # Only from push to push: after a question clients wait for half to one and a half intervals.
        if now_ms - self.last_push_ms >= self.wanted.interval_ms:
            self.last_push_ms = now_ms
            return True
        return is_terminating

    def take(self, points: list[Point]) -> None:
        """The newest numbers in place of the last; counters not among them stay while there is room."""
        series = {key: kept for key, kept in self.series.items() if kept.is_counter}
        labels: Labels = ()
        labels_size = 0
        for point in points:
            if point.labels is not labels:  # those of a resource are shared
                labels = point.labels
                labels_size = sum(len(name) + len(text) for name, text in labels)
            key = point.name, point.labels
            before = self.series.get(key)
            value = point.value
            if point.is_delta and before is not None:
                value += before.value
            size = SERIES_SIZE + len(point.name) + labels_size
            series.pop(key, None)  # or it would keep its place among those not told of for long
            series[key] = Series(value, point.is_counter, point.time_ms, size)
        for key in list(islice(series, max(len(series) - TELEMETRY_SERIES_MAX, 0))):
            del series[key]
        self.series = series
        self.size = sum(kept.size for kept in series.values())


class Telemetry:
    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._instances: dict[bytes, Instance] = {}  # the last one heard of is the last
        self._speakers: dict[Client, Speaker] = {}
        self._second_ms = NEVER_MS
        self._unpacked: dict[str, int] = {}  # bytes in this second, by address
        self._subscriptions: list[Subscription] = []
        self._epoch = -1
        self._size = 0

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def size(self) -> int:
        """Bytes of what clients have said."""
        return self._size

    def update(self, resources: Mapping[str, Mapping[str, str]], epoch: int) -> None:
        """What is wanted; `epoch` changes whenever the resources do."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._subscriptions = understand(resources)

    def new_instance_id(self) -> bytes:
        """A random UUID that nobody has."""
        while True:
            raw = bytearray(self._entropy(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if bytes(raw) not in self._instances:
                return bytes(raw)

    def get(
        self, instance_id: bytes, selectors: dict[str, str], client: Client, now_ms: int
    ) -> Wanted | None:
        """What the client is asked for, or None if it asks too soon."""
        instance = self._instance(instance_id, selectors, client, now_ms)
        if not instance.admit_get(now_ms):
            return None
        instance.last_error = ErrorCode.none
        return instance.wanted

    def push(
        self,
        instance_id: bytes,
        selectors: dict[str, str],
        client: Client,
        now_ms: int,
        push: Push,
        size_max: int,
    ) -> ErrorCode:
        """Take what a client says of itself."""
        instance = self._instance(instance_id, selectors, client, now_ms)
        error = _push_problem(instance, push, now_ms, size_max)
        instance.is_terminating = push.is_terminating
        if error is ErrorCode.none and push.metrics:
            error = ErrorCode.throttling_quota_exceeded
            if self._admit_unpack(client, now_ms, instance.wanted.interval_ms):
                error = self._take(instance, push, size_max, client.address)
        instance.last_error = error
        return error

    def _admit_unpack(self, client: Client, now_ms: int, interval_ms: int) -> bool:
        if now_ms - self._second_ms >= SECOND_MS:
            self._second_ms = now_ms
            self._unpacked.clear()
        if self._unpacked.get(client.address, 0) >= TELEMETRY_UNPACKED_MAX:
            return False
        return self._speakers[client].admit_push(now_ms, interval_ms)

    def _take(self, instance: Instance, push: Push, size_max: int, address: str) -> ErrorCode:
        size = size_max
        try:
            unpacked = decompress(push.codec, push.metrics, size_max)
            size = len(unpacked)
            points = decode_metrics(unpacked)
            size += POINT_SIZE * len(points)
        except OversizedBatch:
            return ErrorCode.telemetry_too_large
        except CorruptBatch:
            return ErrorCode.invalid_record
        finally:
            self._unpacked[address] = self._unpacked.get(address, 0) + size
        self._size -= instance.size
        instance.take(points)
        self._size += instance.size
        self._make_room()
        return ErrorCode.none

    def _instance(
        self, instance_id: bytes, selectors: dict[str, str], client: Client, now_ms: int
    ) -> Instance:
        instance = self._instances.pop(instance_id, None)
        if instance is None:
            described = selectors | {"client_instance_id": encode_id(instance_id)}
            cut = {name: text[:TELEMETRY_CLIENT_ID_LENGTH_MAX] for name, text in described.items()}
            instance = Instance(cut)
        self._instances[instance_id] = instance
        if instance.epoch != self._epoch:
            instance.subscribe(wanted_of(instance.selectors, instance_id, self._subscriptions), self._epoch)
        self._speak(client, instance_id, instance)
        kept_ms = max(TELEMETRY_KEPT_MS_MIN, EXPIRY_INTERVALS * instance.wanted.interval_ms)
        instance.expires_ms = now_ms + kept_ms
        while len(self._instances) > TELEMETRY_CLIENTS_MAX:
            self._forget(next(iter(self._instances)))
        return instance

    def _speak(self, client: Client, instance_id: bytes, instance: Instance) -> None:
        instance.clients.add(client)
        speaker = self._speakers.get(client)
        if speaker is None:
            self._speakers[client] = Speaker(instance_id)
        elif speaker.instance_id != instance_id:
            self._leave(client, speaker.instance_id)
            speaker.instance_id = instance_id

    def _leave(self, client: Client, instance_id: bytes) -> None:
        """The connection no longer speaks for the client, which is forgotten if none does."""
        instance = self._instances.get(instance_id)
        if instance is not None:
            instance.clients.discard(client)
            if not instance.clients:
                self._forget(instance_id)

    def _make_room(self) -> None:
        for instance in self._instances.values():
            if self._size <= TELEMETRY_BYTES_MAX:
                return
            self._size -= instance.size
            instance.series, instance.size = {}, 0

    def _forget(self, instance_id: bytes) -> None:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            self._size -= instance.size

    def drop(self, client: Client) -> None:
        """The connection is closed, and if it was the client's last one, the client with it, or it will
        introduce itself again."""
        speaker = self._speakers.pop(client, None)
        if speaker is not None:
            self._leave(client, speaker.instance_id)

    def expire(self, now_ms: int) -> None:
        """Forget who has not been heard of for too long."""
        silent = [key for key, instance in self._instances.items() if instance.expires_ms <= now_ms]
        for instance_id in silent:
            self._forget(instance_id)

    def snapshot(self) -> list[ClientMetric]:
        """All that clients have said, as plain rows."""
        return list(self.rows())

    def rows(self) -> Iterator[ClientMetric]:
        """The same one by one; what clients say meanwhile may be among them."""
        for instance in list(self._instances.values()):
            selectors = instance.selectors
            whose = (
                selectors["client_instance_id"],
                selectors.get("client_id", ""),
                selectors["client_software_name"],
                selectors["client_software_version"],
            )
            for (name, labels), series in instance.series.items():
                yield ClientMetric(*whose, name, labels, *series[:3])


def _push_problem(instance: Instance, push: Push, now_ms: int, size_max: int) -> ErrorCode:
    if instance.is_terminating:
        return ErrorCode.invalid_request
    if not instance.admit_push(now_ms, push.is_terminating):
        return ErrorCode.throttling_quota_exceeded
    if push.subscription_id != instance.wanted.subscription_id:
        return ErrorCode.unknown_subscription_id
    if push.metrics and not instance.wanted.metrics:
        return ErrorCode.unknown_subscription_id  # there is none
    if not 0 <= push.codec < len(CODEC_NAMES):
        return ErrorCode.unsupported_compression_type
    if len(push.metrics) > size_max:
        return ErrorCode.telemetry_too_large
    return ErrorCode.none
