"""The checkpoints of a log directory, read and written whole.

**Invariant:** a file is replaced whole or not at all; a file that cannot be read holds no offsets and the
caller starts from nothing, which costs a longer scan and no data.
"""

from __future__ import annotations

from tidelog.base.files import Directory
from tidelog.log.format.checkpoint import Offsets, decode_offsets, encode_offsets


def read_offsets(directory: Directory, name: str) -> Offsets:
    return decode_offsets(directory.read_whole(name))


def write_offsets(directory: Directory, name: str, offsets: Offsets) -> None:
    directory.replace_whole(name, encode_offsets(offsets))
