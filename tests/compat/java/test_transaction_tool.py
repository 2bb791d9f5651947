"""Kafka's `TransactionsCommand`, 4.3: it lists, describes, ends and finds; and it came true.

Transactions that hang are made in a broker of this process: a Kafka that asks its coordinators has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.compat.confluent.transactor import ConfluentTransactor
from tests.compat.java.jvm import Jvm
from tests.compat.java.shell import Shell
from tests.compat.java.transaction_tool import TOOL, described, listed, rows
from tests.compat.java.transactor import JavaInstance, JavaTransactor
from tests.compat.transactional import FENCED, Ground
from tests.compat.transactor import LAST, Ended
from tests.testing.hanging import hang
from tidelog.testing import Broker

TIMEOUT_MS = 600_000
NOBODY_S_PRODUCER = 4_001
OTHER_PRODUCER = 4_002


@pytest.fixture
def shell(jvm: Jvm, bootstrap: str) -> Shell:
    return Shell(jvm, bootstrap)


@pytest.fixture
def ground(bootstrap: str) -> Ground:
    return Ground(bootstrap, f"tool-{uuid4().hex[:12]}")


@pytest.fixture
def opened(ground: Ground, jvm: Jvm, tmp_path: Path) -> Iterator[JavaInstance]:
    """With one record in partition 1 of two, and its transaction open."""
    ground.make(2)
    client = JavaTransactor(ground.bootstrap, jvm, tmp_path)
    with client.instance(ground.topic, TIMEOUT_MS) as instance:
        instance.begin()
        instance.send((ground.topic, 1), [b"open"])
        yield instance


@pytest.mark.usefixtures("opened")
def test_ids_are_listed_by_age_and_pattern(shell: Shell, ground: Ground) -> None:
    (row,) = listed(shell, ground.topic)
    assert (row["Coordinator"], row["TransactionState"]) == ("1", "Ongoing")
    assert int(row["ProducerId"]) >= 0
    assert listed(shell, ground.topic, "--transactional-id-pattern", f"{ground.topic[:-1]}.") == [row]
    assert listed(shell, ground.topic, "--transactional-id-pattern", ground.topic[:-1]) == []
    assert listed(shell, ground.topic, "--duration-filter", "1") == [row]
    assert listed(shell, ground.topic, "--duration-filter", "3600000") == []


def test_a_description_names_the_partitions_until_the_end(
    shell: Shell, ground: Ground, opened: JavaInstance
) -> None:
    row = described(shell, ground.topic)
    assert (row["CoordinatorId"], row["TransactionState"]) == ("1", "Ongoing")
    assert (row["TransactionTimeoutMs"], row["TopicPartitions"]) == (str(TIMEOUT_MS), f"{ground.topic}-1")
    assert int(row["CurrentTransactionStartTimeMs"]) > 0
    (producer,) = rows(shell, "describe-producers", "--topic", ground.topic, "--partition", "1")
    assert (producer["ProducerId"], producer["ProducerEpoch"]) == (row["ProducerId"], row["ProducerEpoch"])
    assert producer["CurrentTransactionStartOffset"] == "0"
    opened.commit()
    ground.watcher.until(
        lambda: described(shell, ground.topic)["TransactionState"] == "CompleteCommit", "it does not end"
    )
    assert described(shell, ground.topic).get("TopicPartitions", "") == ""
    unknown = shell.fail(TOOL, "describe", "--transactional-id", f"{ground.topic}-not")
    assert "failed because the ID could not be found" in unknown


def test_an_open_transaction_is_terminated_and_its_producer_fenced(
    shell: Shell, ground: Ground, opened: JavaInstance
) -> None:
    place = (ground.topic, 1)
    assert ground.stable_offset(place) == 0
    shell.run(TOOL, "forceTerminateTransaction", "--transactionalId", ground.topic)
    ground.watcher.until(lambda: ground.stable_offset(place) == 2, "it does not end")
    with pytest.raises(Ended) as ended:
        opened.commit()
    assert ended.value.code in FENCED
    ground.end(2)
    assert ConfluentTransactor(ground.bootstrap).follow(place)() == []


@pytest.mark.usefixtures("opened")
def test_a_transaction_that_its_coordinator_has_does_not_hang(shell: Shell, ground: Ground) -> None:
    searched = ("--topic", ground.topic, "--max-transaction-timeout", "0")
    assert rows(shell, "find-hanging", *searched) == []


def test_hanging_transactions_are_found_and_aborted(jvm: Jvm) -> None:
    with Broker() as broker:
        shell, ground = Shell(jvm, broker.bootstrap_servers), Ground(broker.bootstrap_servers, "hanging")
        place = ground.make(2)
        client = ConfluentTransactor(ground.bootstrap)
        with client.instance("ended") as instance:
            instance.begin()
            instance.send(place, [b"ended"])
            instance.commit()
        hang(broker, ground.topic, NOBODY_S_PRODUCER)
        ground.write(ground.topic, [b"behind"])
        searched = ("--topic", ground.topic)
        (found,) = rows(shell, "find-hanging", *searched)
        assert (found["Topic"], found["Partition"]) == (ground.topic, "0")
        assert (found["ProducerId"], found["ProducerEpoch"]) == (str(NOBODY_S_PRODUCER), "0")
        assert (found["StartOffset"], ground.stable_offset(place)) == ("2", 2)
        assert rows(shell, "find-hanging", "--broker-id", "1") == [found]
        assert rows(shell, "find-hanging", *searched, "--partition", "1") == []
        named = ("--topic", ground.topic, "--partition", "0")
        assert "Could not find any open transactions" in shell.fail(
            TOOL, "abort", *named, "--start-offset", "1"
        )
        shell.run(TOOL, "abort", *named, "--start-offset", "2")
        assert rows(shell, "find-hanging", *searched) == []
        hang(broker, ground.topic, OTHER_PRODUCER, epoch=3)
        words = ("--producer-id", str(OTHER_PRODUCER), "--producer-epoch", "3", "--coordinator-epoch", "0")
        shell.run(TOOL, "abort", *named, *words)
        assert rows(shell, "find-hanging", *searched) == []
        ground.write(ground.topic, [LAST])
        assert client.follow(place)() == [b"ended", b"behind"]
