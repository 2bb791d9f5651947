"""Real clients, and Kafka's own tools, against a real broker."""

import pytest

pytest.register_assert_rewrite(
    "tests.compat.contract", "tests.compat.operator", "tests.compat.operator_contract"
)
