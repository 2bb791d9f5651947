"""Transactional clients that are processes of their own, to be killed: a teller and a transformer.

    python -m tests.chaos.transacting teller BOOTSTRAP NAME DIARY TOPIC PARTITIONS
    python -m tests.chaos.transacting transformer BOOTSTRAP NAME DIARY SOURCE TARGET GROUP

A teller moves amounts between accounts, which are the partitions of a topic; one transaction in five it
takes back. A transformer is a member of a group and turns each value around, in the partition that it came
from. Both end on SIGTERM, and with `GIVEN_UP` when their producer can do no more; the next process of the
name begins by ending what that one has left open. If the coordinator of the group dies meanwhile,
`send_offsets_to_transaction` may wait without end, with nothing under way (librdkafka's issues 5456 and
5511): the process is ended by SIGALRM then.

**Invariant:** the diary says what a process is about to do before it does it, and then what it was told.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.readers import CLIENT
from tests.compat.transactor import transformed

TELLER, TRANSFORMER = "teller", "transformer"
GIVEN_UP = 3
TIMEOUT_MS = 12_000  # what a dead process has left open is held as long, if none of its name comes back
CALL_S = 10.0
HUNG_S = 15  # who does not come back from a call then is ended by SIGALRM
TAKEN_BACK = 0.2
REST_S = 0.01
CONSUME_S, RECORDS_MAX = 0.2, 20
SESSION_MS = 6_000
NO_GENERATION = b"CGMDv2:\xff\xff\xff\xff"
BEGUN, ASKED, COMMITTED, ABORTED = "begun", "asked", "committed", "aborted"


class GivenUp(Exception):
    """The producer can do no more; how its transaction ended is not known."""


class Diary:
    """Lines that a SIGKILL leaves whole: word, number, time on a clock that all processes share, and more."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, word: str, number: int, *more: object) -> None:
        line = " ".join(map(str, (word, number, time.monotonic_ns(), *more)))
        os.write(self._file, f"{line}\n".encode())


class Transactions:
    """Of one producer; each ends as committed or aborted, or the process does."""

    def __init__(self, bootstrap: str, name: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 0,
            "request.timeout.ms": 5_000,
        }
        self.producer = Producer(CLIENT | settings)
        try:
            self._tried(self.producer.init_transactions, CALL_S)
        except KafkaException as failed:
            raise GivenUp(str(failed)) from failed

    def commit(self, fill: Callable[[Producer], None], before_commit: Callable[[], None]) -> bool:
        """Whether it was committed; else it was aborted, also because the client wanted it so."""
        try:
            self.producer.begin_transaction()
            fill(self.producer)
            before_commit()
            self._tried(self.producer.commit_transaction, CALL_S)
        except Aborted:
            self._abort()
            return False
        except KafkaException as failed:
            raise GivenUp(str(failed)) from failed
        return True

    def send_offsets(self, *asked: Any) -> None:
        self._tried(self.producer.send_offsets_to_transaction, *asked, CALL_S)

    def _abort(self) -> None:
        """Once all is acknowledged. What is not may be in the log: librdkafka gives its sequence to a record
        of the next transaction, which is then taken for a repeat. A new process has another epoch."""
        if self.producer.flush(CALL_S):
            raise GivenUp("not all is acknowledged")
        try:
            self._tried(self.producer.abort_transaction, CALL_S)
        except KafkaException as failed:
            raise GivenUp(str(failed)) from failed

    def _tried(self, call: Callable[..., object], *arguments: Any) -> None:
        """Until it is answered. Raises `KafkaException` where the transaction has to be aborted."""
        while True:
            signal.alarm(HUNG_S)
            try:
                call(*arguments)
            except KafkaException as failed:
                if failed.args[0].retriable():
                    continue
                self._see(failed.args[0])
                raise
            finally:
                signal.alarm(0)
            return

    def _see(self, error: KafkaError) -> None:
        if error.fatal() or not error.txn_requires_abort():
            raise GivenUp(str(error))


class Aborted(Exception):
    """The client takes its transaction back."""


