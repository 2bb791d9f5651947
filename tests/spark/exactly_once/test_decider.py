"""The protocol of the sink without Spark: every story, on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.exactly_once.stories import STORIES
from tests.spark.exactly_once.world import World, world


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("sinks")) as here:
        yield here


SAMPLED = "a-kill-before-or-after-any-request-loses-and-doubles-nothing"


@pytest.mark.parametrize("name", [name for name in STORIES if name != SAMPLED])
def test_the_rows_are_there_once(name: str, here: World) -> None:
    STORIES[name](here)


@pytest.mark.soak
def test_a_kill_at_any_request_loses_and_doubles_nothing(here: World) -> None:
    STORIES[SAMPLED](here)
