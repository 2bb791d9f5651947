"""The sum of a task's rows: equal for the same rows in any order, and for no others, as far as 64 bits go.

Topic, key, value and headers count; partition, offset and time do not. A driver compares the sums of two
attempts at the same task.

**Invariant:** null and empty differ; the sum does not depend on how rows are divided into record batches.
"""

# mypy: disable-error-code="no-any-return"
# numpy's numbers are of type Any here; numba infers their types.

from __future__ import annotations

import hashlib
from typing import Any, cast

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidelog.base.compiled import Bytes, Int64s, compiled, part, read_only, uint64
from tidelog.spark.scatter import INPUTS, Blobs, Inputs

_FACTOR = 0x9E3779B97F4A7C15
_NULL = 0xA5A5A5A5A5A5A5A5


def _generate_word(_context: Any, data: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source = context.make_array(data)(context, builder, arguments[0]).data
        pointer = builder.gep(source, [arguments[1]])
        word = builder.load(builder.bitcast(pointer, cast(Any, cgutils).ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(data, types.int64), generate


_word = cast(Any, intrinsic)(_generate_word)


@part
def mix(mixed: int, word: int) -> int:
    mixed = (mixed ^ word) * uint64(_FACTOR)
    return mixed ^ mixed >> uint64(32)


@part
def mix_bytes(mixed: int, data: Bytes, start: int, end: int) -> int:
    position = start
    while position + 8 <= end:
        mixed = mix(mixed, _word(data, position))
        position += 8
    tail = uint64(0)
    while position < end:
        tail = tail << uint64(8) | uint64(data[position])
        position += 1
    return mix(mix(mixed, tail), uint64(end - start))


@part
def mix_entry(mixed: int, blobs: Blobs, row: int) -> int:
    if blobs.valid.shape[0] and blobs.valid[row] == 0:
        return mix(mixed, uint64(_NULL))
    return mix_bytes(mixed, blobs.data, blobs.ends[row], blobs.ends[row + 1])


@compiled(types.uint64(INPUTS, types.int64, read_only(Int64s)))
def sum_rows(inputs: Inputs, rows: int, topics: Int64s) -> int:
    """`topics` has a number for each topic, in the order of the inputs' own."""
    total = uint64(0)
    for row in range(rows):
        topic = inputs.topics[row] if inputs.topics.shape[0] else 0
        mixed = mix(uint64(topics[topic]), uint64(1))
        mixed = mix_entry(mixed, inputs.keys, row)
        mixed = mix_entry(mixed, inputs.values, row)
        if inputs.header_valid.shape[0] == 0 or inputs.header_valid[row]:
            for header in range(inputs.header_ends[row], inputs.header_ends[row + 1]):
                mixed = mix_entry(mixed, inputs.header_keys, header)
                mixed = mix_entry(mixed, inputs.header_values, header)
        total += mixed
    return total


def number_of_topic(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
