"""A rolling upgrade: brokers of two versions under load, and `kafka-features` when the last one is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.clients import Clients
from tests.chaos.machines import THIS_VERSION, Machines
from tests.compat.java.jvm import Jvm
from tests.compat.java.shell import PACKAGE, Shell
from tidelog.testing.process import BrokerDidNotStart

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("needs_zookeeper"), pytest.mark.timeout(600)]

TOPIC, PARTITIONS = "upgraded", 3
RAISE = (f"{PACKAGE}.FeatureCommand", "upgrade", "--feature", "tidelog.version=3")
LATER = "tests.chaos.later"


def test_brokers_are_upgraded_one_by_one_and_the_level_raised_when_all_know_it(
    jvm: Jvm, tmp_path: Path
) -> None:
    groups = {"consumer": {"group.protocol": "consumer"}}
    with Machines(tmp_path, 3, 1) as machines:
        machines.create(TOPIC, PARTITIONS)
        shell = Shell(jvm, machines.bootstrap_servers)
        with Clients(
            machines.bootstrap_servers, TOPIC, PARTITIONS, {"plain": {}}, groups, tmp_path
        ) as clients:
            clients.await_going()
            for node_id, broker in machines.brokers.items():
                assert "only supports versions 1-2" in shell.fail(*RAISE)
                mark = clients.mark()
                assert broker.stop() == 0
                broker.version = LATER
                machines.start([node_id])
                machines.await_whole()
                clients.await_passed(mark)
            assert shell.run(*RAISE) == ["tidelog.version was upgraded to 3."]
            assert clients.failures == []
            clients.finish()
            assert not any(clients.judge().values()), clients.witness.examples
        broker = machines.brokers[1]
        assert broker.stop() == 0
        broker.version = THIS_VERSION
        with pytest.raises(BrokerDidNotStart, match=r"level 3 of tidelog\.version, which this version"):
            machines.start([1])
