"""This broker's process: who it is, its settings, its clock, and its way to the shell.

**Invariant:** there is nothing in here that knows a topic, a log or another broker.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.config import BrokerSettings
from tidelog.broker.clock import Clock
from tidelog.broker.outbox import Outbox
from tidelog.cluster.controller import encode_id


class Kernel:
    def __init__(
        self,
        settings: BrokerSettings,
        entropy: Callable[[int], bytes],
        is_sharing: bool = False,
        boot_id: str = "",
    ) -> None:
        self.settings = settings
        self.node_id = settings.number("node.id")
        self.entropy = entropy
        self.is_sharing = is_sharing  # the store, with other brokers
        self.boot_id = boot_id  # of the machine: another one when what was not flushed may be gone
        self.clock = Clock()
        self.outbox = Outbox(self.clock)

    def new_id(self) -> bytes:
        """A random id whose text no command line takes for an option, as Kafka has it."""
        while encode_id(found := self.entropy(16)).startswith("-"):
            pass
        return found
