"""Memory that is used again, and never while somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidelog.client.spare import SPARE_COUNT_MAX, SPARE_SIZE_MAX, SPARE_SIZE_MIN, SpareBuffers


def test_memory_that_nobody_looks_at_is_used_again_for_less_or_a_little_more() -> None:
    spares = SpareBuffers()
    first = spares.take(1_000_000)
    assert first is not None and len(first) >= 1_000_000
    assert spares.take(1_000_000) is spares.take(900_000) is spares.take(len(first)) is first
    assert spares.take(len(first) + 1) is not first


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
    first = spares.take(SPARE_SIZE_MIN)
    assert first is not None
    size = len(first)
    seen = look(first)
    second = spares.take(SPARE_SIZE_MIN)
    assert second is not first
    del seen
    assert spares.take(SPARE_SIZE_MIN) is first
    assert len(first) == size


def test_no_more_is_kept_than_is_worth_it() -> None:
    spares = SpareBuffers()
    assert spares.take(SPARE_SIZE_MIN - 1) is None and spares.take(SPARE_SIZE_MAX + 1) is None
    views = []
    for _ in range(5):
        buffer = spares.take(SPARE_SIZE_MAX)
        assert buffer is not None and len(buffer) == SPARE_SIZE_MAX
        views.append(memoryview(buffer))
    assert len({id(view.obj) for view in views}) == 5
    assert len(spares._buffers) == SPARE_COUNT_MAX
