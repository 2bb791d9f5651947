"""An administrator of a simulated cluster: asks whichever broker for what is the controller's to do.

**Invariant:** nothing is asked that loses records: no unclean election, and topics with records to be proved
are never deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.wire.harness import CREATE_TOPICS, DELETE_TOPICS, decode_answer, parts, request_frame, seconds
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.sim.cluster import World

CREATE_VERSION, DELETE_VERSION = 7, 6
CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION = 37, 3
ELECT_LEADERS, ELECT_LEADERS_VERSION = 43, 2
INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION = 44, 1
TOPIC, SET, PREFERRED = 2, 0, 0
CHURN = "churn"
TIMEOUT_MS = 8_000


class Admin:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.clock.random

    def act(self) -> None:
        self._random.choice(
            (self.elect, self.elect, self.make_churn, self.delete_churn, self.grow_churn, self.set_minimum)
        )()

    def _ask(self, api_key: int, version: int, what: str, **values: Any) -> None:
        nodes = self._world.serving()
        if not nodes:
            return
        frame = request_frame(api_key, version, 1, **values)

        def on_end(answer: bytes | None) -> None:
            if answer is None:
                self._world.clock.count(f"{what}: no answer")
                return
            decoded = decode_answer(api_key, version, answer, 1)
            self._world.clock.count(f"{what}: {_code_of(decoded).name}")

        self._world.network.call(self._random.choice(nodes), frame, TIMEOUT_MS, on_end)

    def create(self, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
        part = parts(CREATE_TOPICS, CREATE_VERSION)
        topic = part.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=tuple(part.CreatableTopicConfig(name=key, value=text) for key, text in config.items()),
        )
        self._ask(
            CREATE_TOPICS, CREATE_VERSION, "create", topics=(topic,), timeout=seconds(5), validate_only=False
        )

    def make_churn(self) -> None:
        self.create(CHURN, self._random.randint(1, 3), self._random.randint(1, 3), {})

    def delete_churn(self) -> None:
        state = parts(DELETE_TOPICS, DELETE_VERSION).DeleteTopicState(name=CHURN, topic_id=None)
        self._ask(DELETE_TOPICS, DELETE_VERSION, "delete", topics=(state,), timeout=seconds(5))

    def grow_churn(self) -> None:
        part = parts(CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION)
        topic = part.CreatePartitionsTopic(name=CHURN, count=self._random.randint(2, 5), assignments=None)
        self._ask(
            CREATE_PARTITIONS,
            CREATE_PARTITIONS_VERSION,
            "grow",
            topics=(topic,),
            timeout=seconds(5),
            validate_only=False,
        )

    def elect(self) -> None:
        """Preferred leaders, everywhere."""
        self._ask(
            ELECT_LEADERS,
            ELECT_LEADERS_VERSION,
            "elect",
            election_type=PREFERRED,
            topic_partitions=None,
            timeout=seconds(5),
        )

    def set_minimum(self) -> None:
        """Never below what the bound on losses was planned with, nor above how few replicas there may be."""
        plan = self._random.choice(self._world.plan.topics)
        value, moved = self._random.randint(plan.min_insync, plan.replica_count), self._world.mover
        value = min(value, moved.least_sizes[plan.name])
        moved.highest_minima[plan.name] = max(value, moved.highest_minima[plan.name])
        self.set(plan.name, "min.insync.replicas", str(value))

    def set(self, topic: str, name: str, value: str) -> None:
        part = parts(INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION)
        config = part.AlterableConfig(name=name, config_operation=SET, value=value)
        resource = part.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=(config,))
        self._ask(INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, "set", resources=(resource,), validate_only=False)


def _code_of(answer: Any) -> ErrorCode:
    for name in ("topics", "responses", "results"):
        for each in getattr(answer, name, ()):
            return ErrorCode(each.error_code)
    return ErrorCode(getattr(answer, "error_code", 0))
