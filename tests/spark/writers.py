"""Somebody who writes to a topic all the while a test reads it.

    with writing(bootstrap, topic, 2) as written: ...
    assert is_whole(numbers(frame))

**Invariant:** the records of each partition are numbered as `numbered` numbers them, without gaps.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.compat.client import CONSUME_SECONDS_MAX

PAUSE_SECONDS = 0.005


@contextmanager
def writing(bootstrap: str, topic: str, partitions: int) -> Iterator[list[int]]:
    """Writes to each partition in turn until the block ends; how many records each has so far."""
    counts = [0] * partitions
    stop = threading.Event()
    # The sequence of a producer that is idempotent has no gaps.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})

    def write() -> None:
        while not stop.wait(PAUSE_SECONDS):
            for partition in range(partitions):
                producer.produce(topic, value=b"%d" % counts[partition], partition=partition)
                counts[partition] += 1
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join()
        assert producer.flush(CONSUME_SECONDS_MAX) == 0


def is_whole(found: Sequence[tuple[int, int]]) -> bool:
    """Whether the sorted records of each partition follow each other without gaps and repetitions."""
    return all(left[0] != right[0] or left[1] + 1 == right[1] for left, right in itertools.pairwise(found))
