"""`tidelog txn list | describe | find-hanging | abort` against a real broker, with transactions that hang."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from tests.cli.conftest import Tidelog
from tests.cli.test_completion import completed
from tests.cli.test_group import Here
from tests.testing import hanging
from tests.testing.watching import Watcher
from tidelog.cli import connection, txn_coordinators, txn_producers
from tidelog.cli import coordinators as coordinators_module
from tidelog.cli.nodes import Cluster, Node, describe_cluster
from tidelog.testing import Broker

NOBODY_S_PRODUCER = 4_001
AT_ONCE = ("--max-timeout", "0s")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def here(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", broker.bootstrap_servers)
    return Here(capsys, monkeypatch)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"txn-{uuid4().hex[:12]}"
    Watcher(broker.bootstrap_servers).create(name, partitions=2)
    return name


@pytest.fixture
def name() -> str:
    return f"id-{uuid4().hex[:12]}"


@pytest.fixture
def opened(broker: Broker, topic: str, name: str) -> Producer:
    """With one record in partition 1, and its transaction open."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": name,
        "transaction.timeout.ms": 600_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(60) == 0
    return producer


Hang = Callable[..., None]


@pytest.fixture
def hang(broker: Broker, topic: str) -> Hang:
    """Leaves an open transaction in partition 0 that no coordinator has."""

    def leave(producer_id: int = NOBODY_S_PRODUCER, epoch: int = 0, timestamp: int = 1_000) -> None:
        hanging.hang(broker, topic, producer_id, epoch, timestamp)

    return leave


def described(here: Here, name: str) -> dict[str, Any]:
    (found,) = json.loads(here("txn", "describe", name, "--format", "json").out)
    assert isinstance(found, dict)
    return found


def hanging_in(here: Here, topic: str, *words: str) -> list[dict[str, Any]]:
    shown = here("txn", "find-hanging", "--topic", topic, *words, "--format", "json")
    assert shown.exit_code == 0, shown.error
    found = json.loads(shown.out)["hanging"]
    assert isinstance(found, list)
    return found


@pytest.mark.usefixtures("opened")
def test_ids_are_listed_by_state_producer_age_and_pattern(here: Here, name: str) -> None:
    def listed(*words: str) -> list[dict[str, Any]]:
        found = json.loads(here("txn", "list", "--format", "json", *words).out)
        return [row for row in found if row["transactional_id"] == name]

    row = {"transactional_id": name, "coordinator": 1, "state": "Ongoing"}
    (found,) = listed()
    producer_id = found.pop("producer_id")
    assert found == row
    for words in (
        ["--state", "ongoing", "--state", "Empty"],
        ["--producer-id", str(producer_id)],
        ["--longer-than", "0s"],
        ["--pattern", f"{name[:-1]}."],
    ):
        assert len(listed(*words)) == 1, words
    for words in (
        ["--state", "CompleteCommit"],
        ["--producer-id", str(producer_id + 1_000)],
        ["--longer-than", "1h"],
        ["--pattern", name[:-1]],
    ):
        assert listed(*words) == [], words
    (line,) = [line for line in here("txn", "list").lines if name in line]
    assert line.split() == [name, "1", str(producer_id), "Ongoing"]


def test_a_description_has_the_producer_and_the_open_partitions(
    here: Here, topic: str, name: str, opened: Producer
) -> None:
    found = described(here, name)
    assert (found["state"], found["producer_epoch"], found["timeout_ms"]) == ("Ongoing", 0, 600_000)
    assert found["partitions"] == [{"topic": topic, "partition": 1}]
    assert found["coordinator"]["id"] == 1 and found["started_ms"] > 0
    shown = here("txn", "describe", name).out
    assert f"transactional id {name}\n  state        Ongoing\n" in shown
    assert "  open for     " in shown and f"  partitions   {topic} 1\n" in shown
    opened.commit_transaction(60)
    found = described(here, name)
    assert (found["state"], found["partitions"]) == ("CompleteCommit", [])
    assert "open for" not in here("txn", "describe", name).out


@pytest.mark.usefixtures("opened")
def test_an_id_that_does_not_exist_hides_no_other(here: Here, name: str) -> None:
    for names in ([f"{name}-not", name], [name, f"{name}-not"]):
        ended = here("txn", "describe", *names, "--format", "json")
        assert (ended.exit_code, len(json.loads(ended.out))) == (1, 1)
        assert ended.error == (
            f"tidelog: transactional id '{name}-not' does not exist; see 'tidelog txn list'\n"
        )


@pytest.mark.usefixtures("opened")
def test_an_open_transaction_of_a_coordinator_does_not_hang_and_is_not_aborted(
    here: Here, topic: str, name: str
) -> None:
    assert hanging_in(here, topic, *AT_ONCE) == []
    place = ("--topic", topic, "--partition", "1")
    for words in (
        ["--start-offset", "0"],
        ["--producer-id", str(described(here, name)["producer_id"]), "--producer-epoch", "0"],
    ):
        ended = here("txn", "abort", *place, *words)
        assert (ended.exit_code, ended.out) == (1, "")
        assert f"{topic}-1 does not hang: broker 1 has it as Ongoing" in ended.error
        assert f"of transactional id {name!r}; it is aborted 600 s after its start" in ended.error
    assert described(here, name)["state"] == "Ongoing"


