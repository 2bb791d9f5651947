"""confluent-kafka in transactions, with one broker and with three."""

from __future__ import annotations

import pytest

from tests.compat.confluent.transactor import ConfluentTransactor
from tests.compat.transactional import Transactions


class TestConfluentTransactions(Transactions):
    @pytest.fixture
    def make_transactor(self) -> type[ConfluentTransactor]:
        return ConfluentTransactor
