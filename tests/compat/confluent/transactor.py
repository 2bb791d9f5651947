"""confluent-kafka (librdkafka) as a `Transactor`; run as a module, a producer that dies in a transaction."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.compat.transactor import (
    ABORTED_EVERY,
    LAST,
    PATIENCE_S,
    TIMEOUT_MS,
    Ended,
    Place,
    Work,
    in_background,
    run_dying,
    transformed,
)

PRODUCER_FENCED = 90


class ConfluentInstance:
    def __init__(self, producer: Producer, bootstrap: str) -> None:
        self._producer = producer
        self._bootstrap = bootstrap

    def begin(self) -> None:
        _told(self._producer.begin_transaction)

    def send(self, place: Place, values: Sequence[bytes]) -> None:
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            _told(self._producer.produce, place[0], value, partition=place[1], on_delivery=on_delivery)
        assert _told(self._producer.flush, PATIENCE_S) == 0, "not acknowledged"
        for failure in failures:
            if failure.code() != KafkaError._PURGE_QUEUE:  # the reason is told by the end of the transaction
                raise _ended(failure)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        named = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        with closing(Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})) as nobody:
            metadata = nobody.consumer_group_metadata()
            _told(self._producer.send_offsets_to_transaction, named, metadata, PATIENCE_S)

    def commit(self) -> None:
        _told(self._producer.commit_transaction, PATIENCE_S)

    def abort(self) -> None:
        _told(self._producer.abort_transaction, PATIENCE_S)


class ConfluentTransactor:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @contextmanager
    def instance(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[ConfluentInstance]:
        yield ConfluentInstance(self._producer(transactional_id, timeout_ms), self.bootstrap)

    def transform(self, work: Work) -> int:
        producer = self._producer(f"{work.group}-transformer", TIMEOUT_MS)
        with closing(self._member(work.group)) as consumer:
            consumer.subscribe([work.source])
            done, ended = 0, 0
            while done < work.count:
                messages = consumer.consume(work.size, 1.0)
                if not messages:
                    continue
                producer.begin_transaction()
                for message in messages:
                    assert message.error() is None, message.error()
                    value = transformed(message.value() or b"")
                    producer.produce(work.target, value, partition=message.partition() or 0)
                positions = consumer.position(consumer.assignment())
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(positions, metadata, PATIENCE_S)
                ended += 1
                if ended % ABORTED_EVERY:
                    producer.commit_transaction(PATIENCE_S)
                    done += len(messages)
                else:
                    producer.abort_transaction(PATIENCE_S)
                    _go_back(consumer, messages)
        return ended

    def follow(self, place: Place) -> Callable[[], list[bytes]]:
        return in_background(partial(self._read, place))

    def _read(self, place: Place) -> list[bytes]:
        with closing(self._member("never-joined")) as consumer:
            consumer.assign([TopicPartition(*place, 0)])
            values: list[bytes] = []
            while LAST not in values:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{place} has no last record: {len(values)} came"
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
        return values[:-1]

    def die_in_the_middle(self, transactional_id: str, place: Place, value: bytes) -> None:
        run_dying(__name__, self.bootstrap, transactional_id, place, value)

    def _member(self, group: str) -> Consumer:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "group.id": group}
        settings |= {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return Consumer(settings | {"isolation.level": "read_committed"})

    def _producer(self, transactional_id: str, timeout_ms: int) -> Producer:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id, "log_level": 0}
        producer = Producer(settings | {"transaction.timeout.ms": timeout_ms, "linger.ms": 0})
        _told(producer.init_transactions, PATIENCE_S)
        return producer


def _go_back(consumer: Consumer, messages: Sequence[Message]) -> None:
    first: dict[int, Message] = {}
    for message in messages:
        first.setdefault(message.partition() or 0, message)
    for message in first.values():
        consumer.seek(TopicPartition(message.topic() or "", message.partition() or 0, message.offset() or 0))


def _told(call: Callable[..., object], *arguments: Any, **named: Any) -> object:
    try:
        return call(*arguments, **named)
    except KafkaException as error:
        raise _ended(error.args[0]) from error


def _ended(error: KafkaError) -> Ended:
    """librdkafka says with a code of its own that a producer is fenced."""
    return Ended(PRODUCER_FENCED if error.code() == KafkaError._FENCED else error.code(), error.str())


def main(bootstrap: str, transactional_id: str, topic: str, partition: str, value: str) -> None:
    with ConfluentTransactor(bootstrap).instance(transactional_id) as instance:
        instance.begin()
        instance.send((topic, int(partition)), [value.encode()])
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
