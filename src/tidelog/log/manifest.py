"""The folders that a log directory has: a name and a topic id on each line, after a minus if the partition
has left for another directory.

A topic may list a broker that was killed before it made the folder. A folder that is missing and was never
made has lost nothing; one that was made has.

**Invariant:** a folder is listed before it is made; its log's first flush makes the line durable, and `add`
itself if the partition comes back to a directory that it left in this life: no two directories say that.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.files import Directory, File

MANIFEST = ".tidelog-folders"
LEFT = "-"


class Manifest:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._file: File | None = None
        self._listed: dict[tuple[str, str], None] = {}
        self._left: dict[tuple[str, str], None] = {}
        self._is_torn = False  # a line that is written now would be part of another one

    def load(self) -> None:
        """A line that a crash cut off names a folder that holds nothing acknowledged."""
        content = (self._directory.read_whole(MANIFEST) or b"").decode(errors="replace")
        *lines, rest = content.split("\n")
        self._is_torn = rest != ""
        for row in (line.split(" ") for line in lines):
            if len(row) == 3 and row[0] == LEFT:
                self._note_left((row[1], row[2]))
            elif len(row) == 2:
                self._note_listed((row[0], row[1]))

    def __contains__(self, entry: tuple[str, str]) -> bool:
        return entry in self._listed

    def has_left(self, name: str, topic_id: str) -> bool:
        """Whether a folder that is found is not the partition's log any more."""
        return (name, topic_id) in self._left

    def add(self, name: str, topic_id: str) -> None:
        entry = (name, topic_id)
        if entry not in self._listed:
            file = self._open()
            self._append(file, f"{name} {topic_id}\n")
            if entry in self._left:
                file.sync()
            self._note_listed(entry)

    def remove(self, name: str, topic_id: str) -> OSError | None:
        """The partition has left; what is found of it here from now on is not its log. OSError if that could
        not be written; if it is not known whether it is durable, the failure."""
        entry = (name, topic_id)
        if entry not in self._listed:
            return None
        file = self._open()
        file.pin()
        try:
            self._append(file, f"{LEFT} {name} {topic_id}\n")
            self._note_left(entry)
            return _sync(file)
        finally:
            file.unpin()

    def forget(self, name: str, topic_id: str) -> None:
        """The topic is deleted, and its id never comes back. The line stays until the next start."""
        self._listed.pop((name, topic_id), None)
        self._left.pop((name, topic_id), None)

    def _note_listed(self, entry: tuple[str, str]) -> None:
        self._left.pop(entry, None)
        self._listed[entry] = None

    def _note_left(self, entry: tuple[str, str]) -> None:
        self._listed.pop(entry, None)
        self._left[entry] = None

    def _open(self) -> File:
        if self._is_torn:
            self._write()
        if self._file is None:
            self._file = self._directory.open(MANIFEST)
        return self._file

    def _append(self, file: File, line: str) -> None:
        self._is_torn = True  # unless it gets there whole
        file.append(line.encode())
        self._is_torn = False

    def rewrite(self, entries: Iterable[tuple[str, str]]) -> None:
        """List those and no others: what else was made is gone, by a decision that the store has."""
        listed = dict.fromkeys(entries)
        if listed != self._listed or self._left or self._is_torn:
            self._listed, self._left = listed, {}
            self._write()

    def _write(self) -> None:
        listed = [f"{name} {topic_id}\n" for name, topic_id in self._listed]
        left = [f"{LEFT} {name} {topic_id}\n" for name, topic_id in self._left]
        self._directory.replace_whole(MANIFEST, "".join([*listed, *left]).encode())
        self._file, self._is_torn = None, False


def _sync(file: File) -> OSError | None:
    try:
        file.sync()
    except OSError as failure:
        return failure
    return None
