"""Quotas of clients: whose is which, how much is used of it, and how long a client is muted that is over it.

| quota                      | of what                     | measured              | over it                |
|----------------------------|-----------------------------|-----------------------|------------------------|
| `producer_byte_rate`       | Produce requests, whole     | when one has come     | appended, then muted   |
| `consumer_byte_rate`       | what is fetched             | when it would be sent | it is not sent, muted  |
| `request_percentage`       | the loop's time, in percent | when one was served   | muted after the next   |
| `controller_mutation_rate` | partitions made and deleted | before each topic     | refused, or muted      |

The first of eight entities that has a quota is the one that counts, for each quota by itself; who shares it
shares its use. Nothing is measured of clients that have no quota.

**Invariant:** what brokers send each other is never counted or muted. A client is muted by `_throttle` alone,
and every answer tells what is left of that time. What is remembered of clients is bounded, whatever they call
themselves: where there is no more room, newcomers of one limit share one use of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.base.config import BrokerSettings
from tidelog.base.limits import (
    QUOTA_HEADER_SIZE_MAX,
    QUOTA_NAME_LENGTH_MAX,
    QUOTA_SWEEP_MS,
    QUOTA_USE_KEPT_MS,
    QUOTA_USES_MAX,
)
from tidelog.broker.clients import Client
from tidelog.broker.clock import Clock
from tidelog.broker.connections import ConnectionRates
from tidelog.broker.rates import SECOND_MS
from tidelog.broker.uses import CLIENT_ID_POSITION, Owner, Use, Uses
from tidelog.cluster.image import Image
from tidelog.cluster.quotas import (
    CONSUMER_RATE,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    entities_of,
    levels,
)
from tidelog.protocol.apis import ADD_PARTITIONS_TO_TXN, ENVELOPE_KEY, FETCH, PRODUCE, WRITE_TXN_MARKERS

# By the names that Kafka's metrics have for them.
RESOURCES = {
    PRODUCER_RATE: "Produce",
    CONSUMER_RATE: "Fetch",
    REQUEST_PERCENTAGE: "Request",
    MUTATION_RATE: "ControllerMutation",
}
_PERCENT_PER_NS = 100 / 1_000_000_000
_BETWEEN_BROKERS = (ENVELOPE_KEY, WRITE_TXN_MARKERS.key)
_BATCHED_VERSION = 4  # of AddPartitionsToTxn: from here on brokers ask
_PRODUCE, _FETCH, _ADD_PARTITIONS = PRODUCE.key, FETCH.key, ADD_PARTITIONS_TO_TXN.key


class Mutations:
    """What one request may change of the topics (KIP-599): all, or nothing more once it was too much."""

    def __init__(self, quotas: Quotas, client: Client, use: Use | None, is_strict: bool) -> None:
        self._quotas = quotas
        self._client = client
        self._use = use
        self._is_strict = is_strict

    def take(self, partition_count: int) -> bool:
        """Whether that many partitions may be made or deleted; they count if so."""
        return self._use is None or self._quotas.take(
            self._client, self._use, partition_count, self._is_strict
        )


class Quotas:
    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._clock = clock
        self._windows = (
            settings.number("quota.window.num"),
            settings.number("quota.window.size.seconds") * SECOND_MS,
        )
        self._controller_windows = (
            settings.number("controller.quota.window.num"),
            settings.number("controller.quota.window.size.seconds") * SECOND_MS,
        )
        self.connections = ConnectionRates(settings)
        self.entities: Mapping[Entity, Mapping[str, float]] = {}
        self.is_on = False  # some client may have a quota
        self._epoch = 0  # of what clients remember: raised when that may be wrong
        self._limits: dict[str, dict[Entity, float]] = {key: {} for key in RESOURCES}
        self._uses: dict[Owner, Use] = {}
        self._shared: dict[tuple[str, float], Use] = {}  # of newcomers, by quota and limit
        self._timed: Use | None = None  # of the request that is being served
        self._next_sweep_ms = 0

    # What is set.

    def follow(self, image: Image) -> int:
        """Use those of the image; how many there are."""
        entities = entities_of(image)
        self.use(entities)
        return len(entities)

    def use(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """These are the quotas from now on; what was used so far still counts."""
        self.entities = entities
        self.connections.use(entities)
        self._limits = {
            key: {entity: quotas[key] for entity, quotas in entities.items() if key in quotas}
            for key in RESOURCES
        }
        self.is_on = any(self._limits.values())
        self._epoch += 1
        self._shared = {}
        if not self.is_on:
            self._uses = {}
            self._timed = None

    def limit_of(self, key: str, user: str, client_id: str) -> tuple[float, Owner] | None:
        """The limit that counts, and who shares it."""
        limits = self._limits[key]
        if not limits:
            return None
        for entity, shared in levels(user, client_id):
            limit = limits.get(entity)
            if limit is not None:
                return limit, Owner(key, *shared)
        return None

    # What is used.

    def begin(self, client: Client, frame: memoryview) -> None:
        """The gate: a request has come. It is served, whatever it is over."""
        self._timed = None
        api_key = frame[0] << 8 | frame[1]
        if api_key in _BETWEEN_BROKERS:
            return
        uses = self.know(client, frame)
        if uses is None or api_key == _FETCH:
            return  # of a fetch, `begin_fetch` sees who sends it
        if api_key == _ADD_PARTITIONS and frame[3] >= _BATCHED_VERSION:
            return
        if uses.request is not None:
            self._begin_timed(client, uses.request)
        use = uses.produce
        if api_key == _PRODUCE and use is not None:
            now_ms = use.last_ms = self._clock.uptime_ms
            use.rate.record(len(frame), now_ms)
            throttle_ms = use.rate.throttle_ms(use.limit, now_ms)
            if throttle_ms:
                self._throttle(client, use, throttle_ms)

    def know(self, client: Client, frame: memoryview) -> Uses | None:
        """Find out whose quotas count for this request, and the next ones like it."""
        if len(frame) < CLIENT_ID_POSITION + 2:
            return None
        uses = client.uses
        if uses is None or uses.epoch != self._epoch or not uses.are_of(client.principal, frame):
            uses = client.uses = self._uses_of(client, frame)
        return uses

    def _begin_timed(self, client: Client, use: Use) -> None:
        self._timed = use
        now_ms = use.last_ms = self._clock.uptime_ms
        throttle_ms = use.rate.throttle_ms(use.limit, now_ms)
        if throttle_ms:
            self._throttle(client, use, min(throttle_ms, self._windows[1]))

    def end(self, took_ns: int) -> None:
        """The request was served, or waits, after that much time of the loop."""
        use = self._timed
        if use is not None:
            use.rate.record(took_ns * _PERCENT_PER_NS, self._clock.uptime_ms)

    def begin_fetch(self, client: Client) -> int | None:
        """A consumer fetches: how many bytes it may be given at once, at most; None if as many as it wants.
        More would be over its quota whatever it had before."""
        uses = self._remembered(client)
        if uses is None:
            return None
        if uses.request is not None:
            self._begin_timed(client, uses.request)
        if uses.fetch is None:
            return None
        count, window_ms = self._windows
        return int(min(uses.fetch.limit * max(count - 1, 1) * window_ms / SECOND_MS, 2**31 - 1))

    def admit_fetched(self, client: Client, size: int) -> bool:
        """Count what an answer to a fetch is about to bring. If that is over the quota it does not count, is
        not to be sent, and the client is muted. What no window has room for, a single batch, passes if
        nothing else was fetched in all of them."""
        uses = self._remembered(client)
        use = uses.fetch if uses is not None else None
        if use is None:
            return True
        now_ms = self._clock.uptime_ms
        use.rate.record(size, now_ms)
        throttle_ms = use.rate.throttle_ms(use.limit, now_ms)
        if not throttle_ms or use.rate.total(now_ms) <= size:
            use.last_ms = now_ms
            return True
        use.rate.record(-size, now_ms)
        self._throttle(client, use, throttle_ms)
        return False

    def mutations(self, client: Client, is_strict: bool) -> Mutations:
        """For a request of the controller's; strict is who knows the error for too many."""
        uses = self._remembered(client)
        return Mutations(self, client, uses.mutation if uses is not None else None, is_strict)

    def take(self, client: Client, use: Use, count: int, is_strict: bool) -> bool:
        bucket, now_ms = use.bucket, self._clock.uptime_ms
        assert bucket is not None
        owed_ms = bucket.throttle_ms(use.limit, now_ms)
        if is_strict and owed_ms:
            self._throttle(client, use, owed_ms)
            return False
        bucket.take(count, use.limit, now_ms)
        use.rate.record(count, now_ms)
        use.last_ms = now_ms
        if not is_strict:
            self._throttle(client, use, bucket.throttle_ms(use.limit, now_ms))
        return True

    def _throttle(self, client: Client, use: Use, throttle_ms: int) -> None:
        now_ms = self._clock.uptime_ms
        use.last_ms = now_ms
        if throttle_ms > 0:
            use.note_throttle(throttle_ms, now_ms)
            client.mute(self._clock, now_ms + throttle_ms)

    # Whose it is.

    def _remembered(self, client: Client) -> Uses | None:
        uses = client.uses
        if not self.is_on or uses is None:
            return None
        if uses.epoch != self._epoch:
            uses = client.uses = self._found(uses.principal, uses.client_id, uses.head)
        return uses

    def _uses_of(self, client: Client, frame: memoryview) -> Uses:
        start = CLIENT_ID_POSITION
        size = int.from_bytes(frame[start : start + 2], "big", signed=True)
        head = bytes(frame[start : start + 2 + max(size, 0)])
        client_id = head[2:].decode("utf-8", "replace")[:QUOTA_NAME_LENGTH_MAX]
        return self._found(client.principal, client_id, head if len(head) <= QUOTA_HEADER_SIZE_MAX else b"")

    def _found(self, principal: str | None, client_id: str, head: bytes) -> Uses:
        if len(self._uses) + len(RESOURCES) > QUOTA_USES_MAX:
            self._make_room()
        user = (principal or "").partition(":")[2]
        produce, fetch, request, mutation = (self._use_of(key, user, client_id) for key in RESOURCES)
        return Uses(self._epoch, principal, head, client_id, produce, fetch, request, mutation)

    def _make_room(self) -> None:
        """Not each time: a client that makes up names would have all uses examined for each of them."""
        now_ms = self._clock.uptime_ms
        if now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + QUOTA_SWEEP_MS
            self._drop([use for use in self._uses.values() if use.is_as_new(now_ms)])

    def _use_of(self, key: str, user: str, client_id: str) -> Use | None:
        found = self.limit_of(key, user, client_id)
        if found is None:
            return None
        limit, owner = found
        use = self._uses.get(owner)
        if use is None:
            now_ms = self._clock.uptime_ms
            windows = self._controller_windows if key == MUTATION_RATE else self._windows
            if len(self._uses) >= QUOTA_USES_MAX:
                shared = self._shared.get((key, limit))
                if shared is None:
                    shared = self._shared[key, limit] = Use(
                        Owner(key, "", f"(shared, {limit:g})"), limit, windows, now_ms
                    )
                return shared
            use = self._uses[owner] = Use(owner, limit, windows, now_ms)
        use.limit = limit
        return use

    def _drop(self, uses: list[Use]) -> None:
        for use in uses:
            del self._uses[use.owner]
        if uses:
            self._epoch += 1  # a connection that remembers one of them must not go on with it alone

    def expire(self) -> None:
        """Forget clients that have been silent for an hour."""
        since_ms = self._clock.uptime_ms - QUOTA_USE_KEPT_MS
        self._drop([use for use in self._uses.values() if use.last_ms < since_ms])

    @property
    def uses(self) -> Iterator[Use]:
        """For the metrics."""
        return iter([*self._uses.values(), *self._shared.values()])

    @property
    def uptime_ms(self) -> int:
        return self._clock.uptime_ms
