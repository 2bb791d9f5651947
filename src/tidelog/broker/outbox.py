"""What the broker asks of the shell: frames for other brokers, requests to the store, jobs for threads.

| what                    | the shell                                                                     |
|-------------------------|-------------------------------------------------------------------------------|
| `StoreRequest`, `Watch` | asks the store; the reply comes back as a store event                         |
| `PeerSend`, `PeerClose` | sends to another broker; the answer comes back as a frame                     |
| `Job`                   | runs it on a thread; its end comes back to the job, on the loop               |
| `Removal`               | unlinks files on a thread, when they are due                                  |
| `Event`                 | tells the operator                                                            |

**Invariant:** effects are carried out in the order in which they were asked for.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from tidelog.base.events import Event
from tidelog.base.files import Directory
from tidelog.broker.clock import Clock
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.cluster.store import StoreRequest, Watch
from tidelog.replication.partition import Partition


class Removal(NamedTuple):
    """Files or folders to unlink off the loop, not before `due_ms` of uptime."""

    directory: Directory
    names: list[str]
    due_ms: int


class JobKind(Enum):
    FLUSH = auto()  # somebody may wait for it to be acknowledged
    CHECKPOINT = auto()
    COPY = auto()
    CLEANING = auto()  # a round of compaction: it may take hours
    SWAP = auto()  # the fsync that decides that its segments are the log
    SLOW_DISK = auto()  # of a disk that may take seconds: a cold read, or what follows its failure


class Job:
    """Work for a thread of the shell."""

    __slots__ = ()

    kind: JobKind

    @property
    def lane(self) -> object:
        """Jobs of one lane run one at a time; of those that wait only the last one runs. None: no lane."""
        return None

    def run(self) -> None:
        """On a thread. Raises OSError."""
        raise AssertionError(f"{type(self).__name__} does nothing")

    def on_done(self, failure: OSError | None) -> None:
        """On the loop, once the job has ended."""
        raise AssertionError(f"{type(self).__name__} has no end")


Effect = StoreRequest | Watch | PeerSend | PeerClose | Removal | Job


class Outbox:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.effects: list[Effect] = []
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def remove_later(self, directory: Directory, name: str, delay_ms: int) -> None:
        self.effects.append(Removal(directory, [name], self._clock.uptime_ms + delay_ms))

    def remove_files(self, partition: Partition, names: list[str]) -> None:
        """Unlink files of a partition's log that have left it, after a while."""
        if names:
            due_ms = self._clock.uptime_ms + partition.log.settings.file_delete_delay_ms
            self.effects.append(Removal(partition.log.directory, names, due_ms))
