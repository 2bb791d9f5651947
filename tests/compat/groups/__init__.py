"""Real clients in consumer groups, each member a process of its own."""

import pytest

for shared in ("ledger", "process"):
    pytest.register_assert_rewrite(f"tests.compat.groups.{shared}")
