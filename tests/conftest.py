"""What every test process has in common, and all that it starts: JVMs of Spark that are quick to start, and
tests shared out to processes as `distribution` says.

Such a JVM lives for seconds, beside other processes on two cores: there the second compiler and a collector
of many threads cost more than they bring.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chaos.ports import unused_port
from tests.distribution import Turns, place_of
from tidelog.cli.zookeeper_process import ZooKeeperMissing, find_command
from tidelog.testing import Broker
from tidelog.testing.cluster import _Member
from tidelog.testing.process import BrokerProcess

# Hundreds of Python processes are started, brokers and Spark's workers above all. Without what the first of
# them has compiled, each would spend half of its start on compiling the package once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
# A run in the background of a shell inherits that Ctrl-C is ignored, and would hand that on to every command.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def ports_that_stay_free() -> Iterator[None]:
    """Whatever is killed comes back to a port that no connection and no other process of tests got meanwhile;
    and no client that somebody left behind asks a new broker for the topics of an old one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.cli.zookeeper_process.free_port", unused_port)
        patch.setattr("bench.peers.kafka.free_port", unused_port)
        patch.setattr(BrokerProcess, "start", _started_on_its_own_port(BrokerProcess.start))
        patch.setattr(_Member, "start", _start_member)
        yield


def _started_on_its_own_port(start: Callable[[BrokerProcess], None]) -> Callable[[BrokerProcess], None]:
    def start_there(broker: BrokerProcess) -> None:
        broker.port = broker.port or unused_port()
        start(broker)

    return start_there


def _start_member(member: _Member) -> None:
    listeners = member._properties["listeners"]
    member._properties["listeners"] = re.sub(r":0(?=,|$)", lambda _: f":{unused_port()}", listeners)
    Broker.start(member)


@pytest.fixture(scope="session")
def needs_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Who needs it is skipped with the reason where it cannot be had."""
    try:
        find_command(tmp_path_factory.getbasetemp())
    except ZooKeeperMissing as missing:
        pytest.skip(str(missing))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Turns:
    return Turns(config, log)