class Teller:
    def __init__(self, bootstrap: str, name: str, diary: Diary, topic: str, partitions: str) -> None:
        self._name, self._diary, self._topic, self._partitions = name, diary, topic, int(partitions)
        self._chance = random.Random()
        self._transactions = Transactions(bootstrap, name)

    def work(self) -> None:
        number = time.monotonic_ns()
        accounts = self._chance.sample(range(self._partitions), self._chance.randint(2, self._partitions))
        self._diary.write(BEGUN, number, ",".join(map(str, accounts)))
        fill, ask = partial(self._fill, number, accounts), partial(self._diary.write, ASKED, number)
        self._diary.write(COMMITTED if self._transactions.commit(fill, ask) else ABORTED, number)
        self._transactions.producer.poll(REST_S)

    def _fill(self, number: int, accounts: list[int], producer: Producer) -> None:
        amounts = [self._chance.randint(-100, 100) for _ in accounts[1:]]
        for place, (account, amount) in enumerate(zip(accounts, [*amounts, -sum(amounts)], strict=True)):
            producer.produce(self._topic, f"{self._name}|{number}|{place}|{amount}", partition=account)
        if self._chance.random() < TAKEN_BACK:
            raise Aborted


class Membership:
    """The group's word for what a member may commit, as it was when the partitions were given to it: the word
    of now may be that of a later generation, and let through what came of an earlier one."""

    def __init__(self, bootstrap: str, group: str, source: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "max.poll.interval.ms": 60_000,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
        self.consumer = Consumer(CLIENT | settings)
        self._source = source
        self._metadata: Any = None
        self._subscribe()

    def metadata(self) -> Any:
        if self._metadata is None or NO_GENERATION in self._metadata:
            raise Aborted
        return self._metadata

    def go_back(self) -> None:
        """To what the group has committed: what was consumed since is consumed again."""
        self.consumer.unsubscribe()
        self._metadata = None
        self._subscribe()

    def _subscribe(self) -> None:
        self.consumer.subscribe(
            [self._source], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def _on_assign(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._metadata = consumer.consumer_group_metadata()

    def _on_revoke(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._metadata = None


class Transformer:
    def __init__(self, bootstrap: str, name: str, diary: Diary, source: str, target: str, group: str) -> None:
        self._diary, self._source, self._target = diary, source, target
        self._transactions = Transactions(bootstrap, name)
        self._member = Membership(bootstrap, group, source)

    def work(self) -> None:
        consumed = self._member.consumer.consume(RECORDS_MAX, CONSUME_S)
        messages = [each for each in consumed if each.error() is None]
        if not messages:
            return
        number = time.monotonic_ns()
        fill, ask = partial(self._fill, messages), partial(self._diary.write, ASKED, number)
        is_committed = self._transactions.commit(fill, ask)
        self._diary.write(COMMITTED if is_committed else ABORTED, number)
        if not is_committed:
            self._member.go_back()

    def _fill(self, messages: list[Message], producer: Producer) -> None:
        metadata = self._member.metadata()
        offsets: dict[int, int] = {}
        for message in messages:
            partition = message.partition() or 0
            producer.produce(self._target, transformed(message.value() or b""), partition=partition)
            offsets[partition] = (message.offset() or 0) + 1
        places = [TopicPartition(self._source, index, offset) for index, offset in offsets.items()]
        self._transactions.send_offsets(places, metadata)


KINDS: dict[str, Callable[..., Teller | Transformer]] = {TELLER: Teller, TRANSFORMER: Transformer}


def main(kind: str, bootstrap: str, name: str, diary: str, *words: str) -> None:
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    try:
        worker = KINDS[kind](bootstrap, name, Diary(Path(diary)), *words)
        while not ending:
            worker.work()
    except GivenUp as reason:
        print(f"{name} gives up: {reason}", file=sys.stderr, flush=True)
        os._exit(GIVEN_UP)
    os._exit(0)  # a consumer may not come back from close() if its coordinator has just died


if __name__ == "__main__":
    main(*sys.argv[1:])
