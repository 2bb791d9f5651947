"""Pytest fixtures, there as soon as Tidelog is installed.

def test_my_consumer(tidelog_broker):
    Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker


@pytest.fixture
def tidelog_broker() -> Iterator[Broker]:
    """A fresh broker for one test: free port, temporary directory, gone afterwards."""
    # Imported here because this file is loaded by every pytest run where Tidelog is installed.
    from tidelog.testing.broker import Broker

    with Broker() as broker:
        yield broker
