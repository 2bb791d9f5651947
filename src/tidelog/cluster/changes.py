"""Changes of the image, as values that `Broker` hands to the parts that react to them.

**Invariant:** a change names what has changed; the new state is read from the image.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic was created or deleted, or one of its partitions has changed."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    """A topic's own node was written: it was created, or its settings have changed."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class BrokerConfigured:
    """Settings of one broker, by its number, or of all brokers."""

    name: str


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers were registered or are gone, or their losses are known."""


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """There is another controller, or none."""


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """A feature level was raised, or groups have moved."""


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """Quotas of clients or addresses."""


Change = (
    TopicChanged
    | TopicConfigured
    | BrokerConfigured
    | BrokersChanged
    | ControllerChanged
    | FeaturesChanged
    | QuotasChanged
)
