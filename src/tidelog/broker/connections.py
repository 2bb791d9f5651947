"""How fast clients may connect: all together, and each address (KIP-612).

| over                                        | then                                                    |
|---------------------------------------------|---------------------------------------------------------|
| `max.connection.creation.rate` of a broker  | it is served; no other one is accepted for a while      |
| `connection_creation_rate` of its address   | it does not count, and is closed unserved after a while |

**Invariant:** a while is at most one window. What is remembered of addresses is bounded: where there is no
more room, newcomers of one limit share one rate.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.config import BrokerSettings
from tidelog.base.limits import QUOTA_SWEEP_MS, QUOTA_USES_MAX
from tidelog.broker.rates import SECOND_MS, Rate
from tidelog.cluster.quotas import CONNECTION_RATE, IP, Entity, address_of


class ConnectionRates:
    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        count = settings.number("quota.window.num")
        self._windows = (count, settings.number("quota.window.size.seconds") * SECOND_MS)
        self._limits: dict[str, float] = {}
        self._default: float | None = None
        self._of_all: Rate | None = None
        self._rates: dict[str, Rate] = {}
        self._shared: dict[float, Rate] = {}
        self._next_sweep_ms = 0

    def use(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """These are the quotas from now on."""
        self._limits, self._default, self._shared = {}, None, {}
        for ((kind, name), *_), quotas in entities.items():
            limit = quotas.get(CONNECTION_RATE)
            if kind == IP and limit is not None:
                if name is None:
                    self._default = limit
                else:
                    self._limits[address_of(name) or name] = limit
        if not self._limits and self._default is None:
            self._rates = {}

    def pause_ms(self, now_ms: int) -> int:
        """A connection was accepted: how long no other one is to be."""
        limit = self._settings.number("max.connection.creation.rate")
        if self._of_all is None:
            self._of_all = Rate(*self._windows, now_ms)
        self._of_all.record(1, now_ms)
        return min(self._of_all.throttle_ms(limit, now_ms), self._windows[1])

    def delay_ms(self, peer: str, now_ms: int) -> int:
        """How long a connection of this address is kept before it is closed; 0 if it may stay."""
        if not self._limits and self._default is None:
            return 0
        address = address_of(peer.partition("%")[0]) or peer
        limit = self._limits.get(address, self._default)
        if limit is None:
            return 0
        rate = self._rate_of(address, limit, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._windows[1])
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _rate_of(self, address: str, limit: float, now_ms: int) -> Rate:
        rate = self._rates.get(address)
        if rate is not None:
            return rate
        if len(self._rates) >= QUOTA_USES_MAX and now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = now_ms + QUOTA_SWEEP_MS
            self._rates = {name: each for name, each in self._rates.items() if not each.is_unused(now_ms)}
        new = Rate(*self._windows, now_ms)
        if len(self._rates) >= QUOTA_USES_MAX:
            return self._shared.setdefault(limit, new)
        self._rates[address] = new
        return new
