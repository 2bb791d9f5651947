"""The Java client 4.3 against the contract: both of its consumers, and what only it does."""

from __future__ import annotations

import pytest

from tests.compat.contract import Places, ProduceAndConsume, Sizes, Timestamps, Topics
from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm


class TestJava(ProduceAndConsume, Timestamps, Places, Sizes, Topics):
    @pytest.fixture
    def client(self, java: Java) -> Java:
        return java


class TestJavaWithItsNewConsumer(Places):
    """The consumer of KIP-848 fetches by a thread of its own, also where no group is joined."""

    @pytest.fixture
    def client(self, bootstrap: str, jvm: Jvm) -> Java:
        return Java(bootstrap, jvm, {"group.protocol": "consumer"})
