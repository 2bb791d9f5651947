"""The topics of a Metadata answer, encoded by hand: there may be ten thousand partitions.

kio takes 35 µs per partition, which would delay every other client by a third of a second. kio encodes the
rest of the answer; `splice_topics` joins the two.

| from version | what is added                                                             |
|--------------|---------------------------------------------------------------------------|
| 1            | is_internal                                                               |
| 5            | offline replicas                                                          |
| 7            | leader epoch                                                              |
| 8            | authorized operations, of topics and (to 10) of the cluster               |
| 9            | compact lengths and tagged fields                                         |
| 10           | topic ids                                                                 |
| 12           | names that are null                                                       |
| 13           | an error behind the topics                                                |

**Invariant:** byte for byte the output of kio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from tidelog.protocol.apis import METADATA
from tidelog.protocol.wire import write_array_length, write_compact_string, write_string

_SIZE = Struct(">i")
_HEAD = Struct(">h")
_INDEX = Struct(">hi")
_INT = Struct(">i")
_NO_ID = bytes(16)
_FLEXIBLE = METADATA.flexible_version
_TAIL_SIZES = {8: 4, 9: 5, 10: 5, 11: 1, 12: 1, 13: 3}  # what stands behind the topics


# error code, index, leader, leader epoch, replicas, in-sync replicas, offline replicas
DescribedPartition = tuple[int, int, int, int, Sequence[int], Sequence[int], Sequence[int]]


class TopicWriter:
    """Encodes topics for one answer. Partitions that differ only in their index share their bytes."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._ends: dict[tuple[object, ...], bytes] = {}

    def write(
        self,
        error_code: int,
        name: str | None,
        topic_id: bytes | None,
        is_internal: bool,
        partitions: Iterable[DescribedPartition],
        operations: int,
    ) -> bytes:
        version = self._version
        out = [_HEAD.pack(error_code), self._name(name)]
        if version >= 10:
            out.append(topic_id or _NO_ID)
        if version >= 1:
            out.append(b"\x01" if is_internal else b"\x00")
        written = self._partitions(partitions)
        out.append(self._length(len(written) // 2))
        out += written
        if version >= 8:
            out.append(_INT.pack(operations))
        if version >= _FLEXIBLE:
            out.append(b"\x00")
        return b"".join(out)

    def _partitions(self, partitions: Iterable[DescribedPartition]) -> list[bytes]:
        ends, pack = self._ends, _INDEX.pack
        out = []
        for error, index, leader, epoch, replicas, in_sync, offline in partitions:
            key = (leader, epoch, *replicas, None, *in_sync, None, *offline)
            end = ends.get(key)
            if end is None:
                end = ends[key] = self._end(leader, epoch, replicas, in_sync, offline)
            out.append(pack(error, index))
            out.append(end)
        return out

    def _end(
        self, leader: int, epoch: int, replicas: Sequence[int], in_sync: Sequence[int], offline: Sequence[int]
    ) -> bytes:
        """The fields of a partition after its index."""
        out = _INT.pack(leader)
        if self._version >= 7:
            out += _INT.pack(epoch)
        out += self._nodes(replicas) + self._nodes(in_sync)
        if self._version >= 5:
            out += self._nodes(offline)
        return out + b"\x00" if self._version >= _FLEXIBLE else out

    def _nodes(self, nodes: Sequence[int]) -> bytes:
        return self._length(len(nodes)) + b"".join([_INT.pack(node) for node in nodes])

    def _length(self, count: int) -> bytes:
        out = bytearray()
        write_array_length(out, count, self._version >= _FLEXIBLE)
        return bytes(out)

    def _name(self, name: str | None) -> bytes:
        out = bytearray()
        (write_compact_string if self._version >= _FLEXIBLE else write_string)(out, name)
        return bytes(out)

    def splice(self, frame: bytes, topics: Sequence[bytes]) -> bytes:
        """Insert topics into a complete answer, with size prefix, that was encoded without topics."""
        tail_size = _TAIL_SIZES.get(self._version, 0)
        end = len(frame) - tail_size
        begin = end - len(self._length(0))
        length = self._length(len(topics))
        size = begin + len(length) + sum(map(len, topics)) + tail_size
        return b"".join([_SIZE.pack(size - 4), frame[4:begin], length, *topics, frame[end:]])
