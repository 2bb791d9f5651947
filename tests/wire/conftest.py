"""A broker without sockets for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.group_requests import serve_groups
from tests.wire.harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "data")


@pytest.fixture
def coordinator(tmp_path: Path) -> Harness:
    """A broker that coordinates groups, with a topic `t` of three partitions."""
    harness = Harness(
        tmp_path / "data",
        group_initial_rebalance_delay_ms="0",
        group_consumer_assignment_interval_ms="0",
        offsets_topic_num_partitions="2",
        auto_create_topics_enable="false",
    )
    serve_groups(harness)
    harness.create_topic("t", partitions=3)
    return harness
