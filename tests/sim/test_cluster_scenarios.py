"""Stories of clusters, each with one thing that must not be believed of a replica."""

from __future__ import annotations

import pytest

from tests.sim.cluster_scenarios import STORIES


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_well(name: str) -> None:
    STORIES[name]()
