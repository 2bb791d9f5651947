"""Transactions on the metrics page: of each coordinator how many are open, since when, and how they ended.

Kafka has no such numbers of its coordinators, so the names are ours; a coordinator is named by its partition
of `__transaction_state`. What a leader knows has Kafka's names, and stands with the partitions.

**Invariant:** a piece of text is made of at most so many series, or looks at as many transactions, as its
maker says, and the loop goes on between two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from tidelog.base.metrics import Family, labels_of
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.shard import Shard
from tidelog.broker.data_plane.transactions import TransactionShard
from tidelog.transactions.coordinator import TransactionCoordinator

_NAME = "tidelog_transaction"
IDS = Family(f"{_NAME}al_ids", "gauge", "Transactional ids that a coordinator keeps.")
OPEN = Family(f"{_NAME}s_open", "gauge", "Transactions that are open.")
OLDEST = Family(f"{_NAME}s_oldest_seconds", "gauge", "How long the oldest of these is open.")
COMMITTED = Family(f"{_NAME}s_committed_total", "counter", "Transactions that were committed.")
ABORTED = Family(f"{_NAME}s_aborted_total", "counter", "Transactions that were aborted.")
ENDING = Family(f"{_NAME}s_ending", "gauge", "Ends whose markers are not all committed.")
ENDING_OLDEST = Family(f"{_NAME}s_ending_oldest_seconds", "gauge", "How long the oldest of these takes.")
HELD = Family(f"{_NAME}_bytes_held", "gauge", "Bytes in memory: Batches that wait for a coordinator.")


def transaction_pieces(broker: Broker, series_max: int) -> Iterator[str]:
    shards = [shard for shard in broker.transacting.coordinators.all() if isinstance(shard, Shard)]
    for family in (IDS, OPEN, COMMITTED, ABORTED):
        yield family.head()
        for start in range(0, len(shards), series_max):
            some = shards[start : start + series_max]
            yield "".join([family.sample(_number(family, shard.machine), _place(shard)) for shard in some])
    yield OLDEST.head()
    for shard in shards:
        age_ms = yield from _oldest_ms(shard.machine, broker.clock.now_ms, series_max)
        yield OLDEST.sample(age_ms / 1_000, _place(shard))
    marking = broker.transacting.marking
    yield ENDING.head() + ENDING.sample(marking.count)
    yield ENDING_OLDEST.head() + ENDING_OLDEST.sample(marking.oldest_ms / 1_000)
    yield HELD.head() + HELD.sample(broker.transacting.verifying.held_size)


def _place(shard: TransactionShard) -> str:
    return labels_of(("partition", str(shard.partition.index)))


def _number(family: Family, machine: TransactionCoordinator) -> int:
    if family is IDS:
        return machine.record_count
    if family is OPEN:
        return len(machine.open)
    return machine.committed_count if family is COMMITTED else machine.aborted_count


def _oldest_ms(machine: TransactionCoordinator, now_ms: int, look_max: int) -> Generator[str, None, int]:
    oldest_ms = now_ms
    for place, transactional_id in enumerate(list(machine.open)):
        found = machine.transactions.get(transactional_id)
        if found is not None and transactional_id in machine.open:
            oldest_ms = min(oldest_ms, found.started_ms)
        if place % look_max == look_max - 1:
            yield ""
    return now_ms - oldest_ms
