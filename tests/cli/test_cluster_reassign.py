"""`tidelog cluster reassign` against four brokers in this process: plans, moves, throttles, going back."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.cli.forks import Outcome
from tidelog.cli.cluster_moves import Disks, Move
from tidelog.cli.cluster_partitions import take_picture
from tidelog.cli.cluster_plan_file import plan_json, read_plan
from tidelog.cli.cluster_proposal import free_space_problems
from tidelog.cli.commands import run
from tidelog.cli.failure import BadWord
from tidelog.testing import Cluster

_PATIENCE_S = 200.0
_REASSIGN = ("cluster", "reassign")
_JSON = ("--format", "json")
_SIZE = 4_000_000  # more than is fetched at once, so that a throttle holds the rest back


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    with Cluster(4, racks=["attic", "cellar", "shed", "attic"], default_replication_factor=2) as cluster:
        yield cluster


class Command:
    """Runs commands in this process: there are many here, and to start one takes its time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._environment = {"TIDELOG_BOOTSTRAP_SERVER": bootstrap_servers}

    def __call__(self, *words: str, stdin: bytes = b"") -> Outcome:
        out, error = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self._environment),
            mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            redirect_stdout(out),
            redirect_stderr(error),
        ):
            exit_code = run(words)
        return Outcome(exit_code, out.getvalue(), error.getvalue())


@pytest.fixture(scope="module")
def tidelog(four: Cluster) -> Command:
    return Command(four.bootstrap_servers)


def _make(four: Cluster, topic: str, replicas: list[list[int]], plan: Path) -> None:
    """A topic with those replicas, wherever the cluster would have put them."""
    tidelog = Command(four.bootstrap_servers)
    made = tidelog("topic", "create", topic, "--partitions", str(len(replicas)), "--replication-factor", "2")
    assert made.exit_code == 0, made.error
    targets = {(topic, number): tuple(brokers) for number, brokers in enumerate(replicas)}
    plan.write_text(json.dumps(plan_json(targets)))
    moved = tidelog(*_REASSIGN, "--file", str(plan), "--yes")
    assert moved.exit_code == 0, moved.error
    assert _held(four, topic) == replicas


def _held(four: Cluster, topic: str) -> list[list[int]]:
    return [
        list(part.replicas) for part in take_picture(four.bootstrap_servers).partitions if part.topic == topic
    ]


def _plan(path: Path, topic: str, replicas: list[int]) -> str:
    path.write_text(json.dumps(plan_json({(topic, 0): tuple(replicas)})))
    return str(path)


def _json(done: Outcome) -> Any:
    assert done.error == ""
    return json.loads(done.out)


def _settings(tidelog: Command, resource: str) -> dict[str, str]:
    found = _json(tidelog("config", "describe", resource, *_JSON))["settings"]
    return {setting["key"]: setting["value"] for setting in found if "throttled" in setting["key"]}


def test_a_rebalance_is_shown_asked_for_and_carried_out(
    four: Cluster, tidelog: Command, tmp_path: Path
) -> None:
    _make(four, "uneven", [[1, 2], [1, 2], [1, 2], [1, 2]], tmp_path / "plan")
    words = (*_REASSIGN, "--rebalance", "--topic", "uneven")
    proposed = _json(tidelog(*words, "--dry-run", *_JSON))
    assert proposed["version"] == 1 and len(proposed["partitions"]) >= 3
    assert "(dry run: nothing moved)" in tidelog(*words, "--dry-run").out
    nobody, no = tidelog(*words), tidelog(*words, stdin=b"n\n")
    assert "not confirmed; --yes moves without asking" in nobody.error
    assert "nothing was moved" in no.error and (nobody.exit_code, no.exit_code) == (1, 1)
    assert _held(four, "uneven") == [[1, 2]] * 4

    done = tidelog(*words, stdin=b"y\n")
    assert done.exit_code == 0 and "copies to make" in done.out and "moved: " in done.out, done.error
    held = _held(four, "uneven")
    assert Counter(broker for replicas in held for broker in replicas) == dict.fromkeys((1, 2, 3, 4), 2)
    assert Counter(replicas[0] for replicas in held) == dict.fromkeys((1, 2, 3, 4), 1)
    assert all(set(replicas) != {1, 4} for replicas in held)  # both are in the attic
    assert [part["replicas"] for part in proposed["partitions"]] == [
        held[part["partition"]] for part in proposed["partitions"]
    ]
    assert tidelog(*words, "--yes").lines == ["nothing to move: all replicas are where they should be"]
    only = _json(tidelog(*words, "--brokers", "2,3", "--dry-run", *_JSON))
    assert {broker for part in only["partitions"] for broker in part["replicas"]} == {2, 3}


