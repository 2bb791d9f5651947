"""`tidelog group list | describe | lag` against a real broker, with groups of both protocols."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.conftest import Tidelog
from tests.cli.forks import Outcome
from tests.cli.test_completion import completed
from tidelog.cli import coordinators as coordinators_module
from tidelog.cli import group_coordinators
from tidelog.cli.commands import run
from tidelog.cli.group_coordinators import GroupCoordinators
from tidelog.cli.nodes import Cluster, Node, describe_cluster
from tidelog.cli.remote import RemoteBroker

PROTOCOLS = ("classic", "consumer")
ASSIGNORS = {"classic": "range", "consumer": "uniform"}


class Here:
    """Runs commands in this process: there are many, and a process of its own costs each a second."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, stdin: bytes = b"") -> Outcome:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capsys.readouterr()
        exit_code = run(words)
        return Outcome(exit_code, *self._capsys.readouterr())


@pytest.fixture
def here(bootstrap_servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", bootstrap_servers)
    return Here(capsys, monkeypatch)


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:12]}"


def make_topic(bootstrap_servers: str, partitions: int) -> str:
    """A topic that keeps records of any age."""
    name = f"cli-{uuid4().hex[:12]}"
    new = NewTopic(name, num_partitions=partitions, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([new])[name].result()
    return name


@pytest.fixture(scope="session")
def wide(bootstrap_servers: str) -> str:
    """A topic of three partitions; the first has ten records."""
    name = make_topic(bootstrap_servers, partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(10):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def member(bootstrap_servers: str, wide: str, group: str, protocol: str) -> Iterator[Consumer]:
    """A static member that has all partitions of the topic and has committed 4 in the first."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "group.instance.id": "porter",
        "client.id": "lobby",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([wide])
    for _ in range(300):
        consumer.poll(0.1)
        if len(consumer.assignment()) == 3:
            break
    consumer.commit(offsets=[TopicPartition(wide, 0, 4)], asynchronous=False)
    yield consumer
    consumer.close()


def commit(bootstrap_servers: str, group: str, topic: str, **offsets: int) -> None:
    """Commit as a consumer without members does; the keywords are p0, p1, …"""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    places = [TopicPartition(topic, int(name[1:]), offset) for name, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def lag_of(here: Here, *words: str) -> list[dict[str, Any]]:
    shown = here("group", "lag", *words, "--format", "json")
    assert shown.exit_code == 0, shown.error
    return [json.loads(line) for line in shown.lines]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.usefixtures("member")
def test_a_group_is_listed_by_its_type_and_its_state(here: Here, group: str, protocol: str) -> None:
    def listed(*words: str) -> list[dict[str, Any]]:
        found = json.loads(here("group", "list", "--format", "json", *words).out)
        return [row for row in found if row["group"] == group]

    row = {"group": group, "type": protocol, "state": "Stable", "protocol_type": "consumer"}
    assert listed() == [row]
    assert listed("--type", protocol, "--state", "stable") == [row]
    assert listed("--state", "empty", "--state", "STABLE") == [row]
    assert listed("--state", "empty") == []
    assert listed("--type", next(other for other in PROTOCOLS if other != protocol)) == []
    (line,) = [line for line in here("group", "list").lines if group in line]
    assert line.split() == [group, protocol, "Stable", "consumer"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_description_has_the_members_and_their_partitions(
    here: Here, wide: str, group: str, protocol: str, member: Consumer
) -> None:
    (described,) = json.loads(here("group", "describe", group, "--format", "json").out)
    assert (described["group"], described["type"], described["state"]) == (group, protocol, "Stable")
    assert described["assignor"] == ASSIGNORS[protocol]
    assert (described["epoch"] is None) == (protocol == "classic")
    assert described["coordinator"]["port"] > 0
    (found,) = described["members"]
    assert found["member_id"] == member.memberid()
    assert (found["instance_id"], found["client_id"], found["subscription"]) == ("porter", "lobby", [wide])
    assert found["partitions"] == [{"topic": wide, "partition": number} for number in range(3)]
    shown = here("group", "describe", group).out
    assert f"group {group}\n  state        Stable\n" in shown
    assert f"{wide} 0–2" in shown


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lag_is_the_way_from_the_committed_offset_to_the_end(
    here: Here, wide: str, group: str, member: Consumer
) -> None:
    rows = lag_of(here, group)
    assert [(row["topic"], row["partition"]) for row in rows] == [(wide, number) for number in range(3)]
    assert [row["committed_offset"] for row in rows] == [4, None, None]
    assert [row["end_offset"] for row in rows] == [10, 0, 0]
    assert [row["lag"] for row in rows] == [6, None, None]
    assert {row["member_id"] for row in rows} == {member.memberid()}
    shown = here("group", "lag", group)
    (line,) = [line for line in shown.lines if line.split()[:2] == [wide, "0"]]
    assert line.split() == [wide, "0", "4", "10", "6", "porter"]
    (total,) = [line for line in shown.lines if line.split()[:1] == ["total"]]
    assert total.split() == ["total", "6"]


def test_a_group_without_members_has_lag_too(
    here: Here, bootstrap_servers: str, wide: str, group: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=3, p2=0)
    rows = lag_of(here, group, group)
    assert [(row["partition"], row["lag"], row["member_id"]) for row in rows] == [(0, 7, None), (2, 0, None)]
    assert here("group", "lag", group).lines[0] == f"group {group}: Empty, 0 members"


def test_the_lag_of_several_groups_has_a_sum(
    here: Here, bootstrap_servers: str, wide: str, group: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=3)
    commit(bootstrap_servers, f"{group}-b", wide, p0=1)
    assert here("group", "lag", group, f"{group}-b").lines[-1] == "2 groups, lag 16"
    everything = lag_of(here, "--all")
    assert [row["lag"] for row in everything if row["group"].startswith(group)] == [7, 9]


def test_offsets_of_a_topic_that_is_gone_have_no_end(
    here: Here, bootstrap_servers: str, wide: str, group: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=3)
    other = make_topic(bootstrap_servers, partitions=1)
    commit(bootstrap_servers, group, other, p0=0)
    assert here("topic", "delete", other).exit_code == 0
    rows = {row["topic"]: row for row in lag_of(here, group)}
    assert rows[wide]["lag"] == 7
    assert rows.get(other, {"end_offset": None, "lag": None})["end_offset"] is None


def test_a_watched_lag_is_told_again_and_again(
    tidelog: Tidelog, bootstrap_servers: str, wide: str, group: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=3)
    words = ("group", "lag", group, "--watch", "--interval", "0.1", "--format", "json")
    with tidelog.start(*words) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["lag"] == 7
            commit(bootstrap_servers, group, wide, p0=9)
            while json.loads(process.stdout.readline())["lag"] != 1:
                pass
        finally:
            process.kill()


@pytest.mark.parametrize(
    "words",
    [["describe"], ["lag"], ["delete"], ["delete", "--topic", "t"], ["reset", "--all-topics", "--to-latest"]],
)
def test_a_group_that_does_not_exist_is_named(here: Here, group: str, words: list[str]) -> None:
    ended = here("group", words[0], group, *words[1:])
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (1, "", 1)
    assert f"group {group!r} does not exist; see 'tidelog group list'" in ended.error


@pytest.mark.parametrize("verb", ["describe", "lag"])
def test_a_group_that_does_not_exist_hides_no_other(
    here: Here, bootstrap_servers: str, wide: str, group: str, verb: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=0)
    for names in ([f"{group}-not", group], [group, f"{group}-not"]):
        ended = here("group", verb, *names, "--format", "json")
        assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
        assert f"group '{group}-not' does not exist" in ended.error
        shown = json.loads(ended.out)
        assert (shown[0] if verb == "describe" else shown)["group"] == group
        assert group in here("group", verb, *names).out


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Node:
    """A broker that has just died: the others count it in until its session ends."""
    node = Node(99, "127.0.0.1", 1, None, False)

    def describe(bootstrap_server: str) -> Cluster:
        found = describe_cluster(bootstrap_server)
        return replace(found, nodes=(node, *found.nodes))

    monkeypatch.setattr(group_coordinators, "describe_cluster", describe)
    return node


@pytest.mark.parametrize("verb", ["describe", "lag"])
def test_a_dead_broker_hides_no_group_of_another(
    here: Here, bootstrap_servers: str, wide: str, group: str, dead: Node, verb: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=0)
    ended = here("group", verb, group, f"{group}-not")
    assert ended.exit_code == 1 and group in ended.out
    assert ended.error == f"tidelog: group '{group}-not' does not exist; see 'tidelog group list'\n"


def test_a_list_without_the_groups_of_a_dead_broker_says_so(
    here: Here, bootstrap_servers: str, wide: str, group: str, dead: Node
) -> None:
    commit(bootstrap_servers, group, wide, p0=0)
    for words in (["list"], ["lag", "--all"]):
        ended = here("group", *words)
        assert ended.exit_code == 1 and group in ended.out
        assert ended.error.startswith("tidelog: broker 99 does not answer; its groups are missing")


def test_a_coordinator_that_is_dead_hides_no_group_of_another(
    here: Here,
    bootstrap_servers: str,
    wide: str,
    group: str,
    dead: Node,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit(bootstrap_servers, group, wide, p0=0)
    find = GroupCoordinators._find

    def find_dead(coordinators: GroupCoordinators, broker: RemoteBroker, names: list[str]) -> dict[str, Any]:
        answers = find(coordinators, broker, names)
        coordinators._found |= {name: dead for name in names if name.endswith("-dead")}
        return answers

    monkeypatch.setattr(GroupCoordinators, "_find", find_dead)
    monkeypatch.setattr(coordinators_module, "RETRIES_MAX", 2)
    ended = here("group", "describe", f"{group}-dead", group)
    assert ended.exit_code == 1 and f"group {group}" in ended.out
    assert f"group '{group}-dead': broker 99, which coordinates it, cannot be asked" in ended.error


def test_names_of_groups_are_completed(
    tidelog: Tidelog, bootstrap_servers: str, wide: str, group: str
) -> None:
    commit(bootstrap_servers, group, wide, p0=0)
    assert completed(tidelog, f"tidelog group describe {group[:-1]}") == [group]
