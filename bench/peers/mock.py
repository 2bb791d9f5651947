"""librdkafka's own mock cluster: a broker inside the client's process that keeps next to nothing.

What a librdkafka client reaches against it is the client's bound: no broker can look faster to it.
"""

from __future__ import annotations

MOCK_SETTINGS: dict[str, str | int] = {"test.mock.num.brokers": 1, "log_level": 4}
