"""Which metrics are wanted of which clients (KIP-714), from the resources of kind client-metrics.

A resource says what it wants (`metrics`, prefixes of names, `*` for all), how often (`interval.ms`) and of
whom (`match`: selectors with a pattern each, that must all fit; none of them: of everybody). A client gets
the sum of what fits it.

**Invariant:** patterns come over the wire and are run by RE2 alone, in time linear in what they look at; a
resource that cannot be understood fits nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import re2
from crc32c import crc32c

from tidelog.base.limits import PATTERN_LENGTH_MAX, PATTERN_MEMORY_MAX
from tidelog.base.setting import InvalidSetting

INTERVAL_MS_USUAL = 300_000
ALL_METRICS = "*"
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class Subscription(NamedTuple):
    """One resource, understood."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: dict[str, Pattern]

    def fits(self, client: Mapping[str, str]) -> bool:
        return all(
            name in client and pattern.fullmatch(client[name]) is not None
            for name, pattern in self.match.items()
        )


class Wanted(NamedTuple):
    """What one client is asked for."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    return options


_OPTIONS = _options()


def parse_match(words: Sequence[str]) -> dict[str, Pattern]:
    """The selectors of a `match` setting with their patterns; InvalidSetting if one of them is none."""
    match: dict[str, Pattern] = {}
    for word in words:
        name, _, text = word.rstrip("=").partition("=")
        name, text = name.strip(), text.strip()
        if name not in SELECTORS or not text or "=" in text or len(text) > PATTERN_LENGTH_MAX:
            raise InvalidSetting(f"Illegal client matching pattern: {word}")
        try:
            match[name] = re2.compile(text, options=_OPTIONS)
        except re2.error:
            raise InvalidSetting(f"Illegal client matching pattern: {word}") from None
    return match


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def understand(resources: Mapping[str, Mapping[str, str]]) -> list[Subscription]:
    """The resources that can be understood; they were checked when they were set."""
    subscriptions = []
    for resource in resources.values():
        try:
            interval_ms = int(resource.get("interval.ms", INTERVAL_MS_USUAL))
            match = parse_match(_words(resource.get("match", "")))
        except (InvalidSetting, ValueError):
            continue
        metrics = tuple(_words(resource.get("metrics", "")))
        subscriptions.append(Subscription(metrics, interval_ms, match))
    return subscriptions


def wanted_of(client: Mapping[str, str], instance_id: bytes, subscriptions: Sequence[Subscription]) -> Wanted:
    """The sum of the subscriptions that fit the client: all their metrics, as often as the most eager."""
    fitting = [subscription for subscription in subscriptions if subscription.fits(client)]
    names = sorted({name: None for subscription in fitting for name in subscription.metrics})
    metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(names)
    interval_ms = min([INTERVAL_MS_USUAL, *(subscription.interval_ms for subscription in fitting)])
    return Wanted(_subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms)


def _subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: bytes) -> int:
    """A checksum of what is wanted, mixed with the client's id as Kafka does: it changes with either."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    for start in range(0, len(instance_id), 4):
        checksum ^= int.from_bytes(instance_id[start : start + 4], "big")
    return checksum - 2**32 if checksum >= 2**31 else checksum
