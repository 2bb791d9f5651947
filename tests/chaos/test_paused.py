"""Who was asleep (SIGSTOP) past its session and wakes believes what it believed: it must change nothing.

What comes first when it wakes was sent to it while it slept, so it is asked for what it could do before it
fell asleep: a controller to create a topic, a leader to take records with acks=all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.awaiting import await_that, let_pass
from tests.chaos.clients import Clients
from tests.chaos.machines import SESSION_MS, Machines
from tests.chaos.ports import unused_port
from tests.chaos.replicas import differing_replicas
from tests.chaos.truth import Led
from tests.chaos.workload import content
from tests.compat.cluster.raw import CREATE_TOPICS, PRODUCE, Api, part
from tests.differential.entities import frame_of, milliseconds, request
from tests.differential.plain import decode
from tests.differential.sides import Side, Silence
from tests.log.making import make_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.process import BrokerProcess

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS = "paused", 3
WAIT_S = 120.0
SETTINGS = {"leader.imbalance.check.interval.seconds": "3600"}
GROUPS: dict[str, dict[str, Any]] = {"consumer": {"group.protocol": "consumer"}}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with Machines(tmp_path, brokers=3, zookeepers=1, settings=SETTINGS) as started:
        started.create(TOPIC, PARTITIONS)
        yield started


class Asked:
    """A request that lies in the broker's socket until it can take it."""

    def __init__(self, machines: Machines, node_id: int, api: Api, /, **values: Any) -> None:
        self._api = api
        self._side = Side(f"broker {node_id}", machines.port(node_id))
        self._side.send(frame_of(*api, request(*api, **values)))

    def answer(self) -> Any:
        """kio's entity, or None if it was not answered."""
        reply = self._side.receive(WAIT_S)
        self._side.close()
        return None if isinstance(reply, Silence) else decode(*self._api, reply)


def put_to_sleep(machines: Machines, node_id: int) -> None:
    """Until ZooKeeper has given it up, and others do what it did."""
    machines.brokers[node_id].pause()
    await_that(lambda: node_id not in machines.truth.brokers(), f"{node_id} is still there", WAIT_S)
    await_that(
        lambda: all(each.leader not in (node_id, -1) for each in machines.truth.partitions()),
        "not all partitions have another leader",
        WAIT_S,
    )
    assert machines.truth.controller() != node_id


def wake(machines: Machines, node_id: int) -> None:
    """Until it is one of them again, under a new epoch."""
    before = epoch_of(machines, node_id)
    machines.brokers[node_id].resume()
    await_that(lambda: node_id in machines.truth.brokers(), f"{node_id} does not come back", WAIT_S)
    machines.await_whole(WAIT_S)
    assert epoch_of(machines, node_id) > before


def epoch_of(machines: Machines, node_id: int) -> int:
    node = machines.truth.node(f"/brokers/epochs/{node_id}")
    assert node is not None
    return int(node["epoch"])


def leaders(machines: Machines) -> list[tuple[str, int, int, int]]:
    return [_who(each) for each in machines.truth.partitions()]


def _who(led: Led) -> tuple[str, int, int, int]:
    return led.topic, led.partition, led.leader, led.leader_epoch


def times_controller(machines: Machines, node_id: int) -> int:
    """How often the broker has said that it is the controller."""
    return machines.brokers[node_id].stderr().count(" INFO  controller: epoch=")


