"""One input to the groups of a partition: when it came, what holds for it, and what it leads to.

**Invariant:** everything that a group knows of the outside (time, chance, settings, topics) comes from here.
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
    """The topics of the cluster, as far as a group must know them."""

    @property
    def epoch(self) -> int:
        """Raised whenever a topic comes, goes or grows."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def origin(self) -> bytes:
        """What tells the ids of this cluster's topics from those of others."""
        ...

    def names(self) -> Iterable[str]: ...

    def id_of(self, name: str) -> bytes | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """0 for a topic that is not there."""
        ...


class GroupLimits(Protocol):
    """The settings that groups go by."""

    def number(self, key: str) -> int: ...

    def text(self, key: str) -> str: ...

    def words(self, key: str) -> tuple[str, ...]: ...

    def of_group(self, group_id: str, key: str) -> int:
        """A number that a group may have of its own, else the broker's, behind `group.`."""
        ...


class Alarm(NamedTuple):
    """What a timer is about."""

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
        self.is_refused = False  # nothing of it is written
        self.formers: dict[str, object] = {}

    def write(self, kind: int, group_id: str, value: object, name: str = "") -> None:
        """Decide what is known under a key from now on, or with no value that nothing is."""
        self.decision.entries.append(write_entry(kind, group_id, value, name))

    def note_former(self, group_id: str, group: object) -> None:
        """What a group was before this turn, in case it must be that again."""
        self.formers.setdefault(group_id, group)

    def check_size(self) -> None:
        """Refused if a record of the decision is larger than the journal takes."""
        largest = max((len(entry.value or b"") for entry in self.decision.entries), default=0)
        if largest > self.record_size_max:
            raise Refused(
                ErrorCode.invalid_request,
                f"The group would need a record of {largest} bytes; {self.record_size_max} are taken.",
            )

    def set_timer(self, timer: GroupTimer, delay_ms: int) -> None:
        self.timers.set(timer, self.uptime_ms + delay_ms)

    def new_uuid(self) -> str:
        """A random name, in the text form that everybody knows."""
        raw = bytearray(self.entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def new_member_id(self) -> str:
        """A random name as Kafka writes one, for a member of a consumer group that brings none."""
        return urlsafe_b64encode(self.entropy(16)).decode().rstrip("=")


class Refused(Exception):
    """A request that a group does not take: the protocol's error and, where it has a place, a message."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
