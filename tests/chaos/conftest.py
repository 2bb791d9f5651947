"""What the tests with ZooKeeper need of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.zookeeper_process import ZooKeeperMissing, find_command


@pytest.fixture
def needs_zookeeper(tmp_path: Path) -> None:
    try:
        find_command(tmp_path)
    except ZooKeeperMissing as missing:
        pytest.skip(str(missing))
