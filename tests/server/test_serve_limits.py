"""Connections: how many, from where, and for how long they may say nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.server.wire_client import WireClient, fetch_values
from tests.wire.harness import FETCH
from tests.wire.test_handlers_configs import BROKER
from tests.wire.test_handlers_configs_alteration import INCREMENTAL_ALTER_CONFIGS, SET, resource
from tidelog.testing import Broker
from tidelog.testing.process import BrokerProcess


def connect_served(port: int) -> WireClient:
    """Try until the broker has noticed that there is room again."""
    while True:
        client = WireClient(port)
        try:
            client.greet()
            return client
        except (EOFError, ConnectionError):
            client.socket.close()


@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
def test_connections_beyond_the_limit_are_closed(setting: str) -> None:
    with Broker(**{setting: 3}) as broker:
        served = [connect_served(broker.port) for _ in range(3)]
        for _ in range(5):
            with WireClient(broker.port) as refused:
                assert refused.is_closed_by_peer()
        for client in served:
            client.greet()
        served.pop().socket.close()
        served.append(connect_served(broker.port))
        for client in served:
            client.greet()
            client.socket.close()


def set_overrides(client: WireClient, text: str) -> None:
    operation = ("max.connections.per.ip.overrides", SET, text)
    asked = (resource(1, BROKER, "", operation),)
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)
    assert answer.responses[0].error_code == 0


def test_an_address_may_have_a_limit_of_its_own_and_it_may_change() -> None:
    limits = {"max.connections.per.ip": 3, "max.connections.per.ip.overrides": "10.0.0.9:1, 127.0.0.1:2"}
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(**limits))
        first = stack.enter_context(connect_served(broker.port))
        for text, limit in (("", 2), ("127.0.0.1:4", 4), ("10.0.0.9:1", 3)):
            if text:
                set_overrides(first, text)
            with ExitStack() as others:
                for _ in range(limit - 1):
                    others.enter_context(connect_served(broker.port))
                with WireClient(broker.port) as refused:
                    assert refused.is_closed_by_peer()


def test_an_idle_connection_is_closed_and_one_that_waits_is_not() -> None:
    with Broker(connections_max_idle_ms=200) as broker, WireClient(broker.port) as waiting:
        waiting.create_topic("t")
        with WireClient(broker.port) as idle, WireClient(broker.port) as halfway:
            waiting.send(FETCH, 12, **fetch_values("t", 0, max_wait_ms=4_000))
            idle.greet()
            halfway.socket.sendall(b"\0\0\0\x40\0")
            assert idle.is_closed_by_peer()
            assert halfway.is_closed_by_peer()
        assert waiting.read_frame()[8:9] == b"\0"


def test_idleness_can_be_allowed() -> None:
    with Broker(connections_max_idle_ms=-1) as broker, WireClient(broker.port) as client:
        with WireClient(broker.port) as other:
            other.create_topic("t")
            other.fetch("t", 0, max_wait_ms=1_200)  # longer than the check for idle connections takes
        client.greet()


def serve(*words: str) -> subprocess.CompletedProcess[str]:
    settings = [part for word in words for part in ("-o", word)]
    return subprocess.run(
        [sys.executable, "-m", "tidelog.cli.main", "serve", *settings],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


LOOPBACK = "listeners=PLAINTEXT://127.0.0.1:0"
BAD_WORDS = [
    ("listeners", ("listeners=PLAINTEXT://0.0.0.0:0",)),
    ("listeners", ("listeners=PLAINTEXT://:0",)),
    ("listeners", ("listeners=PLAINTEXT://[::]:0",)),
    ("listeners", ("listeners=PLAINTEXT://192.0.2.1:0",)),
    ("listeners", ("listeners=PLAINTEXT://127.0.0.1:0,PLAINTEXT://0.0.0.0:0",)),
    ("listeners", ("listeners=PLAINTEXT://example.invalid:0",)),
    ("listeners", ("listeners=SSL://127.0.0.1:0",)),
    ("listeners", ("listeners=127.0.0.1:0",)),
    ("listeners", ("listeners=PLAINTEXT://127.0.0.1",)),
    ("listeners", ("listeners=PLAINTEXT://127.0.0.1:port",)),
    ("listeners", ("listeners=PLAINTEXT://127.0.0.1:65536",)),
    ("listeners", ("listeners=PLAINTEXT://127.0.0.1:\N{SUPERSCRIPT TWO}",)),
    ("listeners", ("listeners=PLAINTEXT://127.0.0.1:" + "9" * 5_000,)),
    ("listeners", ("listeners=PLAINTEXT://192.0.2.1:0", "allow.insecure.listeners=true")),
    ("listeners", ("listeners=PLAINTEXT://" + "x" * 300 + ":0", "allow.insecure.listeners=true")),
    ("listeners", ("listeners=",)),
    ("advertised.listeners", (LOOPBACK, "advertised.listeners=nonsense")),
    ("log.dirs", (LOOPBACK, "log.dirs=")),
    ("/dev/null/below", (LOOPBACK, "log.dirs=/dev/null/below")),
    ("log.dirs", (LOOPBACK, "log.dirs=twice,./twice")),
    ("no.such.setting", (LOOPBACK, "no.such.setting=1")),
    ("num.partitions", (LOOPBACK, "num.partitions=many")),
    ("num.partitions", (LOOPBACK, "num.partitions=0")),
    ("per.ip.overrides", (LOOPBACK, "max.connections.per.ip.overrides=localhost:5")),
    ("node.id", (LOOPBACK, "node.id=" + "9" * 5_000)),
    ("auto.create.topics.enable", (LOOPBACK, "auto.create.topics.enable=perhaps")),
    ("compression.type", (LOOPBACK, "compression.type=rar")),
    ("probe.listener", (LOOPBACK, "probe.listener=0.0.0.0:0")),
    ("probe.listener", (LOOPBACK, "probe.listener=:0")),
    ("probe.listener", (LOOPBACK, "probe.listener=127.0.0.1")),
    ("probe.listener", (LOOPBACK, "probe.listener=127.0.0.1:65536")),
    ("probe.listener", (LOOPBACK, "probe.listener=192.0.2.1:0", "allow.insecure.listeners=true")),
    ("operator.log.level", (LOOPBACK, "operator.log.level=loud")),
    ("operator.log.format", (LOOPBACK, "operator.log.format=xml")),
    ("without an equals sign", (LOOPBACK, "without an equals sign")),
    ("=value", (LOOPBACK, "=value")),
]


@pytest.mark.parametrize(("culprit", "words"), BAD_WORDS, ids=range(len(BAD_WORDS)))
def test_a_bad_setting_is_one_line_that_names_it_and_exit_2(
    culprit: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished = serve(*words)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    assert culprit in finished.stderr


def test_a_listener_for_others_needs_the_operator_s_word(tmp_path: Path) -> None:
    properties = {
        "listeners": "PLAINTEXT://0.0.0.0:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "allow.insecure.listeners": "true",
    }
    with BrokerProcess(tmp_path, properties) as broker, WireClient(broker.port) as client:
        client.greet()


@pytest.mark.parametrize(("backlog", "has_room"), [("1", False), ("64", True)])
def test_so_many_connections_wait_for_a_broker_that_does_not_take_them(
    tmp_path: Path, backlog: str, has_room: bool
) -> None:
    with BrokerProcess(tmp_path, {"socket.listen.backlog.size": backlog}) as broker, ExitStack() as stack:
        broker.pause()
        taken = 0
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.3)
            with suppress(TimeoutError):
                waiting.connect(("127.0.0.1", broker.port))
                taken += 1
        assert (taken == 8) == has_room, taken
