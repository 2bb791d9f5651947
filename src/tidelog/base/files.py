"""All that Tidelog needs of a disk: a `Directory`, its `File`s, and `FileSlice`s to send from them.

The real disk is here; the tests have a simulated disk, with lost writes and failing fsyncs, that implements
the same two protocols.

**Invariant:** a write either reaches the file whole or raises; a `FileSlice` never yields bytes
other than those it was made for (its file's `generation` changes whenever the file shrinks).
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import NamedTuple, Protocol

from tidelog.base.descriptors import Descriptors
from tidelog.base.limits import COPY_CHUNK_SIZE, RESERVED_AHEAD_MAX, RESERVED_FOR_SIZE, REWRITE_CHUNK_SIZE
from tidelog.base.reserve import reserve

Buffer = bytes | bytearray | memoryview

LOCK_NAME = ".lock"
_BLOCK_SIZE = 512  # the unit of `st_blocks`
_NOTHING_MORE = 1 << 63  # end of the reservation when the disk cannot reserve or is full
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
# The file system does not report whether a page is in memory.
CANNOT_SAY = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Cold(Exception):
    """A range of a file is not in memory: reading it would wait for the disk."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{file.name} at {position}")
        self.file = file
        self.position = position
        self.size = size


class File(Protocol):
    """A file that is appended to, read anywhere, and may be truncated."""

    name: str
    size: int
    generation: int

    @property
    def folder(self) -> str:
        """The path of the folder that contains the file."""

    def append(self, data: Buffer) -> int:
        """Write `data` at the end; return the position of its first byte."""

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""

    def read_now(self, position: int, size: int) -> Buffer:
        """Like `read`, but without waiting for the disk: raises Cold if a page is not in memory. The result
        is valid only until the next `read_now` of any file."""

    def truncate(self, size: int) -> None: ...

    def trim(self) -> None:
        """Free the blocks reserved beyond the end, if the file system can: no append is expected for now.
        On some file systems this waits until all earlier writes are durable."""

    def rewrite(self, size: int) -> None:
        """Write the first `size` bytes again, unchanged. After a failed fsync they may exist only in memory
        and be marked clean, so that a second fsync would report success."""

    def sync(self) -> None:
        """Make the bytes durable. The only method here that may run on another thread."""

    def modified_ms(self) -> int: ...

    def fileno(self) -> int:
        """A descriptor for sendfile, or -1 if the file has none."""

    @property
    def is_scarce(self) -> bool:
        """True when too many files are pinned, so ranges should be copied instead."""

    def pin(self) -> None:
        """Keep the same descriptor open until `unpin`."""

    def unpin(self) -> None: ...

    def close(self) -> None:
        """Close now, or when the last pin goes."""


class Mount(NamedTuple):
    """The file system of a folder, and its mount. Mounts are numbered within a namespace; systemd and
    containers may create a namespace at each start of a process."""

    file_system: str
    namespace: str
    number: str

    def is_same(self, other: Mount) -> bool:
        """Whether the file system was not unmounted between the two, as far as this process can see."""
        if self.file_system != other.file_system:
            return False
        return self.namespace != other.namespace or self.number == other.number


class Directory(Protocol):
    """A folder of files and folders."""

    path: str

    def open(self, name: str) -> File:
        """The file of that name, created if missing."""

    def open_existing(self, name: str) -> File:
        """The file of that name; FileNotFoundError if there is none."""

    def names(self) -> list[str]: ...

    def sizes(self) -> dict[str, int]:
        """The files in this folder with their sizes, by name."""

    def exists(self, name: str) -> bool: ...

    def folder(self, name: str) -> Directory:
        """The subfolder of that name, created if missing."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and all in it; no error if it does not exist."""

    def read_whole(self, name: str) -> bytes | None:
        """The content of a small file, or None if there is no such file."""

    def replace_whole(self, name: str, content: bytes, durable: bool = True) -> None:
        """Atomically replace the file of that name; durably, unless its content can be recreated."""

    def copy(self, name: str, size: int, target: Directory, start: int = 0) -> None:
        """Copy the first `size` bytes of a file into `target`, durably. If `target` already has the first
        `start` bytes, only the rest is copied. May run on another thread."""

    def set_modified(self, name: str, modified_ms: int) -> None:
        """Set the time of a file's last change: retention may depend on it. Durable with the file's bytes."""

    def space(self) -> tuple[int, int]:
        """The size of the disk in bytes, and the bytes that are still available."""

    def mount(self) -> Mount: ...

    def sync(self, name: str = "") -> None:
        """Make the names in this folder durable, or the bytes of one file. May run on another thread."""


