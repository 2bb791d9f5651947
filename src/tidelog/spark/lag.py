"""A query's progress, committed to a consumer group, so that every console shows its lag.

Nothing is read from the group: a query continues from its checkpoint. So a failed commit is only logged; the
next commit replaces it.

**Invariant:** a commit never fails a query, and never delays it for long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, TopicPartition
from tidelog.spark.survey import warn

TIMEOUT_MS = 2_000
PAUSE_SECONDS = 30.0  # after a failure


class ProgressReport:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._cluster = Cluster({**properties, "default.api.timeout.ms": str(TIMEOUT_MS)})
        self._told: Mapping[TopicPartition, int] = {}
        self._silent_until = 0.0

    def tell(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        news = {
            partition: offset for partition, offset in offsets.items() if self._told.get(partition) != offset
        }
        if not news or time.monotonic() < self._silent_until:
            return
        try:
            self._cluster.commit(group_id, news)
        except ClientError as problem:
            warn(f"progress not committed to group {group_id}, again in {PAUSE_SECONDS:.0f} s: {problem}")
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            return
        self._told = dict(offsets)