def test_a_hanging_transaction_is_found_and_aborted(here: Here, topic: str, hang: Hang) -> None:
    hang()
    (found,) = hanging_in(here, topic)
    assert found == {
        "topic": topic,
        "partition": 0,
        "start_offset": 0,
        "producer_id": NOBODY_S_PRODUCER,
        "producer_epoch": 0,
        "coordinator_epoch": -1,
        "last_timestamp": 1_000,
        "transactional_id": None,
    }
    shown = here("txn", "find-hanging").out
    assert f"end one: tidelog txn abort --topic {topic} --partition 0 --start-offset 0" in shown
    assert here("consume", topic, "--exit", "--isolation", "committed").out == ""
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    aborted = json.loads(here("txn", "abort", *place, "--format", "json").out)["aborted"]
    assert aborted == {key: value for key, value in found.items() if key != "transactional_id"}
    assert hanging_in(here, topic, *AT_ONCE) == []
    again = here("txn", "abort", *place)
    assert (again.exit_code, again.error) == (
        1,
        f"tidelog: {topic}-0 has no open transaction that starts at offset 0: none is open there\n",
    )


def test_a_transaction_whose_id_has_ended_it_hangs(
    here: Here, topic: str, name: str, opened: Producer, hang: Hang
) -> None:
    opened.commit_transaction(60)
    owner = described(here, name)
    hang(owner["producer_id"], owner["producer_epoch"])
    (found,) = hanging_in(here, topic)
    assert (found["transactional_id"], found["producer_id"]) == (name, owner["producer_id"])
    words = ("--producer-id", str(owner["producer_id"]), "--producer-epoch", str(owner["producer_epoch"]))
    ended = here("txn", "abort", "--topic", topic, "--partition", "0", *words)
    assert ended.out == (
        f"aborted the transaction of producer {owner['producer_id']} in {topic}-0, from offset 0 on\n"
    )
    assert hanging_in(here, topic) == []


@pytest.mark.usefixtures("opened")
def test_a_transaction_hangs_in_a_partition_that_its_coordinator_does_not_name(
    here: Here, topic: str, name: str, hang: Hang
) -> None:
    owner = described(here, name)
    hang(owner["producer_id"], owner["producer_epoch"])
    (found,) = hanging_in(here, topic, *AT_ONCE)
    assert (found["partition"], found["transactional_id"]) == (0, name)


def test_one_with_records_of_the_future_may_hang_and_a_young_one_not(
    here: Here, topic: str, hang: Hang
) -> None:
    now_ms = time.time_ns() // 1_000_000
    hang(timestamp=now_ms + 1_800_000)
    hang(NOBODY_S_PRODUCER + 1, timestamp=now_ms - 1)
    assert [row["producer_id"] for row in hanging_in(here, topic)] == [NOBODY_S_PRODUCER]
    assert len(hanging_in(here, topic, *AT_ONCE)) == 2


def test_only_the_partitions_that_are_named_are_searched(here: Here, topic: str, hang: Hang) -> None:
    hang()
    assert len(hanging_in(here, f"{topic}:0")) == 1
    assert hanging_in(here, f"{topic}:1") == []
    assert len(hanging_in(here, topic, "--broker", "1")) == 1
    shown = here("txn", "find-hanging", "--topic", f"{topic}:1")
    assert shown.out == "no hanging transactions found in 1 partitions\n"


