"""A broker without sockets for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "data")
