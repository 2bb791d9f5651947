"""What was changed through kafka-python takes effect at once and stands after the broker's end."""

from __future__ import annotations

import pytest

from tests.compat.kpython.operator import KafkaPythonOperator
from tests.compat.lasting import Lasting, OperatorAt


class TestKafkaPythonLasting(Lasting):
    @pytest.fixture
    def operator_at(self) -> OperatorAt:
        return KafkaPythonOperator
