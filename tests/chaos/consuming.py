"""A consumer that does some work for each record and dies where it is told to: run as a process of its own.

    python -m tests.chaos.consuming MODE BOOTSTRAP PROTOCOL GROUP TOPIC STORE COUNT DIES_AT

The work is a row in an SQLite file, which survives the process. `DIES_AT` is the number of the record at
which it kills itself between the two things that its mode does for each: commit and work, work and commit, or
the work and the end of the transaction that has both. It ends by itself after the last of `COUNT` records.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys

from confluent_kafka import Consumer, Message, TopicPartition

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at-most-once", "at-least-once", "exactly-once"
SESSION_MS = 3_000  # the dead are waited for as long, and the living may stall as long


def open_store(path: str) -> sqlite3.Connection:
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("CREATE TABLE IF NOT EXISTS works (number INTEGER)")
    store.execute("CREATE TABLE IF NOT EXISTS places (partition INTEGER PRIMARY KEY, next INTEGER)")
    return store


class Work:
    def __init__(
        self, mode: str, protocol: str, consumer: Consumer, store: sqlite3.Connection, dies_at: int
    ) -> None:
        self._mode = mode
        self._is_incremental = protocol == "consumer"
        self._consumer = consumer
        self._store = store
        self._dies_at = dies_at

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Where offsets are kept with the work, go on from there and not from what the group committed."""
        if self._mode == EXACTLY_ONCE:
            rows = dict(self._store.execute("SELECT partition, next FROM places").fetchall())
            for partition in partitions:
                partition.offset = rows.get(partition.partition, 0)
        assign = consumer.incremental_assign if self._is_incremental else consumer.assign
        assign(partitions)

    def do(self, message: Message) -> int:
        value = message.value()
        assert value is not None
        number = int(value)
        if self._mode == AT_MOST_ONCE:
            self._consumer.commit(message=message, asynchronous=False)
            self._maybe_die(number)
            self._write(number)
        elif self._mode == AT_LEAST_ONCE:
            self._write(number)
            self._maybe_die(number)
            self._consumer.commit(message=message, asynchronous=False)
        else:
            self._store.execute("BEGIN")
            self._write(number)
            place = (message.partition(), (message.offset() or 0) + 1)
            self._store.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", place)
            self._maybe_die(number)
            self._store.execute("COMMIT")
        return number

    def _write(self, number: int) -> None:
        self._store.execute("INSERT INTO works VALUES (?)", (number,))

    def _maybe_die(self, number: int) -> None:
        if number == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main(
    mode: str, bootstrap: str, protocol: str, group: str, topic: str, path: str, count: str, at: str
) -> None:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 5}
    consumer = Consumer(settings)
    store = open_store(path)
    work = Work(mode, protocol, consumer, store, int(at))
    consumer.subscribe([topic], on_assign=work.on_assign)
    number = -1
    while number < int(count) - 1:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            number = work.do(message)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
