"""After a leader's death: from then until its partitions can be written again, each of them.

The client does what a producer does: it asks a broker that is left who leads, and sends one record to every
partition that has a new leader, all partitions of a leader in one request, with acks=all.

**Invariant:** a partition counts as writable when a record to it has been acknowledged, not when metadata say
that somebody leads it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.load.admin import Admin
from bench.load.pipeline import BadAnswer
from bench.load.placed import PlacedTopic, partitions_of, written

LOOK_SECONDS = 0.05
AWAY_SECONDS_MAX = 90.0


def kill_and_write(topic: PlacedTopic, victim: int) -> list[float]:
    """SIGKILL the leader of all; seconds until each partition was written again, in order."""
    survivors = [number for number in topic.cluster.node_numbers() if number != victim]
    pending = set(range(len(topic.placement)))
    taken: list[float] = []
    with ExitStack() as opened:
        admins = {
            number: opened.enter_context(Admin(*topic.cluster.nodes[number].address)) for number in survivors
        }
        topic.cluster.kill_node(victim)
        started = time.perf_counter()
        while pending:
            time.sleep(LOOK_SECONDS)
            done = _write_where_led(topic.name, admins, pending)
            taken += [time.perf_counter() - started] * len(done)
            pending -= done
            if time.perf_counter() - started > AWAY_SECONDS_MAX:
                raise BadAnswer(f"{topic.cluster.name}: {len(pending)} partitions were not writable again")
    return taken


def _write_where_led(topic: str, admins: dict[int, Admin], pending: set[int]) -> set[int]:
    """Write to those of `pending` for which a survivor leads, and return those that took it."""
    asked = next(iter(admins.values()))
    led: dict[int, list[int]] = {}
    for partition in partitions_of(asked, topic):
        if partition.partition_index in pending and partition.leader_id in admins:
            led.setdefault(partition.leader_id, []).append(partition.partition_index)
    done: set[int] = set()
    for leader, partitions in led.items():
        done.update(written(admins[leader], topic, partitions))
    return done
