"""One real ZooKeeper for all the tests that need one; each has a folder of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tidelog.cli.zookeeper_process import ZooKeeperProcess


@pytest.fixture(scope="session")
def zookeeper(needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


@pytest.fixture(scope="session")
def new_folder() -> Callable[[], str]:
    """A chroot that nobody has used."""
    numbers = itertools.count()
    return lambda: f"/test-{next(numbers)}"
