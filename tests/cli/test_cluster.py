"""`tidelog cluster` against three brokers that are killed and started again, and against a single one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cli.conftest import Tidelog
from tests.cli.forks import Outcome
from tidelog.cli.cluster_health import find_problems
from tidelog.cli.cluster_partitions import NOBODY, Partition, Picture, take_picture
from tidelog.cli.nodes import Cluster as Nodes
from tidelog.cli.nodes import Node
from tidelog.testing import Cluster

_PATIENCE_S = 200.0
_GONE = Node(1, "127.0.0.1", 1, None, True)


@pytest.fixture(scope="module")
def trio() -> Iterator[Cluster]:
    with Cluster(3, racks=["attic", "cellar", "shed"]) as cluster:
        made = Tidelog(cluster.bootstrap_servers)("topic", "create", "orders", "--partitions", "3")
        assert made.exit_code == 0, made.error
        yield cluster


def _json(done: Outcome) -> Any:
    assert done.error == ""
    return json.loads(done.out)


def _kinds(done: Outcome) -> list[str]:
    return [problem["kind"] for problem in _json(done)["problems"]]


def _await(cluster: Cluster, holds: Callable[[Picture], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds(picture := take_picture(cluster.bootstrap_servers)):
        assert time.monotonic() < end, picture


def _all_in_sync(picture: Picture) -> bool:
    return len(picture.live) == 3 and not picture.where(lambda part: part.is_under_replicated)


def test_a_cluster_tells_of_its_brokers_and_partitions(trio: Cluster) -> None:
    tidelog = Tidelog(trio.bootstrap_servers)
    _await(trio, _all_in_sync)
    found = _json(tidelog("cluster", "describe", "--verbose", "--format", "json"))
    assert [(one["id"], one["rack"]) for one in found["brokers"]] == [
        (1, "attic"),
        (2, "cellar"),
        (3, "shed"),
    ]
    assert [(one["replicas"], one["in_sync_replicas"]) for one in found["brokers"]] == [(3, 3)] * 3
    assert sum(one["leaders"] for one in found["brokers"]) == 3
    assert [one["id"] for one in found["brokers"] if one["is_controller"]] == [found["controller_id"]]
    assert found["offline"] == found["under_min_in_sync"] == found["under_replicated"] == []
    for partition in found["partitions"]:
        assert partition["leader"] in partition["in_sync_replicas"]
        assert sorted(partition["replicas"]) == sorted(partition["in_sync_replicas"]) == [1, 2, 3]
        assert (partition["eligible_leader_replicas"], partition["min_in_sync_replicas"]) == ([], 2)
    shown = tidelog("cluster", "describe")
    assert f"cluster {found['cluster_id']}: 3 brokers, 1 topic, 3 partitions" in shown.out
    assert trio[2].bootstrap_servers in shown.out and "orders" not in shown.out
    assert "orders" in tidelog("cluster", "describe", "-v").out


def test_a_killed_broker_shows_and_gets_its_leadership_back(trio: Cluster) -> None:
    tidelog = Tidelog(trio.bootstrap_servers)
    tidelog("cluster", "elect", "--preferred")
    healthy = tidelog("cluster", "health")
    assert (healthy.exit_code, len(healthy.lines)) == (0, 1), healthy.out
    assert "is healthy: 3 brokers, 1 topic, 3 partitions" in healthy.out

    trio.kill(1)
    _await(trio, lambda picture: 1 not in picture.live and all(p.leader != 1 for p in picture.partitions))
    sick = tidelog("cluster", "health", "--format", "json")
    assert (sick.exit_code, _kinds(sick)) == (1, ["under_replicated", "broker_missing"])
    (behind, missing) = _json(sick)["problems"]
    assert (behind["remedy"], missing["broker_id"]) == ("start broker 1", 1)
    assert [found["partition"] for found in missing["partitions"]] == [0, 1, 2]
    shown = tidelog("cluster", "health")
    assert shown.exit_code == 1 and "broker 1 is not in the cluster, and 3 partitions" in shown.out
    refused = tidelog("cluster", "elect", "--preferred")
    assert (refused.exit_code, len(refused.error.splitlines())) == (1, 1)
    assert "broker 1, the preferred one, is offline" in refused.out

    trio.start(1)
    _await(trio, _all_in_sync)
    assert _kinds(tidelog("cluster", "health", "--format", "json")) == ["not_preferred"]
    elected = _json(tidelog("cluster", "elect", "--preferred", "--topic", "orders", "--format", "json"))
    assert [(one["partition"], one["error"]) for one in elected["partitions"]] == [(0, None)]
    assert tidelog("cluster", "health").exit_code == 0
    again = tidelog("cluster", "elect", "--preferred")
    assert again.out == "nothing to elect: all of 3 partitions are led by the preferred replica\n"


def test_an_unclean_election_needs_a_yes(trio: Cluster) -> None:
    tidelog = Tidelog(trio.bootstrap_servers)
    _await(trio, _all_in_sync)
    trio.kill(1)
    _await(trio, lambda picture: all(1 not in part.in_sync for part in picture.partitions))
    trio.kill(2)
    _await(trio, lambda picture: all(part.in_sync == (3,) for part in picture.partitions))
    assert _kinds(tidelog("cluster", "health", "--format", "json"))[0] == "under_min_in_sync"
    trio.kill(3)
    trio.start(1)
    _await(trio, lambda picture: picture.live == {1} and all(p.is_offline for p in picture.partitions))
    assert _kinds(tidelog("cluster", "health", "--format", "json"))[0] == "no_leader"

    one = ("cluster", "elect", "--unclean", "--topic", "orders", "--partition", "1")
    nobody, no = tidelog(*one), tidelog(*one, stdin=b"n\n")
    assert (nobody.exit_code, no.exit_code) == (1, 1)
    for words in ("orders-1: brokers that had every acknowledged record: 3", "lost for good", "--yes"):
        assert words in nobody.error
    assert "orders-0" not in nobody.error and "nothing was elected" in no.error
    assert all(part.is_offline for part in take_picture(trio.bootstrap_servers).partitions)

    assert tidelog(*one, stdin=b"y\n").exit_code == 0
    _await(trio, lambda picture: [part.leader for part in picture.partitions] == [NOBODY, 1, NOBODY])
    assert tidelog("cluster", "elect", "--unclean", "--yes").exit_code == 0
    _await(trio, lambda picture: [part.leader for part in picture.partitions] == [1, 1, 1])
    trio.start(2)
    trio.start(3)
    _await(trio, _all_in_sync)


def test_one_broker_is_a_healthy_cluster(tidelog: Tidelog, topic: str) -> None:
    found = _json(tidelog("cluster", "describe", "-v", "--format", "json"))
    assert topic in {partition["topic"] for partition in found["partitions"]}
    assert tidelog("cluster", "health").exit_code == 0
    assert tidelog("cluster", "elect", "--preferred", "--topic", topic).exit_code == 0


@pytest.mark.parametrize(
    ("words", "exit_code", "complaint"),
    [
        (["elect"], 2, "name one of --preferred and --unclean"),
        (["elect", "--preferred", "--unclean"], 2, "name one of --preferred and --unclean"),
        (["elect", "--preferred", "--partition", "0"], 2, "name it with --topic"),
        (["elect", "--unclean", "--topic", "no-such"], 1, "topic 'no-such' does not exist"),
        (["elect", "--preferred", "--topic", "TOPIC", "--partition", "7"], 1, "its last one is 0"),
    ],
)
def test_wrong_words_are_named(
    tidelog: Tidelog, topic: str, words: list[str], exit_code: int, complaint: str
) -> None:
    ended = tidelog("cluster", *[topic if word == "TOPIC" else word for word in words])
    assert (ended.exit_code, len(ended.error.splitlines())) == (exit_code, 1)
    assert complaint in ended.error


@pytest.mark.parametrize("verb", ["describe", "health", "elect"])
def test_a_cluster_that_is_not_there_is_one_line(offline: Tidelog, verb: str) -> None:
    ended = offline("cluster", verb, *["--preferred"] * (verb == "elect"))
    assert ended.exit_code == 1 and ended.error.startswith("tidelog: no broker at 127.0.0.1:1")
    assert len(ended.error.splitlines()) == 1


def test_a_partition_is_told_once_under_its_gravest_lack() -> None:
    offline = Partition("a", 0, NOBODY, 3, (1, 2, 3), (1,), (2,), 2)
    below = Partition("a", 1, 2, 3, (1, 2, 3), (2,), (), 2)
    behind = Partition("a", 2, 2, 3, (1, 2, 3), (2, 3), None, 2)
    small = Partition("b", 0, 2, 0, (2,), (2,), None, 2)
    picture = Picture(Nodes("it", NOBODY, (_GONE,)), (offline, below, behind, small))
    found = {problem.kind: [part.name for part in problem.partitions] for problem in find_problems(picture)}
    assert (found["no_leader"], found["under_min_in_sync"], found["under_replicated"]) == (
        ["a-0"],
        ["a-1"],
        ["a-2"],
    )
    assert "no_controller" in found and "broker_silent" not in found
