"""aiokafka in transactions, with one broker and with three."""

from __future__ import annotations

import pytest

from tests.compat.aio.transactor import AioTransactor
from tests.compat.transactional import Transactions


class TestAioTransactions(Transactions):
    @pytest.fixture
    def make_transactor(self) -> type[AioTransactor]:
        return AioTransactor
