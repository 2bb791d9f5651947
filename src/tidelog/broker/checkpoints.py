"""Which checkpoints are on the disk: who waits for one, and which names the last one may still have.

Checkpoints are keyed by the names of topics, as in Kafka. A topic that is deleted and made again under its
name must not inherit the offsets of the first, so it is not opened before they are gone from the disk too.

**Invariant:** what waits goes on once every working directory has a checkpoint that was taken after it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidelog.log.directory import LogDirectory


class Checkpoints:
    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self._written: dict[LogDirectory, int] = dict.fromkeys(directories, 0)
        self._number = 0
        self._stale_names: dict[str, int] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.is_wanted = False  # sooner than at its time

    def take_number(self) -> int:
        """The number of a checkpoint that is being taken now."""
        self._number += 1
        self.is_wanted = False
        return self._number

    @property
    def is_urgent(self) -> bool:
        """Somebody waits for one that is not being taken yet."""
        return any(number > self._number for number, _ in self._waiting)

    def want(self) -> None:
        self.is_wanted = True

    def forget(self, names: Iterable[str]) -> None:
        """Topics that are there no more; the files may still have their offsets."""
        for name in names:
            self._stale_names[name] = self._number + 1
            self.is_wanted = True

    def is_stale(self, name: str) -> bool:
        return name in self._stale_names

    def wait_for_name(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` when no disk has the offsets of the topic that had this name."""
        self._waiting.append((self._stale_names[name], then))

    def wait(self, then: Callable[[], None]) -> None:
        """Call `then` when a checkpoint that is taken from now on is on every disk."""
        self._waiting.append((self._number + 1, then))
        self.is_wanted = True

    def on_written(self, directory: LogDirectory, number: int) -> None:
        self._written[directory] = max(self._written[directory], number)
        self.release()

    def release(self) -> None:
        """Let go on what waits for nothing any more; a directory that has failed is not waited for."""
        written = [self._written[home] for home in self._directories if home.failure is None]
        reached = min(written, default=self._number)
        for name in [name for name, number in self._stale_names.items() if number <= reached]:
            del self._stale_names[name]
        ready = [then for number, then in self._waiting if number <= reached]
        self._waiting = [entry for entry in self._waiting if entry[0] > reached]
        for then in ready:
            then()
