"""A file system of its own for a broker, which can be full: a tmpfs in a namespace of the user's own.

A process holds the namespace. Whoever uses the disk is started inside, where it is mounted at its folder;
from outside the same files are under `seen`. No privileges are needed where the system lets users have
namespaces; where it does not, there is no such disk, and `SmallDisk.open` says so with None.

**Invariant:** what is on the disk stays while the disk is open, whatever becomes of its users.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

SIZE = 4 << 30
_BLOCK = 4_096
_HOLD = """\
mount -t tmpfs -o size={size} tidelog {folder} || exit 1
echo ready
while read size; do mount -o remount,size=$size {folder} && echo done || echo failed; done
"""


class SmallDisk:
    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self.folder = folder
        self.seen = Path(f"/proc/{process.pid}/root{folder}")

    @classmethod
    def open(cls, folder: Path) -> SmallDisk | None:
        """Mounted at that folder, for those inside."""
        folder.mkdir(parents=True, exist_ok=True)
        script = _HOLD.format(size=SIZE, folder=folder)
        try:
            process = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        except FileNotFoundError:
            return None
        disk = cls(process, folder)
        if disk._heard() != "ready":
            disk.close()
            return None
        return disk

    @property
    def inside(self) -> list[str]:
        """What to put before a command that is to be carried out where the disk is."""
        words = ("--user", "--mount", "--preserve-credentials", f"--target={self._process.pid}")
        return ["nsenter", *words, "--wd=."]

    def fill(self) -> None:
        """From now on there is room for some blocks, and then for nothing. Whoever has written more since it
        was measured is why it is measured again."""
        while not self._resize(self._used() + 2 * _BLOCK):
            assert self._process.poll() is None, f"{self.seen} is gone"

    def _used(self) -> int:
        seen = os.statvfs(self.seen)
        return (seen.f_blocks - seen.f_bfree) * seen.f_frsize

    def empty(self) -> None:
        """There is room again."""
        assert self._resize(SIZE), f"{self.seen} cannot have {SIZE} bytes"

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _resize(self, size: int) -> bool:
        """Whether it could be made that large: not smaller than what it holds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{size}\n")
        self._process.stdin.flush()
        return self._heard() == "done"

    def _heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
