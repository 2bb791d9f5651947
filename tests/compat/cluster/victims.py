"""Whom to kill, and how a cluster is brought back to full strength before the next.

**Invariant:** one broker is down at a time; the next one goes only when everything is in sync again.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.workload import Load
from tests.compat.cluster.raw import FIND_COORDINATOR, ask
from tests.testing.watching import Watcher, watch
from tidelog.testing import Cluster

OFFSETS_TOPIC = "__consumer_offsets"


def coordinator(cluster: Cluster, watcher: Watcher, group: str) -> int:
    """The broker that has the group now."""
    found: list[int] = []

    def is_found() -> bool:
        anybody = next(broker for broker in cluster.brokers.values() if broker.is_running)
        answer = ask(anybody, FIND_COORDINATOR, key_type=0, coordinator_keys=(group,))
        (only,) = answer.coordinators
        found[:] = [int(only.node_id)]
        return found[0] > 0

    watcher.until(is_found, f"{group} has no coordinator")
    return found[0]


def replace_broker(
    cluster: Cluster,
    node_id: int,
    load: Load,
    *,
    end: Callable[[int], None],
    before: int,
    meanwhile: int,
    topics: tuple[str, ...],
) -> None:
    """Under load: `before` more records, end a broker, `meanwhile` more, start it, until all is in sync."""
    load.resume()
    load.await_acknowledged(before)
    end(node_id)
    load.await_acknowledged(meanwhile)
    cluster.start(node_id)
    watch(cluster).until_in_sync(*topics)
