"""A disk in memory that remembers what was synced, loses the rest in a crash, and fails when told to.

A file's bytes are durable once it was synced, a name once its folder was. `crash` keeps what is durable; of
the rest it keeps a part: unsynced bytes are dropped, zeroed or garbled from some point on; a truncation is
lost, perhaps not with the bytes that followed it, so that the old end is found behind those; and of the
operations on a folder since its last sync (create, rename, remove) the first few have happened. Names may
thus be there before their bytes are, but operations on one folder keep their order, as file systems with
a journal have it.

**Invariant:** the same seed and the same calls give the same disk; handles from before a crash are dead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tidelog.base.files import Buffer, Directory, Mount

SECTOR_SIZE = 512
PAGE_SIZE = 4_096
SPACE = (1 << 40, 1 << 39)


class Killed(BaseException):
    """The process was killed: before a step that changes the disk, or in the middle of a write, which Linux
    ends between two pages."""


class _Content:
    """The bytes of one file: as written, and as they would be after a crash."""

    __slots__ = ("data", "durable", "kept_size", "lost", "modified_ms")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.kept_size = 0  # how much of `durable` no truncation has touched since the last sync
        self.lost: list[tuple[int, int]] = []  # written, but dropped by an fsync that failed
        self.modified_ms = -1  # as it was set; else nobody asks

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.kept_size = min(self.kept_size, size)
        self.lost = [(start, min(end, size)) for start, end in self.lost if start < size]

    def sync(self) -> None:
        self.durable[self.kept_size :] = self.data[self.kept_size :]
        for start, end in self.lost:
            self.durable[start:end] = bytes(end - start)
        self.kept_size = len(self.durable)

    def rewrite(self, size: int) -> None:
        """What an fsync dropped is dirty again."""
        self.kept_size = min([self.kept_size, *(start for start, _ in self.lost if start < size)])
        self.lost = [(max(start, size), end) for start, end in self.lost if end > size]

    def fail_sync(self) -> None:
        """The kernel gives up the dirty pages and calls them clean: a second fsync would report success."""
        if self.kept_size < len(self.data):
            self.lost.append((self.kept_size, len(self.data)))

    def copied(self) -> _Content:
        """As written, all of it durable."""
        copy = _Content()
        copy.data, copy.durable = bytearray(self.data), bytearray(self.data)
        copy.kept_size, copy.modified_ms = len(copy.data), self.modified_ms
        return copy

    def after_crash(self, random: Random) -> _Content:
        survivor = _Content()
        unsynced = bytearray(self.data)
        for start, end in self.lost:
            unsynced[start:end] = bytes(end - start)
        was_cut = self.kept_size < len(self.durable)
        outcome = random.choice(("cut", "lost", "overwritten")) if was_cut else "cut"
        if outcome == "lost":
            survivor.data = bytearray(self.durable)  # the truncation was lost, and all that followed it
        elif outcome == "overwritten":  # what followed it was not, and the old end is behind that
            end = random.choice((len(unsynced), random.randint(self.kept_size, len(unsynced))))
            survivor.data = self.durable[: self.kept_size] + unsynced[self.kept_size : end]
            survivor.data += self.durable[len(survivor.data) :]
        else:
            survivor.data = self.durable[: self.kept_size] + tear(random, unsynced[self.kept_size :])
        survivor.durable = bytearray(survivor.data)
        survivor.kept_size, survivor.modified_ms = len(survivor.data), self.modified_ms
        return survivor


def tear(random: Random, tail: bytearray) -> bytearray:
    """What may be left of bytes that were never synced."""
    kept = random.choice((0, len(tail), random.randint(0, len(tail))))
    rest = len(tail) - kept
    left = tail[:kept]
    how = random.randrange(4)
    if how == 1:
        left += bytes(rest)
    elif how == 2:
        left += random.randbytes(rest)
    elif how == 3:
        for start in range(kept, len(tail), SECTOR_SIZE):
            sector = tail[start : start + SECTOR_SIZE]
            left += random.choice((sector, bytes(len(sector)), random.randbytes(len(sector))))
    return left


class _Folder:
    """The names in one folder: as they are, as they durably are, and what happened in between."""

    __slots__ = ("durable", "names", "operations")

    def __init__(self) -> None:
        self.names: dict[str, _Content | _Folder] = {}
        self.durable: dict[str, _Content | _Folder] = {}
        self.operations: list[tuple[str, _Content | _Folder | str | None]] = []

    def create(self, name: str, made: _Content | _Folder) -> None:
        self.names[name] = made
        self.operations.append((name, made))

    def rename(self, old: str, new: str) -> None:
        self.names[new] = self.names.pop(old)
        self.operations.append((old, new))

    def remove(self, name: str) -> None:
        if self.names.pop(name, None) is not None:
            self.operations.append((name, None))

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.operations.clear()

    def copied(self) -> _Folder:
        copy = _Folder()
        copy.names = {name: node.copied() for name, node in self.names.items()}
        copy.durable = dict(copy.names)
        return copy

    def after_crash(self, random: Random) -> _Folder:
        names = dict(self.durable)
        happened = random.choice((0, len(self.operations), random.randint(0, len(self.operations))))
        for name, effect in self.operations[:happened]:
            if isinstance(effect, str):
                names[effect] = names.pop(name)
            elif effect is None:
                names.pop(name, None)
            else:
                names[name] = effect
        survivor = _Folder()
        survivor.names = {name: node.after_crash(random) for name, node in sorted(names.items())}
        survivor.durable = dict(survivor.names)
        return survivor


@dataclass(slots=True)
class _Fault:
    countdown: int
    code: int
    partial: float = 0.0


@dataclass(slots=True)
class SimulatedDisk:
    """The whole disk. `root` is its top folder; after a crash there is a new one."""

    root: SimulatedDirectory = field(init=False)
    write_count: int = 0
    sync_count: int = 0
    synced_names: list[str] = field(default_factory=list)
    now_ms: int = 0
    mount_count: int = 0  # how often it was mounted
    kills_writing: bool = False  # the next write to a log that crosses a page
    kills_after: int | None = None  # so many steps that change the disk, or make it durable
    on_fault: Callable[[], None] = lambda: None  # is told whenever something fails
    _epoch: int = 0
    _write_fault: _Fault | None = None
    _sync_fault: _Fault | None = None
    _read_fault: _Fault | None = None
    _refused: Callable[[str], bool] = lambda path: False  # files that cannot be replaced now
    _refusal: int = 0

    def __post_init__(self) -> None:
        self.root = SimulatedDirectory(self, _Folder(), "sim")

    def crash(self, random: Random) -> SimulatedDirectory:
        """Lose power; the top folder of what is left."""
        self.repair()
        self._epoch += 1
        self.root = SimulatedDirectory(self, self.root.node.after_crash(random), "sim")
        return self.root

    def kill(self) -> SimulatedDirectory:
        """The process ends, the machine runs on: all that was written is there, durable or not."""
        self.repair()
        self._epoch += 1
        self.root = SimulatedDirectory(self, self.root.node, "sim")
        return self.root

    def remount(self, folder: _Folder | None = None) -> None:
        """Between two lives: all that was written is on the disk, or something else is."""
        self._epoch += 1
        self.root = SimulatedDirectory(self, folder or self.root.node.copied(), "sim")

    def copy(self) -> _Folder:
        """All that is on it now."""
        return self.root.node.copied()

    def repair(self) -> None:
        """Nothing fails any more."""
        self._write_fault = self._sync_fault = self._read_fault = None
        self._refused = lambda path: False
        self.kills_after = None

    def fail_write(self, after: int = 0, code: int = errno.EIO, partial: float = 0.0) -> None:
        """The write after the next `after` fails, with that part of its bytes written."""
        self._write_fault = _Fault(after, code, partial)

    def refuse(self, is_refused: Callable[[str], bool], code: int) -> None:
        """Files of these paths cannot be replaced until the disk is repaired."""
        self._refused, self._refusal = is_refused, code

    def before_replace(self, path: str) -> None:
        if self._refused(path):
            raise OSError(self._refusal, os.strerror(self._refusal))

    def fail_sync(self, after: int = 0) -> None:
        self._sync_fault = _Fault(after, errno.EIO)

    def fail_read(self, after: int = 0) -> None:
        self._read_fault = _Fault(after, errno.EIO)

    @property
    def is_faulty(self) -> bool:
        return any((self._write_fault, self._sync_fault, self._read_fault))

    def check(self, epoch: int) -> None:
        assert epoch == self._epoch, "a handle from before the crash was used"

    @property
    def epoch(self) -> int:
        return self._epoch

    def step(self) -> None:
        """Something changes next: a moment at which the process may be killed."""
        if self.kills_after is not None:
            if self.kills_after == 0:
                raise Killed
            self.kills_after -= 1

    def before_write(self, content: _Content, data: Buffer) -> None:
        self.step()
        self.write_count += 1
        fault = self._write_fault
        if fault is not None and _is_due(fault):
            content.data += bytes(data)[: int(len(data) * fault.partial)]
            self.on_fault()
            raise OSError(fault.code, os.strerror(fault.code))

    def before_sync(self, name: str, content: _Content | None) -> None:
        self.step()
        self.sync_count += 1
        self.synced_names.append(name)
        if self._sync_fault is not None and _is_due(self._sync_fault):
            self._sync_fault = None
            self.on_fault()
            if content is not None:
                content.fail_sync()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def before_read(self) -> None:
        if self._read_fault is not None and _is_due(self._read_fault):
            self.on_fault()
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _is_due(fault: _Fault) -> bool:
    fault.countdown -= 1
    return fault.countdown < 0


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, content: _Content, name: str, folder: str) -> None:
        self._disk = disk
        self.folder = folder
        self._epoch = disk.epoch
        self._content = content
        self._pin_count = 0
        self._is_closing = False
        self.name = name
        self.size = len(content.data)
        self.generation = 0

    @property
    def is_open(self) -> bool:
        return not self._is_closing or self._pin_count > 0

    def _check(self) -> None:
        self._disk.check(self._epoch)
        assert self.is_open, f"{self.name} is closed"

    def append(self, data: Buffer) -> int:
        self._check()
        position = self.size
        self._disk.before_write(self._content, data)
        page_end = position - position % PAGE_SIZE + PAGE_SIZE
        if self._disk.kills_writing and page_end < position + len(data) and self.name.endswith(".log"):
            self._disk.kills_writing = False
            self._content.data += bytes(data)[: page_end - position]
            raise Killed
        self._content.data += data
        self.size = position + len(data)
        return position

    def read(self, position: int, size: int) -> bytes:
        self._check()
        self._disk.before_read()
        return bytes(self._content.data[position : position + size])

    def read_now(self, position: int, size: int) -> bytes:
        return self.read(position, size)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.step()
        self._content.truncate(size)
        self.size = size
        self.generation += 1

    def trim(self) -> None:
        """Nothing is ever reserved here."""
        self._check()

    def rewrite(self, size: int) -> None:
        self._check()
        self._content.rewrite(size)

    def sync(self) -> None:
        self._check()
        self._disk.before_sync(self.name, self._content)
        self._content.sync()

    def modified_ms(self) -> int:
        return self._content.modified_ms if self._content.modified_ms >= 0 else self._disk.now_ms

    def fileno(self) -> int:
        return -1

    @property
    def is_scarce(self) -> bool:
        return False

    def pin(self) -> None:
        self._pin_count += 1

    def unpin(self) -> None:
        self._pin_count -= 1

    def close(self) -> None:
        self._is_closing = True


class SimulatedDirectory:
    def __init__(self, disk: SimulatedDisk, node: _Folder, path: str) -> None:
        self.path = path
        self.node = node
        self.disk = disk
        self._epoch = disk.epoch

    def _names(self) -> dict[str, _Content | _Folder]:
        self.disk.check(self._epoch)
        return self.node.names

    def open(self, name: str) -> SimulatedFile:
        content = self._names().get(name)
        if content is None:
            self.disk.step()
            content = _Content()
            self.node.create(name, content)
        assert isinstance(content, _Content), f"{name} is a folder"
        return SimulatedFile(self.disk, content, name, self.path)

    def open_existing(self, name: str) -> SimulatedFile:
        if name not in self._names():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.open(name)

    def names(self) -> list[str]:
        return sorted(self._names())

    def sizes(self) -> dict[str, int]:
        return {name: len(node.data) for name, node in self._names().items() if isinstance(node, _Content)}

    def exists(self, name: str) -> bool:
        return name in self._names()

    def folder(self, name: str) -> SimulatedDirectory:
        node = self._names().get(name)
        if node is None:
            self.disk.step()
            node = _Folder()
            self.node.create(name, node)
        assert isinstance(node, _Folder), f"{name} is a file"
        return SimulatedDirectory(self.disk, node, f"{self.path}/{name}")

    def rename(self, old: str, new: str) -> None:
        if old not in self._names():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self.disk.step()
        self.node.rename(old, new)

    def remove(self, name: str) -> None:
        self._names()
        self.disk.step()
        self.node.remove(name)

    def read_whole(self, name: str) -> bytes | None:
        content = self._names().get(name)
        return bytes(content.data) if isinstance(content, _Content) else None

    def replace_whole(self, name: str, content: bytes, durable: bool = True) -> None:
        self._names()
        self.disk.before_replace(f"{self.path}/{name}")
        made = _Content()
        self.disk.before_write(made, content)
        made.data += content
        self.node.create(name + ".tmp", made)
        if durable:
            self.disk.before_sync(name, made)
            made.sync()
        self.disk.step()
        self.node.rename(name + ".tmp", name)
        if durable:
            self.sync()

    def copy(self, name: str, size: int, target: Directory, start: int = 0) -> None:
        content = self._names().get(name)
        if not isinstance(content, _Content):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        assert isinstance(target, SimulatedDirectory)
        self.disk.step()
        made = target.node.names.get(name)
        if made is None and not start:
            made = _Content()
            target.node.create(name, made)
        assert isinstance(made, _Content) and start <= len(made.data), f"{name} does not reach {start}"
        made.truncate(start)
        self.disk.before_write(made, content.data[start:size])
        made.data += content.data[start:size]
        self.disk.before_sync(name, made)
        made.sync()

    def mount(self) -> Mount:
        return Mount("sim", "", str(self.disk.mount_count))

    def set_modified(self, name: str, modified_ms: int) -> None:
        content = self._names()[name]
        assert isinstance(content, _Content)
        self.disk.step()
        content.modified_ms = modified_ms

    def space(self) -> tuple[int, int]:
        return SPACE

    def flip(self, name: str, position: int, bit: int) -> None:
        """The disk has kept something else than was written."""
        content = self._names()[name]
        assert isinstance(content, _Content)
        for found in (content.data, content.durable):
            if position < len(found):
                found[position] ^= 1 << bit

    def sync(self, name: str = "") -> None:
        if name:
            self.open(name).sync()
            return
        self._names()
        self.disk.before_sync(self.path, None)
        self.node.sync()
