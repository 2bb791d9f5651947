"""A broker with short bounds for each module, topics of several partitions, records on them, and groups.

`TIDELOG_COMPAT_BOOTSTRAP` names a broker that already runs, as everywhere in `tests/compat`; here it must
have been started with `BROKER_SETTINGS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.compat.broker import running_broker
from tests.compat.client import Admin
from tests.compat.confluent.driver import Confluent
from tests.compat.groups.process import Group
from tests.compat.groups.spec import BROKER_SETTINGS, SHORT_SESSION_MS
from tests.compat.kpython.operator import KafkaPythonOperator
from tests.compat.operator import Change

NewGroup = Callable[..., Group]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    existing = os.environ.get("TIDELOG_COMPAT_BOOTSTRAP")
    if existing:
        yield existing
        return
    with running_broker(tmp_path_factory.mktemp("broker") / "logs", BROKER_SETTINGS) as address:
        yield address


@pytest.fixture(scope="module")
def writer(bootstrap: str) -> Admin:
    return Confluent(bootstrap)


@pytest.fixture
def new_group(bootstrap: str, tmp_path: Path) -> Iterator[NewGroup]:
    """Makes groups on the topics; their members end with the test."""
    groups: list[Group] = []

    def make(*topics: str, name: str = "") -> Group:
        group = Group(bootstrap, name or f"group-{uuid4().hex[:12]}", topics, tmp_path)
        groups.append(group)
        return group

    yield make
    for group in groups:
        with group:
            pass


@pytest.fixture
def new_short_group(bootstrap: str, new_group: NewGroup) -> NewGroup:
    """Groups whose members are missed soon: in the newer protocol that is a setting of the group."""

    def make(*topics: str) -> Group:
        group = new_group(*topics)
        session: Change = ("SET", "consumer.session.timeout.ms", str(SHORT_SESSION_MS))
        KafkaPythonOperator(bootstrap).alter("GROUP", group.name, session)
        return group

    return make
