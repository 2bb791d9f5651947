"""The Java client of the shared broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm


@pytest.fixture
def java(bootstrap: str, jvm: Jvm) -> Java:
    return Java(bootstrap, jvm)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.java)
