"""The Java client of the shared broker, and a broker for groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.compat.broker import running_broker
from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm
from tests.compat.java.members import Group
from tests.compat.java.operator import JavaOperator

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
}
SESSION_MS = 3000


@pytest.fixture
def java(bootstrap: str, jvm: Jvm) -> Java:
    return Java(bootstrap, jvm)


@pytest.fixture(scope="session")
def group_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups notice everything soon."""
    existing = os.environ.get("TIDELOG_COMPAT_BOOTSTRAP")
    if existing:
        yield existing
        return
    with running_broker(tmp_path_factory.mktemp("groups") / "logs", QUICK_GROUPS) as address:
        yield address


@pytest.fixture
def operator(group_bootstrap: str, jvm: Jvm) -> JavaOperator:
    return JavaOperator(group_bootstrap, jvm)


@pytest.fixture
def group(operator: JavaOperator, tmp_path: Path) -> Iterator[Group]:
    """A group without members; those that the test leaves behind are closed."""
    shortest = operator.settings("BROKER", "1")["group.min.session.timeout.ms"].value
    session_ms = max(SESSION_MS, int(shortest or 0))
    name = f"compat-{uuid4().hex[:12]}"
    group = Group(name, operator.bootstrap, operator.jvm, tmp_path / "history", session_ms)
    yield group
    group.close_all()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.java)