def test_a_throttled_move_is_listed_watched_and_cancelled(
    four: Cluster, tidelog: Command, tmp_path: Path
) -> None:
    _make(four, "slow", [[1, 2]], tmp_path / "before")
    filled = tidelog("produce", "slow", stdin=b"\n".join([b"x" * 999] * (_SIZE // 1000)))
    assert filled.exit_code == 0, filled.error
    plan = _plan(tmp_path / "plan", "slow", [1, 3])
    begun = tidelog(*_REASSIGN, "--file", plan, "--throttle", "1", "--yes", "--no-wait")
    assert begun.exit_code == 0 and "--watch" in begun.out and "--cancel" in begun.out, begun.error
    assert _settings(tidelog, "topic/slow") == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert set(_settings(tidelog, "broker/3").values()) == {"1"}

    moving = {"topic": "slow", "partition": 0, "from": [1, 2], "to": [1, 3]}
    assert _json(tidelog(*_REASSIGN, "--list", *_JSON))["partitions"] == [moving]
    assert re.search(r"[KM]iB of 3\.[89] MiB", tidelog(*_REASSIGN, "--list").out)
    verified = tidelog(*_REASSIGN, "--verify", "--file", plan, *_JSON)
    assert verified.exit_code == 1 and _json(verified)["partitions"][0]["state"] == "moving"
    busy = tidelog(*_REASSIGN, "--rebalance", "--topic", "slow", "--yes")
    assert busy.exit_code == 1 and "slow-0 is moving already" in busy.error
    _assert_interrupted(tidelog)

    cancelled = tidelog(*_REASSIGN, "--cancel", "--topic", "slow")
    assert cancelled.exit_code == 0 and "the throttle is removed" in cancelled.out, cancelled.error
    assert _held(four, "slow") == [[1, 2]]
    assert _settings(tidelog, "topic/slow") == _settings(tidelog, "broker/3") == {}
    verified = tidelog(*_REASSIGN, "--verify", "--file", plan)
    assert verified.exit_code == 1 and "not moved" in verified.out
    assert tidelog(*_REASSIGN, "--verify").lines == ["nothing is moving"]


def test_a_second_throttled_plan_lets_the_first_one_be_throttled(
    four: Cluster, tidelog: Command, tmp_path: Path
) -> None:
    _make(four, "twice", [[1, 2], [1, 2]], tmp_path / "before")
    _make(four, "all", [[1, 2]], tmp_path / "before")
    key = "leader.replication.throttled.replicas"
    assert tidelog("config", "set", "topic/all", f"{key}=*").exit_code == 0
    for number in (0, 1):
        plan = tmp_path / f"plan-{number}"
        plan.write_text(json.dumps(plan_json({("twice", number): (1, 3 + number)})))
        words = ("--throttle", "1", "--yes", "--no-wait")
        begun = tidelog(*_REASSIGN, "--file", str(plan), *words)
        assert begun.exit_code == 0, begun.error
    assert _settings(tidelog, "topic/twice") == {
        "leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2",
        "follower.replication.throttled.replicas": "0:3,1:4",
    }
    begun = tidelog(*_REASSIGN, "--file", _plan(tmp_path / "plan", "all", [1, 3]), *words)
    assert begun.exit_code == 0 and _settings(tidelog, "topic/all")[key] == "*", begun.error
    watched = tidelog(*_REASSIGN, "--watch")
    assert watched.exit_code == 0 and _settings(tidelog, "topic/twice") == {}, watched.error


def _assert_interrupted(command: Command) -> None:
    """Ctrl-C while it is watched, at the first look."""
    with mock.patch("tidelog.cli.cluster_progress.list_moves", side_effect=KeyboardInterrupt):
        stopped = command(*_REASSIGN, "--watch")
    assert stopped.exit_code == 130
    assert "goes on by itself" in stopped.error and "--watch" in stopped.error and "--cancel" in stopped.error


def test_a_throttle_goes_when_all_has_arrived(four: Cluster, tidelog: Command, tmp_path: Path) -> None:
    _make(four, "limited", [[1, 2]], tmp_path / "before")
    plan = _plan(tmp_path / "plan", "limited", [2, 3])
    done = tidelog(*_REASSIGN, "--file", plan, "--throttle", "100000000", "--yes", *_JSON)
    assert done.exit_code == 0, done.error
    found = json.loads(done.out)
    assert found["is_done"] and found["partitions"][0]["error"] is None
    assert _settings(tidelog, "topic/limited") == _settings(tidelog, "broker/3") == {}
    assert tidelog(*_REASSIGN, "--verify", "--file", plan).lines == ["done: 1 partition as planned"]


def test_a_broker_is_emptied_stopped_and_unregistered(
    four: Cluster, tidelog: Command, tmp_path: Path
) -> None:
    _make(four, "leaving", [[4, 2], [3, 4]], tmp_path / "before")
    words = (*_REASSIGN, "--decommission", "4", "--yes")
    emptied = tidelog(*words)
    assert emptied.exit_code == 0 and "it can be stopped" in emptied.out, emptied.error
    assert not take_picture(four.bootstrap_servers).on(4)
    held = _held(four, "leaving")
    assert 2 in held[0] and 3 in held[1] and all(len(set(replicas)) == 2 for replicas in held)
    four.stop(4)
    gone = tidelog(*words)
    assert gone.exit_code == 0 and "broker 4 holds no replicas now and is unregistered" in gone.out
    assert "is not in the cluster" in tidelog(*words).out
    four.start(4)
    assert 4 in take_picture(four.bootstrap_servers).live


def test_a_broker_that_is_down_is_not_planned_around(four: Cluster, tidelog: Command, tmp_path: Path) -> None:
    _make(four, "held", [[1, 4], [2, 4]], tmp_path / "before")
    four.kill(4)
    end = time.monotonic() + _PATIENCE_S
    while 4 in take_picture(four.bootstrap_servers).live:
        assert time.monotonic() < end
    refused = tidelog(*_REASSIGN, "--rebalance", "--yes")
    assert refused.exit_code == 1 and "--decommission 4" in refused.error
    unable = tidelog(*_REASSIGN, "--file", _plan(tmp_path / "plan", "held", [4, 2]), "--dry-run")
    assert unable.exit_code == 0, unable.error  # it has a replica there already
    lost = tidelog(*_REASSIGN, "--decommission", "4", "--yes")
    assert lost.exit_code == 0 and "broker 4 holds no replicas now" in lost.out, lost.error
    assert all(4 not in replicas for replicas in _held(four, "held"))
    four.start(4)


@pytest.mark.parametrize(
    ("words", "exit_code", "complaint"),
    [
        ([], 2, "name one of --file, --rebalance, --decommission"),
        (["--rebalance", "--decommission", "1"], 2, "cannot be combined"),
        (["--rebalance", "--list"], 2, "cannot be combined"),
        (["--list", "--throttle", "1"], 2, "--throttle cannot be combined with --list"),
        (["--list", "--brokers", "1"], 2, "needs --rebalance"),
        (["--decommission", "1", "--topic", "t"], 2, "leave out --topic"),
        (["--rebalance", "--brokers", "1,x"], 2, "not a list of ids"),
        (["--file", "no-such-file"], 2, "No such file"),
        (["--rebalance", "--topic", "no-such"], 1, "topic 'no-such' does not exist"),
        (
            ["--rebalance", "--brokers", "1,9"],
            1,
            "broker 9 is not in the cluster; its brokers are: 1, 2, 3, 4",
        ),
    ],
)
def test_wrong_words_are_named(tidelog: Command, words: list[str], exit_code: int, complaint: str) -> None:
    ended = tidelog(*_REASSIGN, *words)
    assert (ended.exit_code, len(ended.error.splitlines())) == (exit_code, 1)
    assert complaint in ended.error


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("[]", "not a plan"),
        ('{"version": 2, "partitions": []}', "version 2 is not supported"),
        ('{"version": 1, "partitions": []}', "no partitions in it"),
        ('{"partitions": [{"partition": 0, "replicas": [1]}]}', "entry 1: no topic"),
        ('{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "'0' is not a partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "no list of replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "twice"),
    ],
)
def test_a_wrong_plan_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BadWord, match=complaint) as refused:
        read_plan(path)
    assert str(path) in str(refused.value)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = {("a", 0): (3, 1), ("b", 12): (2,)}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_json(plan)))
    assert read_plan(path) == plan


def test_a_broker_without_room_is_told() -> None:
    moves = [Move("a", 0, (1,), (2,), 700), Move("a", 1, (1,), (2, 3), 700)]
    told = list(free_space_problems(moves, Disks(free={2: 1000, 3: 1000})))
    assert told == ["broker 2 would get 1.4 KiB and has 1000 B free"]