@pytest.mark.usefixtures("opened")
def test_what_ends_during_the_search_does_not_hang(
    here: Here, topic: str, opened: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_before(*asked: Any) -> Any:
        opened.commit_transaction(60)
        return txn_coordinators.owners_of(*asked)

    monkeypatch.setattr(txn_producers, "owners_of", end_before)
    assert hanging_in(here, topic, *AT_ONCE) == []


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Node:
    """A broker that has just died: the others count it in until its session ends."""
    node = Node(99, "127.0.0.1", 1, None, False)

    def describe(bootstrap_server: str) -> Cluster:
        found = describe_cluster(bootstrap_server)
        return replace(found, nodes=(node, *found.nodes))

    monkeypatch.setattr(txn_coordinators, "describe_cluster", describe)
    return node


@pytest.mark.usefixtures("opened", "dead")
def test_a_dead_broker_hides_no_id_of_another(here: Here, name: str) -> None:
    ended = here("txn", "list")
    assert ended.exit_code == 1 and name in ended.out
    assert ended.error.startswith("tidelog: broker 99 does not answer; its transactional ids are missing")


@pytest.mark.usefixtures("opened", "dead")
def test_a_transaction_that_a_dead_broker_may_have_is_not_said_to_hang(
    here: Here, topic: str, name: str, opened: Producer, hang: Hang
) -> None:
    hang()
    ended = here("txn", "find-hanging", "--topic", topic, *AT_ONCE)
    assert (ended.exit_code, ended.out) == (1, "no hanging transactions found in 2 partitions\n")
    assert f"of producer {NOBODY_S_PRODUCER} it cannot be said" in ended.error
    ended = here("txn", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert (ended.exit_code, ended.out) == (1, "")
    assert "nothing was written, as a coordinator may have that transaction: broker 99" in ended.error


@pytest.mark.usefixtures("opened")
def test_a_coordinator_that_is_not_led_may_have_any_transaction(
    here: Here, topic: str, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_leader(*asked: Any) -> Any:
        found = connection.cluster_metadata(*asked)
        found.topics["__transaction_state"].partitions[3].leader = -1
        return found

    hang()
    monkeypatch.setattr(txn_producers, "cluster_metadata", without_leader)
    ended = here("txn", "find-hanging", "--topic", topic)
    assert (ended.exit_code, ended.out) == (1, "no hanging transactions found in 2 partitions\n")
    assert "__transaction_state-3: no leader" in ended.error
    ended = here("txn", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert ended.exit_code == 1 and "nothing was written" in ended.error


@pytest.mark.usefixtures("hang")
def test_what_cannot_be_asked_of_a_coordinator_is_named(
    here: Here, name: str, opened: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = txn_coordinators.TransactionCoordinators._find
    away = Node(99, "127.0.0.1", 1, None, False)

    def find_dead(coordinators: Any, broker: Any, names: list[str]) -> dict[str, Any]:
        answers = find(coordinators, broker, names)
        coordinators._found |= {each: away for each in names if each.endswith("-dead")}
        return answers

    monkeypatch.setattr(txn_coordinators.TransactionCoordinators, "_find", find_dead)
    monkeypatch.setattr(coordinators_module, "RETRIES_MAX", 2)
    ended = here("txn", "describe", f"{name}-dead", name)
    assert ended.exit_code == 1 and f"transactional id {name}" in ended.out
    assert f"transactional id '{name}-dead': broker 99, which coordinates it, cannot be asked" in ended.error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["list", "--state", "open"], "--state"),
        (["list", "--longer-than", "long"], "--longer-than long: not a duration"),
        (["list", "--pattern", "("], "--pattern (: not a regular expression"),
        (["list", "--producer-id", "x"], "--producer-id"),
        (["describe"], "ID"),
        (["find-hanging", "--max-timeout", "x"], "--max-timeout x: not a duration"),
        (["find-hanging", "--topic", "a:b:c"], "--topic a:b:c: not a topic"),
        (["abort", "--topic", "t"], "--partition"),
        (["abort", "--topic", "t", "--partition", "-1", "--start-offset", "0"], "--partition"),
        (["abort", "--topic", "t", "--partition", "0"], "no transaction named: --start-offset, or"),
        (["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"], "no transaction named"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1", "--start-offset", "0"],
            "leave one out",
        ),
    ],
)
def test_a_bad_word_gets_one_line_and_code_2(here: Here, words: list[str], named: str) -> None:
    ended = here("txn", *words)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (2, "", 1), ended
    assert named in ended.error


def test_places_that_do_not_exist_are_named(here: Here, topic: str) -> None:
    def refused(*words: str) -> tuple[int, str]:
        ended = here("txn", *words)
        assert (ended.out, len(ended.error.splitlines())) == ("", 1)
        return ended.exit_code, ended.error

    offset = ("--start-offset", "0")
    assert refused("abort", "--topic", f"{topic}-not", "--partition", "0", *offset)[0] == 1
    code, told = refused("abort", "--topic", topic, "--partition", "2", *offset)
    assert (code, told) == (2, f"tidelog: --partition 2: topic {topic!r} has partitions 0 to 1\n")
    assert refused("find-hanging", "--topic", f"{topic}-not")[0] == 1
    assert refused("find-hanging", "--topic", f"{topic}:2")[0] == 2
    assert "broker 7 is not in the cluster" in refused("find-hanging", "--broker", "7")[1]


def test_an_epoch_that_a_later_coordinator_has_passed_is_refused(here: Here, topic: str, hang: Hang) -> None:
    place = ("--topic", topic, "--partition", "0")
    hang()
    assert here("txn", "abort", *place, "--start-offset", "0", "--coordinator-epoch", "7").exit_code == 0
    hang(epoch=1)
    words = (*place, "--start-offset", "2")
    ended = here("txn", "abort", *words, "--coordinator-epoch", "6")
    assert ended.exit_code == 1 and "leave out --coordinator-epoch" in ended.error
    assert here("txn", "abort", *words).exit_code == 0


@pytest.mark.usefixtures("opened")
def test_transactional_ids_are_completed(broker: Broker, name: str) -> None:
    assert completed(Tidelog(broker.bootstrap_servers), f"tidelog txn describe {name[:-1]}") == [name]
