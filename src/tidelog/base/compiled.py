"""The tools of the compiled loops: numba's compiler, the types of their arguments, copying.

numba compiles a loop when its module is first imported and caches the result on disk, beside the module or in
the user's cache directory; if neither is writable, each process compiles again. numba checks only the
module's own file for changes, so a loop and its parts stay in one file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

# For mypy: numbers in compiled code are plain ints.
int8: Any = np.int8
uint8: Any = np.uint8
int32: Any = np.int32
uint32: Any = np.uint32
int64: Any = np.int64
uint64: Any = np.uint64

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

_ELEMENTS = {Bytes: types.uint8, Int32s: types.int32, Int64s: types.int64}
INT64S = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")

_compile: Any = numba.njit
# Nothing here allocates, so reference counting is off: it made the loops 3 to 10 times slower.
_OPTIONS = {"nogil": True, "_nrt": False}


def read_only(kind: Any) -> Any:
    """The type of an array that a loop must not write, such as Arrow's or fetched memory."""
    return types.Array(_ELEMENTS[kind], 1, "C", readonly=True)


def writable(kind: Any) -> Any:
    return types.Array(_ELEMENTS[kind], 1, "C")


def compiled(signature: Any) -> Callable[[Function], Function]:
    """numba's compiler for one signature, with the result cached on disk where possible."""

    def compile_function(function: Function) -> Function:
        try:
            return cast(Function, _compile(signature, cache=True, **_OPTIONS)(function))
        except RuntimeError as problem:
            if "cannot cache" not in str(problem):
                raise
            return cast(Function, _compile(signature, **_OPTIONS)(function))

    return compile_function


def part(function: Function) -> Function:
    """A function that is inlined into the compiled functions that call it."""
    return cast(Function, _compile(**_OPTIONS)(function))


def _generate_move(_context: Any, out: Any, to: Any, data: Any, position: Any, size: Any) -> Any:
    """memmove of the C library: numba's own loops over bytes take 20 times as long."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(out)(context, builder, arguments[0]).data
        source = context.make_array(data)(context, builder, arguments[2]).data
        to_pointer = builder.gep(target, [arguments[1]])
        from_pointer = builder.gep(source, [arguments[3]])
        cast(Any, cgutils.raw_memmove)(builder, to_pointer, from_pointer, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


_move_memory = cast(Any, intrinsic)(_generate_move)


@part
def copy(out: Bytes, to: int, data: Bytes, position: int, size: int) -> None:
    """Copy bytes; both ranges may overlap."""
    if size > 0 and to + size <= out.shape[0] and position + size <= data.shape[0]:
        _move_memory(out, to, data, position, size)