class FileSlice:
    """A range of a file to be sent; pins the file until `release`."""

    __slots__ = ("file", "generation", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.generation = file.generation
        file.pin()

    def read(self) -> bytes:
        """The bytes themselves, for callers that cannot sendfile."""
        return self.file.read(self.position, self.size)

    def is_valid(self) -> bool:
        return self.generation == self.file.generation

    def release(self) -> None:
        self.file.unpin()


class DiskFile:
    """A file of the real disk. Its descriptor may be closed when others need one, and is opened again at the
    next use."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_descriptor",
        "_directory",
        "_pin_count",
        "_reserved_end",
        "generation",
        "name",
        "size",
        "was_used",
    )

    def __init__(self, directory: DiskDirectory, name: str, flags: int = os.O_CREAT) -> None:
        self._directory = directory
        self.name = name
        self._descriptor = -1
        self._pin_count = 0
        self._closing = False
        self.was_used = True
        self._open(flags)
        found = os.fstat(self._descriptor)
        self.size = found.st_size
        self._reserved_end = found.st_blocks * _BLOCK_SIZE  # may include reservations from before a crash
        self.generation = 0

    def _open(self, flags: int = 0) -> int:
        # A folder is closed before it is renamed: no file of it is opened under the old name again.
        path = os.path.join(self._directory.path, self.name)
        self._descriptor = self._directory.descriptors.open(path, os.O_RDWR | os.O_APPEND | flags, self)
        return self._descriptor

    def append(self, data: Buffer) -> int:
        position, size = self.size, len(data)
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self.fileno()
        self.was_used = True
        if size >= RESERVED_FOR_SIZE and position + size > self._reserved_end:
            self._reserve(descriptor, position + size)
        written = os.write(descriptor, data)
        if written != size:
            written = self._append_rest(data, written)
        self.size = position + written
        return position

    def _reserve(self, descriptor: int, end: int) -> None:
        """Reserve blocks up to `end`, and as much again as the file will have then, within bounds."""
        reserved_end = end + min(end, RESERVED_AHEAD_MAX)
        is_had = reserve(descriptor, self.size, reserved_end - self.size)
        self._reserved_end = reserved_end if is_had else _NOTHING_MORE

    def _append_rest(self, data: Buffer, written: int) -> int:
        """A short write means a nearly full disk: the next attempt raises the error."""
        view = memoryview(data)
        while written < len(view):
            written += os.write(self._descriptor, view[written:])
        return written

    def read(self, position: int, size: int) -> bytes:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self.fileno()
        self.was_used = True
        return os.pread(descriptor, size, position)

    def read_now(self, position: int, size: int) -> Buffer:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self.fileno()
        self.was_used = True
        descriptors = self._directory.descriptors
        if not descriptors.tells_cold:
            return os.pread(descriptor, size, position)
        page = descriptors.page
        if size != len(page):
            page = page[:size] if size < len(page) else memoryview(bytearray(size))
        try:
            found = os.preadv(descriptor, (page,), position, _NOWAIT)
            if found == size:
                return page
            if not found or not os.preadv(descriptor, (page[found:],), position + found, _NOWAIT):
                return page[:found]  # the end of the file
        except BlockingIOError:
            pass
        except OSError as failure:
            if failure.errno not in CANNOT_SAY:
                raise
            descriptors.tells_cold = False
            return os.pread(descriptor, size, position)
        if self.is_scarce:  # the file cannot be pinned while it is read
            return os.pread(descriptor, size, position)
        raise Cold(self, position, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)
        self.size = size
        self._reserved_end = 0
        self.generation += 1

    def trim(self) -> None:
        if self._reserved_end - self.size >= RESERVED_FOR_SIZE:
            with suppress(OSError):  # then the blocks are freed when the file is removed
                self._give_back(self.fileno())
        self._reserved_end = 0

    def _give_back(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if found.st_size == self.size:  # nothing to truncate
            os.ftruncate(descriptor, self.size)
            os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))  # retention may depend on it

    def rewrite(self, size: int) -> None:
        descriptor = os.open(os.path.join(self._directory.path, self.name), os.O_RDWR | os.O_CLOEXEC)
        try:  # an O_APPEND descriptor ignores the position
            for position in range(0, size, REWRITE_CHUNK_SIZE):
                data = os.pread(descriptor, min(REWRITE_CHUNK_SIZE, size - position), position)
                if os.pwrite(descriptor, data, position) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """On another thread only while pinned. A descriptor opened after the writes also reports their
        failure if no descriptor has reported it yet (Linux 4.17), as long as the kernel keeps the inode:
        under memory pressure, the error of a suspended file may be lost."""
        descriptor = self.fileno()
        os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)

    def modified_ms(self) -> int:
        return os.fstat(self.fileno()).st_mtime_ns // 1_000_000

    def fileno(self) -> int:
        return self._descriptor if self._descriptor >= 0 or self._closing else self._open()

    @property
    def folder(self) -> str:
        return self._directory.path

    @property
    def is_pinned(self) -> bool:
        return self._pin_count > 0

    @property
    def is_scarce(self) -> bool:
        descriptors = self._directory.descriptors
        return 2 * descriptors.pinned_count >= descriptors.count_max

    def pin(self) -> None:
        self.fileno()
        self._pin_count += 1
        if self._pin_count == 1:
            self._directory.descriptors.pinned_count += 1

    def unpin(self) -> None:
        self._pin_count -= 1
        if self._pin_count == 0:
            self._directory.descriptors.pinned_count -= 1
            if self._closing:
                self.suspend()

    def close(self) -> None:
        if self._descriptor >= 0 and not self._closing:  # the name may refer to another file by now
            self.trim()
        self._closing = True
        if self._pin_count == 0:
            self.suspend()

    def suspend(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._directory.descriptors.close(descriptor)

    def __del__(self) -> None:
        """A log that was dropped without closing, as in a simulated crash, keeps no descriptor."""
        self.suspend()


class DiskDirectory:
    __slots__ = ("descriptors", "path")

    def __init__(self, path: str, descriptors: Descriptors | None = None) -> None:
        os.makedirs(path, exist_ok=True)
        self.path = path
        self.descriptors = descriptors if descriptors is not None else Descriptors()

    @classmethod
    def existing(cls, path: str) -> DiskDirectory:
        """A folder that is not made if it is gone: then what is asked of it raises FileNotFoundError."""
        made = cls.__new__(cls)
        made.path, made.descriptors = path, Descriptors()
        return made

    def open(self, name: str) -> DiskFile:
        return DiskFile(self, name)

    def open_existing(self, name: str) -> DiskFile:
        return DiskFile(self, name, 0)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def sizes(self) -> dict[str, int]:
        with os.scandir(self.path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def exists(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.path, name))

    def folder(self, name: str) -> DiskDirectory:
        return DiskDirectory(os.path.join(self.path, name), self.descriptors)

    def rename(self, old: str, new: str) -> None:
        os.rename(os.path.join(self.path, old), os.path.join(self.path, new))

    def remove(self, name: str) -> None:
        path = os.path.join(self.path, name)
        try:
            if os.path.isdir(path):
                for inner in os.listdir(path):
                    DiskDirectory(path).remove(inner)
                os.rmdir(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return

    def read_whole(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def replace_whole(self, name: str, content: bytes, durable: bool = True) -> None:
        path = os.path.join(self.path, name)
        with open(path + ".tmp", "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
        if durable:
            self.sync()

    def copy(self, name: str, size: int, target: Directory, start: int = 0) -> None:
        with (
            open(os.path.join(self.path, name), "rb") as reader,
            open(os.path.join(target.path, name), "r+b" if start else "wb") as writer,
        ):
            reader.seek(start)
            writer.seek(start)
            rest = size - start
            while rest > 0 and (piece := reader.read(min(rest, COPY_CHUNK_SIZE))):
                writer.write(piece)
                rest -= len(piece)
            writer.flush()
            os.fsync(writer.fileno())

    def set_modified(self, name: str, modified_ms: int) -> None:
        os.utime(os.path.join(self.path, name), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def space(self) -> tuple[int, int]:
        found = os.statvfs(self.path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def mount(self) -> Mount:
        device, file_system = os.stat(self.path).st_dev, os.statvfs(self.path).f_fsid
        try:
            namespace = os.readlink("/proc/self/ns/mnt")
            with open("/proc/self/mountinfo") as file:
                mounts = [line.split(" ") for line in file]
        except OSError:
            return Mount(f"{device}/{file_system}", "", "")
        # The last of several mounts on the path is the one in use.
        folder = os.path.join(os.path.realpath(self.path), "")
        above = [(len(row[4]), int(row[0])) for row in mounts if folder.startswith(os.path.join(row[4], ""))]
        number = str(max(above, default=(0, 0))[1])
        return Mount(f"{device}/{file_system}", namespace, number)

    def sync(self, name: str = "") -> None:
        descriptor = os.open(os.path.join(self.path, name), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DirectoryLock:
    """An exclusive lock on a log directory (L11), held by the file descriptor of `.lock`."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(
            os.path.join(path, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)
