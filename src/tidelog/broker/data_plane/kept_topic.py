"""A topic that keeps names, each in one of its partitions: groups, transactional ids.

**Invariant:** the topic is asked for once, however many wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.config import BrokerSettings
from tidelog.base.events import error
from tidelog.broker.outbox import Outbox
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.facts import TopicFacts
from tidelog.cluster.image import Image
from tidelog.cluster.store import Done, Outcome, reason_of

Place = tuple[TopicFacts, int]  # the topic, and the number of a partition
CreateTopic = Callable[[str, dict[str, str], int, int, OnOutcome], None]


class KeptTopic:
    def __init__(
        self,
        name: str,
        prefix: str,
        config: dict[str, str],
        settings: BrokerSettings,
        image: Image,
        outbox: Outbox,
        create_topic: CreateTopic,
    ) -> None:
        """`prefix`: of the broker's settings for it. `config`: of the topic, beside its segment size."""
        self.name = name
        self._prefix = prefix
        self._config = config
        self._settings = settings
        self._image = image
        self._outbox = outbox
        self._create_topic = create_topic
        self._waiters: list[Callable[[], None]] = []

    @property
    def facts(self) -> TopicFacts | None:
        return self._image.topics.get(self.name)

    def create(self, then: Callable[[], None]) -> None:
        """Have it created; `then` when it is there, or could not be created."""
        self._waiters.append(then)
        if len(self._waiters) > 1:
            return
        config = self._config | {"segment.bytes": str(self._number("segment.bytes"))}
        count, replica_count = self._number("num.partitions"), self._number("replication.factor")
        self._create_topic(self.name, config, count, replica_count, self._on_created)

    def _number(self, name: str) -> int:
        return self._settings.number(f"{self._prefix}.{name}")

    def _on_created(self, outcome: Outcome) -> None:
        waiters, self._waiters = self._waiters, []
        if not isinstance(outcome, Done):
            self._outbox.tell(
                error("internal topic creation failed", topic=self.name, reason=reason_of(outcome))
            )
        for then in waiters:
            then()
