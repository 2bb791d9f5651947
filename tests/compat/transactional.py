"""What must hold for every transactional client, written once; see `transactor.py`.

Each claim is run against one broker and against a cluster of three, with names of its own, and holds for
Apache Kafka as it stands (`TIDELOG_COMPAT_BOOTSTRAP`, see `conftest.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.compat.transactor import LAST, PATIENCE_S, Ended, Place, Transactor, Work, transformed
from tests.soak import choose_seed
from tests.testing.watching import Watcher

INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED = 47, 48, 90
FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
"""Which of them a client is told depends on the versions that it speaks."""

SHORT_MS = 1_000
MEGABYTE = 1 << 20
MANY_PARTITIONS = 50


class MakeTransactor(Protocol):
    def __call__(self, bootstrap: str) -> Transactor: ...


class Ground:
    """Where one test has its topic: a look at it past the client under test."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.watcher = Watcher(bootstrap)

    def make(self, partitions: int = 1, **config: int) -> Place:
        self.watcher.create(self.topic, partitions, **config)
        return self.topic, 0

    def write(self, topic: str, values: list[bytes], partitions: int = 1) -> None:
        """Plain records: to each partition in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % partitions)
        assert producer.flush(PATIENCE_S) == 0

    def end(self, partitions: int = 1) -> None:
        self.write(self.topic, [LAST] * partitions, partitions)

    def stable_offset(self, place: Place) -> int:
        return self._end(place, IsolationLevel.READ_COMMITTED)

    def end_offset(self, place: Place) -> int:
        return self._end(place, IsolationLevel.READ_UNCOMMITTED)

    def _end(self, place: Place, isolation: IsolationLevel) -> int:
        asked = {TopicPartition(*place): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        (found,) = self.watcher.admin.list_offsets(asked, isolation_level=isolation).values()
        return int(found.result(PATIENCE_S).offset)

    def await_committed(self, group: str, offsets: list[int]) -> None:
        """Kafka may answer before the markers of the last transaction are written."""
        self.watcher.until(
            lambda: self._committed(group, len(offsets)) == offsets, f"{group} has not committed {offsets}"
        )

    def _committed(self, group: str, partitions: int) -> list[int]:
        wanted = [TopicPartition(self.topic, index) for index in range(partitions)]
        asked = ConsumerGroupTopicPartitions(group, wanted)
        (found,) = self.watcher.admin.list_consumer_group_offsets([asked], require_stable=True).values()
        return [each.offset for each in found.result(PATIENCE_S).topic_partitions]


class Transactions:
    """A subclass says with `make_transactor` which client it is about."""

    @pytest.fixture(params=["broker", "cluster"])
    def served(self, request: pytest.FixtureRequest) -> str:
        name = "bootstrap" if request.param == "broker" else "cluster_bootstrap"
        return str(request.getfixturevalue(name))

    @pytest.fixture
    def ground(self, served: str) -> Ground:
        return Ground(served, f"transactions-{uuid4().hex[:12]}")

    @pytest.fixture
    def client(self, served: str, make_transactor: MakeTransactor) -> Iterator[Transactor]:
        yield make_transactor(served)

    def test_what_is_consumed_is_transformed_once_and_in_order(
        self, client: Transactor, ground: Ground
    ) -> None:
        source, target, partitions, count = ground.topic, f"{ground.topic}-target", 3, 120
        ground.make(partitions)
        ground.watcher.create(target, partitions)
        values = [b"value %d" % number for number in range(count)]
        ground.write(source, values, partitions)
        transactions = client.transform(Work(source, target, f"{source}-group", count))
        assert transactions > count // 10
        ground.write(target, [LAST] * partitions, partitions)
        for index in range(partitions):
            expected = [transformed(value) for value in values[index::partitions]]
            assert client.follow((target, index))() == expected
        ground.await_committed(f"{source}-group", [count // partitions] * partitions)

    def test_what_is_aborted_is_never_read(self, client: Transactor, ground: Ground) -> None:
        place = ground.make()
        with client.instance(ground.topic) as instance:
            for number in range(6):
                instance.begin()
                instance.send(place, [b"%d" % number] * 2)
                (instance.commit if number % 3 == 1 else instance.abort)()
        ground.end()
        assert client.follow(place)() == [b"1", b"1", b"4", b"4"]
        assert ground.end_offset(place) == 6 * (2 + 1) + 1, "a record is there, or a marker is"

    def test_nothing_is_read_before_the_commit(self, client: Transactor, ground: Ground) -> None:
        place = ground.make()
        with client.instance(ground.topic) as instance:
            instance.begin()
            instance.send(place, [b"one"])
            ground.write(ground.topic, [b"plain"])
            assert (ground.stable_offset(place), ground.end_offset(place)) == (0, 2)
            instance.commit()
            ground.watcher.until(lambda: ground.stable_offset(place) == 3, "the commit is not seen")
        ground.end()
        assert client.follow(place)() == [b"one", b"plain"]

    def test_offsets_are_those_of_the_last_commit(self, client: Transactor, ground: Ground) -> None:
        place = ground.make()
        group = f"{ground.topic}-group"
        with client.instance(ground.topic) as instance:
            for offset, is_committed in ((3, True), (5, False), (7, True), (9, False)):
                instance.begin()
                instance.send_offsets(group, {place: offset})
                (instance.commit if is_committed else instance.abort)()
        ground.await_committed(group, [7])

    def test_a_second_instance_fences_the_first(self, client: Transactor, ground: Ground) -> None:
        place = ground.make()
        with client.instance(ground.topic) as first:
            first.begin()
            first.send(place, [b"first"])
            with client.instance(ground.topic) as second:
                second.begin()
                second.send(place, [b"second"])
                with pytest.raises(Ended) as ended:
                    first.commit()
                assert ended.value.code in FENCED
                second.commit()
                with client.instance(ground.topic), pytest.raises(Ended) as ended:
                    second.begin()
                    second.send(place, [b"too late"])
                    second.commit()
                assert ended.value.code in FENCED
        ground.end()
        assert client.follow(place)() == [b"second"]

    def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_told(
        self, client: Transactor, ground: Ground
    ) -> None:
        place = ground.make()
        with client.instance(ground.topic, SHORT_MS) as slow:
            slow.begin()
            slow.send(place, [b"too late"])
            ground.watcher.until(lambda: ground.stable_offset(place) == 2, "it is not aborted")
            with pytest.raises(Ended) as ended:
                slow.commit()
            assert ended.value.code in (*FENCED, INVALID_TXN_STATE)
        with client.instance(ground.topic) as again:
            again.begin()
            again.send(place, [b"in time"])
            again.commit()
        ground.end()
        assert client.follow(place)() == [b"in time"]

    def test_one_transaction_has_50_partitions(self, client: Transactor, ground: Ground) -> None:
        ground.make(MANY_PARTITIONS)
        with client.instance(ground.topic) as instance:
            for is_committed in (False, True):
                instance.begin()
                for index in range(MANY_PARTITIONS):
                    instance.send((ground.topic, index), [b"%d" % is_committed])
                (instance.commit if is_committed else instance.abort)()
        places = [(ground.topic, index) for index in range(MANY_PARTITIONS)]
        ground.watcher.until(lambda: {ground.stable_offset(place) for place in places} == {4}, "not all end")
        ground.end(MANY_PARTITIONS)
        for place in places[::7]:
            assert client.follow(place)() == [b"1"]

    def test_transactions_go_over_segments(self, client: Transactor, ground: Ground) -> None:
        place = ground.make(segment_bytes=MEGABYTE)
        large = b"x" * (MEGABYTE // 10)
        with ExitStack() as stack:
            kept, dropped = (
                stack.enter_context(client.instance(f"{ground.topic}-{name}")) for name in ("kept", "dropped")
            )
            for instance in (kept, dropped):
                instance.begin()
            for number in range(15):
                kept.send(place, [b"kept %d" % number + large])
                dropped.send(place, [b"dropped %d" % number + large])
            dropped.abort()
            ground.write(ground.topic, [b"plain"])
            kept.commit()
        ground.end()
        expected = [b"kept %d" % number + large for number in range(15)]
        assert client.follow(place)() == [*expected, b"plain"]

    def test_a_reader_that_follows_gets_what_is_committed_in_order(
        self, client: Transactor, ground: Ground
    ) -> None:
        place = ground.make()
        chance = random.Random(choose_seed())
        committed: set[bytes] = set()
        sent: list[bytes] = []
        read = client.follow(place)
        with ExitStack() as stack:
            stack.callback(ground.end)
            instances = [
                stack.enter_context(client.instance(f"{ground.topic}-{index}")) for index in range(2)
            ]
            for turn in range(20):
                for index, instance in enumerate(instances):
                    instance.begin()
                    instance.send(place, [b"%d of %d" % (turn, index)])
                    sent.append(b"%d of %d" % (turn, index))
                for index in chance.sample((0, 1), 2):
                    is_committed = chance.random() < 0.6
                    (instances[index].commit if is_committed else instances[index].abort)()
                    committed |= {b"%d of %d" % (turn, index)} if is_committed else set()
        assert read() == [value for value in sent if value in committed]

    def test_what_a_dead_producer_left_open_is_aborted_by_the_next(
        self, client: Transactor, ground: Ground
    ) -> None:
        place = ground.make()
        client.die_in_the_middle(ground.topic, place, b"of the dead")
        assert (ground.stable_offset(place), ground.end_offset(place)) == (0, 1)
        with client.instance(ground.topic) as instance:
            assert ground.stable_offset(place) == 2
            instance.begin()
            instance.send(place, [b"of the living"])
            instance.commit()
        ground.end()
        assert client.follow(place)() == [b"of the living"]
