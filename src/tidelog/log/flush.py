"""What a log has written and not yet made durable, as a job for a thread.

**Invariant:** the files stay open from the making of the job to its release.
"""

from __future__ import annotations

from tidelog.base.files import Directory, File


class FlushJob:
    """Files to fsync off the loop; `end_offset` is durable once `run` has returned."""

    __slots__ = ("_files", "_folders", "end_offset", "replaced_count")

    def __init__(
        self, end_offset: int, files: list[File], folders: list[tuple[Directory, str]], replaced_count: int
    ) -> None:
        self.end_offset = end_offset
        self.replaced_count = replaced_count
        self._files = files
        self._folders = folders  # and the name of a file in it, or none for the names
        pin_all(files)

    def run(self) -> None:
        """On a thread of the shell. Raises OSError if anything is not durable; never tried again (L10)."""
        for file in self._files:
            file.sync()
        for folder, name in self._folders:
            folder.sync(name)

    def release(self) -> None:
        for file in self._files:
            file.unpin()


def pin_all(files: list[File]) -> None:
    """All of them or, if one cannot be opened, none."""
    for place, file in enumerate(files):
        try:
            file.pin()
        except OSError:
            for pinned in files[:place]:
                pinned.unpin()
            raise
