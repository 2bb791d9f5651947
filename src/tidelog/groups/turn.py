"""One input to the groups of a partition: its time, its settings and its decision.

**Invariant:** everything that a group knows of the outside (time, randomness, settings, topics) comes from
here.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidelog.base.decision import Decision
from tidelog.base.setting import INT32_MAX
from tidelog.base.timers import Timer, Timers
from tidelog.groups.facts import write_entry
from tidelog.groups.given import GivenIds
from tidelog.protocol.errors import ErrorCode


class Topics(Protocol):
    """What groups must know of the cluster's topics."""

    @property
    def epoch(self) -> int:
        """Raised whenever a topic is created, deleted or grows."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def origin(self) -> bytes:
        """Distinguishes topic ids of this cluster from those of others."""
        ...

    def names(self) -> Iterable[str]: ...

    def id_of(self, name: str) -> bytes | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """0 for a topic that does not exist."""
        ...


class GroupLimits(Protocol):
    """The settings of groups."""

    def number(self, key: str) -> int: ...

    def text(self, key: str) -> str: ...

    def words(self, key: str) -> tuple[str, ...]: ...

    def of_group(self, group_id: str, key: str) -> int:
        """A group's own number, else the broker's `group.<key>`."""
        ...


class Alarm(NamedTuple):
    """The subject of a timer."""

    kind: str
    group_id: str
    member_id: str


GroupTimer = Timer[Alarm]


class Turn:
    __slots__ = (
        "decision",
        "entropy",
        "formers",
        "given",
        "is_refused",
        "now_ms",
        "record_size_max",
        "settings",
        "timers",
        "topics",
        "uptime_ms",
    )

    def __init__(
        self,
        now_ms: int,
        uptime_ms: int,
        settings: GroupLimits,
        topics: Topics,
        timers: Timers[Alarm],
        entropy: Callable[[int], bytes],
        record_size_max: int = INT32_MAX,
        given: GivenIds | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.uptime_ms = uptime_ms
        self.settings = settings
        self.topics = topics
        self.timers = timers
        self.entropy = entropy
        self.record_size_max = record_size_max
        self.given = given if given is not None else GivenIds()
        self.decision = Decision()
        self.is_refused = False  # none of its records are written
        self.formers: dict[str, object] = {}

    def write(self, kind: int, group_id: str, value: object, name: str = "") -> None:
        """Add a record to the decision; without a value it deletes the key."""
        self.decision.entries.append(write_entry(kind, group_id, value, name))

    def keep_former(self, group_id: str, group: object) -> None:
        """Keep a group's state from before this turn, to revert to."""
        self.formers.setdefault(group_id, group)

    def check_size(self) -> None:
        """Raise Refused if a record of the decision is larger than the journal accepts."""
        largest = max((len(entry.value or b"") for entry in self.decision.entries), default=0)
        if largest > self.record_size_max:
            raise Refused(
                ErrorCode.invalid_request,
                f"The group would need a record of {largest} bytes; the limit is {self.record_size_max}.",
            )

    def set_timer(self, timer: GroupTimer, delay_ms: int) -> None:
        self.timers.set(timer, self.uptime_ms + delay_ms)

    def new_uuid(self) -> str:
        """A random UUID in its usual text form."""
        raw = bytearray(self.entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def new_member_id(self) -> str:
        """A random id in Kafka's text form, for a consumer-protocol member that did not send one."""
        return urlsafe_b64encode(self.entropy(16)).decode().rstrip("=")


class Refused(Exception):
    """A refused request: the protocol's error and, if the answer has a field for it, a message."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
