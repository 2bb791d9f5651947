"""aiokafka against the contract."""

from __future__ import annotations

import pytest

from tests.compat.aio.driver import Aio
from tests.compat.contract import Places, ProduceAndConsume, Sizes, Timestamps, Topics


class TestAiokafka(ProduceAndConsume, Timestamps, Places, Sizes, Topics):
    @pytest.fixture
    def client(self, bootstrap: str) -> Aio:
        return Aio(bootstrap)
