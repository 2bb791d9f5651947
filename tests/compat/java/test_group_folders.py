"""`__consumer_offsets` as files: Kafka's dump tool reads ours, and each broker takes up the other's groups.

The same story is told to both brokers, so that what they write of it can be compared.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench.peers.kafka import Kafka

from tests.compat.broker import running_broker
from tests.compat.java.jvm import Jvm
from tests.compat.java.members import RANGE, UNIFORM, Group
from tests.compat.java.operator import JavaOperator
from tests.compat.java.tools import dump, files_of, replace_partition, running_kafka

PARTITIONS = (
    50  # as many as Kafka makes if nobody says otherwise: each finds the groups that the other put there
)
OFFSETS = [f"__consumer_offsets-{index}" for index in range(PARTITIONS)]
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
SESSION_MS = 45_000
GROUPS = ("plain", "classic", "consumer")
RECORD = re.compile(r"key: (\{.*\}) payload: (\{.*\}|<DELETE>)$")

Survey = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """A broker that was told the story and stopped: its folder, and what it said of its groups."""

    log_dir: Path
    survey: Survey


def tell(operator: JavaOperator, history: Path) -> Survey:
    """Groups of all kinds; static members, so that they are still in the group when the broker stops."""
    operator.create_topic("t", 2, {})
    for kind, name in ((RANGE, "deleted"), (RANGE, "classic"), (UNIFORM, "consumer")):
        group = Group(name, operator.bootstrap, operator.jvm, history / name, SESSION_MS)
        group.start("static", "t", kind, settings={"group.instance.id": "place"})
        group.start("dynamic", "t", kind)
        group.await_balance(2)
        assert group.commit("static", ("t", 0, 1, name)) is None
        group.close("dynamic")
        group.await_balance(2)
        group.close("static", operation="LEAVE_GROUP" if name == "deleted" else "DEFAULT")
    operator.admin("delete_groups", groups=["deleted"])
    rows = [("t", 0, 3, "note"), ("t", 1, 5, "")]
    operator.admin("alter_group_offsets", group="plain", offsets=rows)
    operator.admin("delete_group_offsets", group="plain", partitions=[("t", 1)])
    return survey(operator)


def survey(operator: JavaOperator) -> Survey:
    """Only what does not lean on ids of topics: those are each broker's own."""
    described = {name: operator.admin("describe_group", group=name) for name in GROUPS}
    return {
        "groups": operator.admin("groups", states=[], types=[]),
        "offsets": operator.admin("group_offsets", groups=dict.fromkeys(GROUPS), stable=True),
        "members": {
            name: [(member["client"], member["instance"]) for member in group["members"]]
            for name, group in described.items()
        },
    }


@pytest.fixture(scope="module")
def ours(kafka: Kafka, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("ours")
    with running_broker(folder / "logs", SETTINGS) as bootstrap:
        return Told(folder / "logs", tell(JavaOperator(bootstrap, jvm), folder))


@dataclass(frozen=True)
class Records:
    """The lines of the dump: the last value of each key, and the kinds of all."""

    last: dict[str, str]
    kinds: set[tuple[str, ...]]


def records_of(log_dir: Path) -> Records:
    files = [path for name in OFFSETS for path in files_of(log_dir / name, ".log") if path.stat().st_size]
    dumped = dump(files, "--offsets-decoder")
    assert dumped.complaints == ()
    pairs = [(found[1], found[2]) for line in dumped.lines if (found := RECORD.search(line))]
    assert len(pairs) == sum(line.startswith("| offset: ") for line in dumped.lines)
    return Records(dict(pairs), {kind_of(key, value) for key, value in pairs})


def places_of(log_dir: Path) -> dict[str, bool]:
    """Which partitions have records."""
    return {name: any(path.stat().st_size for path in files_of(log_dir / name, ".log")) for name in OFFSETS}


def kind_of(key: str, value: str) -> tuple[str, ...]:
    """The type of the key, then the version and the fields of the value."""
    if value == "<DELETE>":
        return json.loads(key)["type"], value
    content = json.loads(value)
    return json.loads(key)["type"], content["version"], *sorted(content["data"])


def test_kafkas_tool_decodes_every_record(ours: Told) -> None:
    records = records_of(ours.log_dir)
    note = records.last['{"type":"1","data":{"group":"plain","topic":"t","partition":0}}']
    assert (json.loads(note)["data"]["offset"], json.loads(note)["data"]["metadata"]) == (3, "note")
    assert records.last['{"type":"1","data":{"group":"plain","topic":"t","partition":1}}'] == "<DELETE>"
    assert records.last['{"type":"2","data":{"group":"deleted"}}'] == "<DELETE>"
    members = json.loads(records.last['{"type":"2","data":{"group":"classic"}}'])["data"]["members"]
    assert [member["groupInstanceId"] for member in members] == ["place"]
    (member,) = [value for key, value in records.last.items() if '"type":"5"' in key and value != "<DELETE>"]
    assert json.loads(member)["data"]["instanceId"] == "place"


def test_groups_stand_after_a_restart(ours: Told, jvm: Jvm) -> None:
    with running_broker(ours.log_dir, SETTINGS) as bootstrap:
        assert survey(JavaOperator(bootstrap, jvm)) == ours.survey


def test_kafka_and_tidelog_take_up_the_groups_of_each_other(
    ours: Told, kafka: Kafka, jvm: Jvm, tmp_path: Path
) -> None:
    site = kafka.prepare(tmp_path / "node", SETTINGS)
    with running_kafka(site) as bootstrap:
        theirs = tell(JavaOperator(bootstrap, jvm), tmp_path)
    assert theirs == ours.survey
    kept = tmp_path / "kept"
    for name in OFFSETS:
        shutil.copytree(site.log_directory / name, kept / name)
    assert records_of(ours.log_dir).kinds == records_of(kept).kinds
    assert places_of(ours.log_dir) == places_of(kept)
    house = tmp_path / "house"
    with running_broker(house, SETTINGS) as bootstrap:
        operator = JavaOperator(bootstrap, jvm)
        operator.create_topic("t", 2, {})
        operator.admin("alter_group_offsets", group="any", offsets=[("t", 0, 0, "")])
    for name in OFFSETS:
        replace_partition(house / name, kept / name)
    with running_broker(house, SETTINGS) as bootstrap:
        assert survey(JavaOperator(bootstrap, jvm)) == theirs
    for name in OFFSETS:
        replace_partition(site.log_directory / name, ours.log_dir / name)
    with running_kafka(site, ["t"]) as bootstrap:
        assert survey(JavaOperator(bootstrap, jvm)) == ours.survey
