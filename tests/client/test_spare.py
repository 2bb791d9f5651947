"""Memory that is used again, and never while somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidelog.base.limits import SPARE_COUNT_MAX, SPARE_SIZE_MAX, SPARE_SIZE_MIN
from tidelog.client.spare import SpareBuffers


def memory_of(spares: SpareBuffers, size: int) -> bytearray:
    """What a view is of, that nobody has any more."""
    view = spares.spare(size)
    assert view is not None and len(view) >= size
    assert isinstance(view.obj, bytearray)
    return view.obj


def test_memory_that_nobody_looks_at_is_used_again_for_less_or_a_little_more() -> None:
    spares = SpareBuffers()
    first = memory_of(spares, 1_000_000)
    assert (
        memory_of(spares, 1_000_000) is memory_of(spares, 900_000) is memory_of(spares, len(first)) is first
    )
    assert memory_of(spares, len(first) + 1) is not first


@pytest.mark.parametrize(
    "look",
    [
        memoryview,
        lambda buffer: memoryview(buffer)[10:20],
        lambda buffer: np.frombuffer(buffer, np.uint8)[5:],
    ],
    ids=["view", "part", "array"],
)
def test_memory_that_is_looked_at_is_left_alone_until_that_ends(look: Callable[[bytearray], Any]) -> None:
    spares = SpareBuffers()
    first = memory_of(spares, SPARE_SIZE_MIN)
    size = len(first)
    seen = look(first)
    assert memory_of(spares, SPARE_SIZE_MIN) is not first
    del seen
    assert memory_of(spares, SPARE_SIZE_MIN) is first
    assert len(first) == size


def test_no_more_is_kept_than_is_worth_it() -> None:
    spares = SpareBuffers()
    assert spares.spare(SPARE_SIZE_MIN - 1) is None and spares.spare(SPARE_SIZE_MAX + 1) is None
    views = []
    for _ in range(5):
        buffer = spares.spare(SPARE_SIZE_MAX)
        assert buffer is not None and len(buffer) == SPARE_SIZE_MAX
        views.append(buffer)
    assert len({id(view.obj) for view in views}) == 5
    assert len(spares._buffers) == SPARE_COUNT_MAX
