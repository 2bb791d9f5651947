"""Real clients, and Kafka's own tools, against a real broker."""

import pytest

for shared in ("contract", "lasting", "operator", "operator_contract", "transactional"):
    pytest.register_assert_rewrite(f"tests.compat.{shared}")
