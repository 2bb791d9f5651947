"""Kafka's checkpoint files: a version, a count, then a line of fields for each entry.

**Invariant:** a file is replaced whole or not at all; a file that cannot be read is reported as None
and whoever asked starts from nothing, which costs a longer scan and no data.
"""

from __future__ import annotations

from tidelog.base.files import Directory

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

Offsets = dict[tuple[str, int], int]


def read_rows(directory: Directory, name: str, width: int) -> list[list[str]] | None:
    """The entries of a checkpoint file, or None if it is missing or bad."""
    content = directory.read_whole(name)
    if content is None or content[-1:] != b"\n":  # cut off inside a number, it would read as another number
        return None
    try:
        lines = content.decode().split("\n")
        if lines[0] != "0":
            return None
        rows = [line.split(" ") for line in lines[2:] if line]
        if len(rows) != int(lines[1]) or any(len(row) != width for row in rows):
            return None
    except (ValueError, IndexError):
        return None
    return rows


def write_rows(directory: Directory, name: str, rows: list[str], durable: bool = True) -> None:
    content = "\n".join(["0", str(len(rows)), *rows]) + "\n"
    directory.replace_whole(name, content.encode(), durable)


def read_offsets(directory: Directory, name: str) -> Offsets:
    offsets: Offsets = {}
    for row in read_rows(directory, name, width=3) or []:
        try:
            offsets[row[0], int(row[1])] = int(row[2])
        except ValueError:
            return {}
    return offsets


def write_offsets(directory: Directory, name: str, offsets: Offsets) -> None:
    rows = [f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()]
    write_rows(directory, name, rows)
