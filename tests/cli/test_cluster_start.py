"""`tidelog cluster --brokers N --dir D` and `tidelog zookeeper`: real processes, gone when told to go."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.chaos.ports import unused_port
from tests.cli.conftest import COMMAND, Tidelog
from tests.testing.watching import Watcher
from tidelog.cli import cluster_start
from tidelog.cli.cluster_start import production_profile
from tidelog.cli.failure import Failure

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

STOP_SECONDS_MAX = 60


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, once it is ready, and what it is ready with; stopped by SIGTERM, exit code 0."""
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith(("tidelog cluster ready: ", "tidelog zookeeper ready: ")):
                break
        else:
            pytest.fail(f"it did not start: {process.stderr.read()}")
        yield process, "".join(lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS_MAX) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS_MAX)
        process.stdout.close()
        process.stderr.close()


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    seen = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True)
    return [line for line in seen.stdout.splitlines() if str(folder) in line]


def test_a_cluster_keeps_what_it_was_given_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    words = ("cluster", "--brokers", "3", "--dir", str(folder))
    with started(*words) as (_, told):
        assert len(re.findall(r"^tidelog ready: broker [123] at 127\.0\.0\.1:\d+$", told, re.MULTILINE)) == 3
        servers = told.split("tidelog cluster ready: ")[1].strip()
        assert len(servers.split(",")) == 3
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
        producer.produce("orders", b"kept", partition=0)
        assert producer.flush(60) == 0
        topic = AdminClient({"bootstrap.servers": servers}).list_topics("orders", timeout=30).topics["orders"]
        assert sorted(topic.partitions[0].replicas) == [1, 2, 3]
    assert processes_of(folder) == []
    with started(*words) as (_, told):
        servers = told.split("tidelog cluster ready: ")[1].strip()
        reader = Consumer(
            {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        reader.subscribe(["orders"])
        until = time.monotonic() + 200
        message = None
        while message is None or message.error():
            assert time.monotonic() < until, "nothing came"
            message = reader.poll(1)
        assert message.value() == b"kept"
        reader.close()
    assert processes_of(folder) == []


def test_a_broker_that_ended_is_started_again_and_zookeeper_serves_it(tmp_path: Path) -> None:
    folder = tmp_path / "the cluster"
    with started("cluster", "--brokers", "2", "--dir", str(folder), "--racks", "a,b") as (process, told):
        assert process.stdout is not None
        servers = dict(re.findall(r"^tidelog ready: broker (\d) at (\S+)$", told, re.MULTILINE))
        kill_broker(folder, 2)
        line = process.stdout.readline()
        assert line.startswith("broker 2 has ended; see ")
        words = shlex.split(line.partition("; start it again with: ")[2])
        assert words[:3] == ["tidelog", "serve", "--config"]
        with subprocess.Popen([*COMMAND, *words[1:]], stdout=subprocess.PIPE, text=True) as again:
            try:
                assert again.stdout is not None
                assert again.stdout.readline() == f"tidelog ready: broker 2 at {servers['2']}\n"
                kill_broker(folder, 1)
                assert process.stdout.readline().startswith("broker 1 has ended; see ")
                assert process.stdout.readline().startswith("all brokers started by this command have ended")
                here = Tidelog(servers["2"])
                watcher = Watcher(servers["2"])
                watcher.until(lambda: watcher.brokers() == {2}, "the session of broker 1 does not end")
                (left,) = json.loads(here("broker", "list", "--format", "json").out)
                assert (left["id"], left["rack"], left["is_controller"]) == (2, "b", True)
                assert here("topic", "create", "late", "--replication-factor", "1").exit_code == 0
                assert here("config", "get", "broker/2", "zookeeper.session.timeout.ms").out == "6000\n"
            finally:
                again.terminate()
    assert processes_of(folder) == []


def kill_broker(folder: Path, node_id: int) -> None:
    subprocess.run(["pkill", "-KILL", "-f", f"log.dirs={folder}/broker-{node_id}/data"], check=True)


def test_kazoo_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Failure, match=r"need kazoo, which is not installed; pip install 'kazoo"):
        cluster_start.start_cluster(1, tmp_path, 0, 1, [], {})


@pytest.fixture
def hears_of_the_terminal() -> Iterator[None]:
    """Also under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hears_of_the_terminal")
def test_an_ensemble_is_kept_as_large_as_it_was_and_a_closed_terminal_ends_all_of_it(
    tmp_path: Path, tidelog: Tidelog
) -> None:
    folder = tmp_path / "cluster"
    words = ("cluster", "--brokers", "1", "--dir", str(folder))
    with started(*words, "--zookeepers", "3") as (process, told):
        assert "tidelog cluster ready: " in told
        assert len([line for line in processes_of(folder) if "QuorumPeerMain" in line]) == 3
        subprocess.run(["pkill", "-KILL", "-f", f"{folder}/zookeeper-2/zoo.cfg"], check=True)
        assert process.stdout is not None
        assert re.match(
            r"ZooKeeper at 127\.0\.0\.1:\d+ has ended; see .*/zookeeper-2/", process.stdout.readline()
        )
        process.send_signal(signal.SIGHUP)
        assert process.wait(STOP_SECONDS_MAX) == 0
    assert processes_of(folder) == []
    ended = tidelog(*words)
    assert ended.exit_code == 1 and "start it with --zookeepers 3" in ended.error, ended.error


def test_an_ensemble_that_did_not_come_to_its_start_is_as_large_as_it_was_to_be(
    tmp_path: Path, tidelog: Tidelog
) -> None:
    (tmp_path / "zookeeper-1").mkdir()
    (tmp_path / "zookeeper-1" / "zoo.cfg").write_text("clientPort=1\nserver.1=a\nserver.2=b\nserver.3=c\n")
    ended = tidelog("cluster", "--brokers", "1", "--dir", str(tmp_path))
    assert ended.exit_code == 1 and "start it with --zookeepers 3" in ended.error, ended.error


def test_zookeeper_alone_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    port = unused_port()
    with started("zookeeper", "--dir", str(tmp_path / "zk"), "--port", str(port)) as (_, told):
        assert told == f"tidelog zookeeper ready: 127.0.0.1:{port}\n"
    assert processes_of(tmp_path / "zk") == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("cluster", "--brokers", "3"), "--dir"),
        (("cluster", "--dir", "x"), "--brokers"),
        (("cluster", "--brokers", "1", "--dir", "x", "--zookeepers", "2"), "--zookeepers 2"),
        (("cluster", "--brokers", "1", "--dir", "x", "-o", "nonsense"), "nonsense"),
        (("cluster", "--brokers", "2", "--dir", "x", "--racks", "a,"), "--racks a,"),
        (("zookeeper", "--dir", "x", "--server", "one"), "--server one"),
        (("zookeeper", "--dir", "x", "--id", "2", "--server", "1=a:1:2"), "--id 2"),
    ],
)
def test_a_bad_word_is_named(tidelog: Tidelog, words: tuple[str, ...], named: str) -> None:
    ended = tidelog(*words)
    assert ended.exit_code == 2 and named in ended.error and "Traceback" not in ended.error


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (5, "3", "2")])
def test_few_brokers_get_as_much_of_the_profile_as_they_can_have(
    brokers: int, replicas: str, in_sync: str
) -> None:
    profile = production_profile(brokers)
    topics = ("default", "offsets.topic", "transaction.state.log")
    assert [profile[f"{topic}.replication.factor"] for topic in topics] == [replicas] * 3
    assert profile["min.insync.replicas"] == in_sync


def test_a_port_that_somebody_has_is_told_as_that(tmp_path: Path, tidelog: Tidelog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = tidelog("zookeeper", "--dir", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert ended.exit_code == 1 and "Address already in use" in ended.error, ended.error