def test_a_controller_that_wakes_is_none_and_what_it_was_asked_for_comes_to_what_it_answers(
    machines: Machines,
) -> None:
    slept = machines.truth.controller()
    epoch_before, times_before = machines.truth.controller_epoch(), times_controller(machines, slept)
    put_to_sleep(machines, slept)
    topic = part(CREATE_TOPICS, "CreatableTopic", name="late", num_partitions=1, replication_factor=3)
    asked = Asked(machines, slept, CREATE_TOPICS, topics=(topic,), timeout=milliseconds(5_000))
    controller = machines.truth.node("/controller")
    epoch = machines.truth.node("/controller-epoch"), machines.truth.version("/controller-epoch")
    led = leaders(machines)
    assert controller is not None and controller["epoch"] == epoch_before + 1
    wake(machines, slept)
    answer = asked.answer()
    assert machines.truth.node("/controller") == controller
    assert (machines.truth.node("/controller-epoch"), machines.truth.version("/controller-epoch")) == epoch
    assert [each for each in leaders(machines) if each[0] != "late"] == led
    assert times_controller(machines, slept) == times_before
    assert "session ended" in machines.brokers[slept].stderr()
    is_made = answer is not None and answer.topics[0].error_code == ErrorCode.none
    assert bool(machines.truth.partitions("late")) == is_made


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["", "and-still-does-not-hear-of-it"])
def test_a_leader_that_wakes_acknowledges_nothing_that_others_do_not_have(
    machines: Machines, is_cut_off: bool
) -> None:
    slept = machines.truth.partitions(TOPIC)[0].leader
    with Clients(
        machines.bootstrap_servers, TOPIC, PARTITIONS, {"plain": {}}, GROUPS, machines.directory
    ) as clients:
        clients.await_going()
        put_to_sleep(machines, slept)
        asked = [produce(machines, slept, number) for number in range(5)]
        clients.await_passed(clients.mark())
        led = leaders(machines)
        if is_cut_off:
            stay_unheard(machines, slept)
        wake(machines, slept)
        answers = [each.answer() for each in asked]
        assert leaders(machines) == led
        clients.finish()
        found = clients.judge()
        assert not any(found.values()) and clients.seen.problems == [], clients.witness.examples
        if is_cut_off:  # so it did take them for its own
            assert f"log truncated: partition={TOPIC}-0" in machines.brokers[slept].stderr()
        codes = [code_of(answer) for answer in answers if answer is not None]
        assert ErrorCode.none not in codes and late_count(machines, slept) == 0
    assert differing_replicas(machines) == []


@pytest.mark.parametrize("is_gone", [False, True], ids=["", "and-is-gone-again"])
def test_a_broker_that_was_replaced_while_it_slept_ends_when_it_wakes(
    machines: Machines, is_gone: bool
) -> None:
    slept = machines.truth.partitions(TOPIC)[0].leader
    put_to_sleep(machines, slept)
    old = machines.brokers[slept]
    places = {"listeners", "advertised.listeners", "log.dirs"}
    settings = {key: text for key, text in old.properties.items() if key not in places}
    addresses = {"listeners": f"CLIENTS://127.0.0.1:{unused_port()},PEERS://127.0.0.1:{unused_port()}"}
    with BrokerProcess(machines.directory / "replacement", settings | addresses) as replacement:
        await_that(lambda: slept in machines.truth.brokers(), "the replacement is not there", WAIT_S)
        if is_gone:
            replacement.kill()
            await_that(
                lambda: slept not in machines.truth.brokers(), "the replacement is still there", WAIT_S
            )
        led = leaders(machines)
        old.resume()
        await_that(lambda: not old.is_running, "the replaced broker goes on", WAIT_S)
        reason = "was registered from another directory" if is_gone else "is registered by the broker at"
        assert f"node.id {slept} {reason}" in old.stderr()
        assert not [each for each in leaders(machines) if each[2] == slept and each not in led]


def produce(machines: Machines, node_id: int, number: int) -> Asked:
    batch = bytes(make_batch(value=content("late", 0, number)))
    data = part(PRODUCE, "PartitionProduceData", index=0, records=batch)
    topic = part(PRODUCE, "TopicProduceData", name=TOPIC, partition_data=(data,))
    values = {"acks": -1, "timeout": milliseconds(5_000), "transactional_id": None}
    return Asked(machines, node_id, PRODUCE, topic_data=(topic,), **values)


def code_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def stay_unheard(machines: Machines, node_id: int) -> None:
    """It wakes and cannot know that it was given up: for two sessions it takes itself for the leader."""
    members = machines.all_zookeepers()
    machines.network.hold(*machines.between(members, [f"broker-{node_id}"]))
    machines.brokers[node_id].resume()
    let_pass(2 * SESSION_MS / 1_000)
    machines.network.heal()


def late_count(machines: Machines, node_id: int) -> int:
    """Records that only the sleeper was given, in what it has now: it has cut them off again."""
    folder = machines.data(node_id) / f"{TOPIC}-0"
    return sum(segment.read_bytes().count(b"late/0/") for segment in folder.glob("*.log"))
