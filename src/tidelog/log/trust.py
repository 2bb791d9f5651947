"""What a replica has kept since its last life, as the disk shows it (R16).

| class       | what was found                                                                          |
|-------------|-----------------------------------------------------------------------------------------|
| `WHOLE`     | stopped cleanly, or killed while machine and mount stayed; nothing cut                  |
| `UNFLUSHED` | neither: the machine lost power, or the disk was mounted again; nothing cut             |
| `TORN`      | as `UNFLUSHED`, and the end of the log was cut at or above the recovery point           |
| `LOST`      | anything may be gone: no folder, an old or replaced directory, a failed disk, damage    |

A directory is judged by its note and the sign of a clean stop (`judge`), a log also by what recovery found.
Until the store has it, the class of a log stays in a mark in its folder, that of a directory in its note.

**Invariant:** pure but for the mark. A mark is durable before recovery destroys what it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from crc32c import crc32c

from tidelog.base.files import Directory, File, Mount
from tidelog.base.limits import BATCH_HEADER_SIZE, BROKEN_OFF_SIZE_MAX
from tidelog.log.format.metadata import decode_fields, encode_fields
from tidelog.protocol.batch import ATTRIBUTES_POSITION, MAGIC, MAGIC_POSITION, read_header

LOSS_MARK = ".tidelog-loss"
PAGE_SIZE = 4_096
ALWAYS = 1 << 62  # the epoch of a mark that cannot be read: nothing voids it


class Kept(IntEnum):
    WHOLE = 0
    UNFLUSHED = 1
    TORN = 2
    LOST = 3


class Life(NamedTuple):
    """What the store knows of a broker's last life: the epoch of its last registration, and the epoch of the
    note in each directory, by its id. The note of a full directory may be older. An earlier version stored
    no notes."""

    registered: int = -1
    notes: Mapping[str, int] = MappingProxyType({})

    def noted(self, directory_id: str) -> int:
        return self.notes.get(directory_id, self.registered)


class StorePosition(NamedTuple):
    """How far the store has come: how often an operator has said that it was restored from a backup, and the
    number of its last change. A store before the position that was seen last was restored without a word."""

    generation: int = -1
    change: int = -1

    def encode(self) -> bytes:
        return encode_fields(self._asdict())


def read_position(content: bytes | None) -> StorePosition:
    """The position in a file; one before all others if the file is missing or cannot be read."""
    fields = decode_fields(content)
    generation, change = fields.get("generation"), fields.get("change")
    if isinstance(generation, int) and isinstance(change, int):
        return StorePosition(generation, change)
    return StorePosition()


class Note(NamedTuple):
    """What a directory says of the broker that last used it."""

    boot: str = ""
    mount: Mount | None = None
    broker_epoch: int = -1
    doubt: Kept = Kept.WHOLE  # what the directory had kept before, until the store knows
    failed: tuple[str, ...] = ()  # the ids of directories that have failed in this life

    def encode(self) -> bytes:
        fields = {
            "boot": self.boot,
            "mount": self.mount,
            "brokerEpoch": self.broker_epoch,
            "doubt": self.doubt,
            "failed": self.failed,
        }
        return encode_fields(fields)


def read_note(content: bytes | None) -> Note | None:
    """The note in a file; None if there is none, or one that this program did not write."""
    fields = decode_fields(content)
    boot, epoch = fields.get("boot"), fields.get("brokerEpoch")
    if not isinstance(boot, str) or not isinstance(epoch, int):
        return None
    return Note(boot, _mount_of(fields), epoch, _kept_of(fields.get("doubt", 0)), _failed_of(fields))


def _mount_of(fields: dict[str, object]) -> Mount | None:
    mount = fields.get("mount")
    is_whole = isinstance(mount, list) and len(mount) == len(Mount._fields)
    return Mount(*map(str, mount)) if is_whole and isinstance(mount, list) else None


def _kept_of(found: object) -> Kept:
    return Kept(found) if isinstance(found, int) and found in (*Kept,) else Kept.LOST


def _failed_of(fields: dict[str, object]) -> tuple[str, ...]:
    failed = fields.get("failed")
    return tuple(map(str, failed)) if isinstance(failed, list) else ()


def judge(
    life: Life, directory_id: str, clean_epoch: int, note: Note | None, boot: str, mount: Mount
) -> Kept:
    """What a directory has kept: it was stopped cleanly as the last registered broker, or that one was killed
    in it and the machine runs on. An older note than the store knows is of an older copy of the directory, or
    of one that was out."""
    if clean_epoch >= max(life.registered, 0):
        return Kept.WHOLE
    if note is None and life.noted(directory_id) < 0:
        return Kept.UNFLUSHED  # it was full from its first start on: nothing was ever written there
    if note is None or note.broker_epoch < life.noted(directory_id):
        return Kept.LOST if life.notes else Kept.UNFLUSHED
    is_mounted = not life.notes or (note.mount is not None and note.mount.is_same(mount))
    is_same = boot != "" and note.boot == boot and is_mounted
    # Once the broker was registered under the note's epoch, what it doubted is in the store.
    doubt = note.doubt if note.broker_epoch > life.registered else Kept.WHOLE
    return doubt if is_same else max(Kept.UNFLUSHED, doubt)


def read_mark(folder: Directory) -> tuple[Kept, int] | None:
    """The class that an opening has found, and the epoch it was about to register with."""
    content = folder.read_whole(LOSS_MARK)
    if content is None:
        return None
    fields = decode_fields(content)
    epoch = fields.get("brokerEpoch")
    return _kept_of(fields.get("kept")), epoch if isinstance(epoch, int) else ALWAYS


def write_mark(folder: Directory, kept: Kept, broker_epoch: int) -> None:
    folder.replace_whole(LOSS_MARK, encode_fields({"kept": kept, "brokerEpoch": broker_epoch}))


def is_broken_off(file: File, position: int, end: int, next_offset: int) -> bool:
    """Whether a file ends with a write that a kill broke off: Linux does that between two pages. What is left
    must begin a batch that could follow, and its length must be right: the batch would end at the file's end,
    or another one would follow it inside, if only the length were damaged."""
    if end % PAGE_SIZE != 0 or end - position > BROKEN_OFF_SIZE_MAX:
        return False
    rest = file.read(position, end - position)
    if len(rest) < BATCH_HEADER_SIZE:
        return rest.startswith(next_offset.to_bytes(8, "big")[: len(rest)])
    header = read_header(rest, 0)
    is_next = header.base_offset >= next_offset and header.record_count == header.last_offset_delta + 1
    if not is_next or header.magic != MAGIC or header.size <= len(rest):
        return False
    if crc32c(rest[ATTRIBUTES_POSITION:]) == header.crc:
        return False
    following = (header.last_offset + 1).to_bytes(8, "big")
    at = rest.find(following, BATCH_HEADER_SIZE)
    while at >= 0:
        if rest.startswith(bytes([MAGIC]), at + MAGIC_POSITION):
            return False
        at = rest.find(following, at + 1)
    return True
