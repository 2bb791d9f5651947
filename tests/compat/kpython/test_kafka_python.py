"""kafka-python against the contract."""

from __future__ import annotations

import pytest

from tests.compat.contract import Places, ProduceAndConsume, Sizes, Timestamps, Topics
from tests.compat.kpython.driver import KafkaPython


class TestKafkaPython(ProduceAndConsume, Timestamps, Places, Sizes, Topics):
    @pytest.fixture
    def client(self, bootstrap: str) -> KafkaPython:
        return KafkaPython(bootstrap)
