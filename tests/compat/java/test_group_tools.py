"""Kafka's own tools with groups, 4.3: `kafka-consumer-groups` in all its ways, and tools that join one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.compat.client import Sent, eventually
from tests.compat.java.jvm import Jvm
from tests.compat.java.members import RANGE, UNIFORM, Group, Kind
from tests.compat.java.operator import JavaOperator
from tests.compat.java.shell import CONFIGS, GROUPS, PACKAGE, Shell, table

RECORD_COUNT = 10
SECOND_MS = 1000
FIRST_MS = 1_700_000_000_000
TIMED = [Sent(b"value", timestamp_ms=FIRST_MS + index * SECOND_MS) for index in range(RECORD_COUNT)]
STABLE = "Stable"

both_protocols = pytest.mark.parametrize("kind", [RANGE, UNIFORM], ids=lambda kind: kind.name)


@pytest.fixture
def shell(jvm: Jvm, group_bootstrap: str) -> Shell:
    return Shell(jvm, group_bootstrap)


@pytest.fixture
def topic(operator: JavaOperator, fresh_name: str) -> str:
    """Two partitions; the first has ten records, a second apart."""
    operator.create_topic(fresh_name, 2, {"retention.ms": "-1"})
    operator.produce(fresh_name, TIMED)
    return fresh_name


@pytest.fixture
def empty(operator: JavaOperator, group: Group, topic: str) -> str:
    """A group without members that has committed 4 in the first partition."""
    operator.admin("alter_group_offsets", group=group.name, offsets=[(topic, 0, 4, "")])
    return group.name


class Tool:
    """`kafka-consumer-groups` about one group."""

    def __init__(self, shell: Shell, group: str) -> None:
        self._shell = shell
        self._group = group

    def describe(self, *options: str) -> list[dict[str, str]]:
        return table(self._shell.run(GROUPS, "--describe", "--group", self._group, *options))

    def reset(self, *options: str) -> dict[tuple[str, int], int]:
        lines = self._shell.run(GROUPS, "--reset-offsets", "--group", self._group, *options)
        return {(row["TOPIC"], int(row["PARTITION"])): int(row["NEW-OFFSET"]) for row in table(lines)}


@both_protocols
def test_a_group_with_members_is_listed_and_described(
    shell: Shell, group: Group, topic: str, kind: Kind
) -> None:
    tool, kind_name = Tool(shell, group.name), "Classic" if kind.is_classic else "Consumer"
    group.start("one", topic, kind)
    group.await_committed({(topic, 0): RECORD_COUNT})
    assert group.name in shell.run(GROUPS, "--list")
    states = table(shell.run(GROUPS, "--list", "--state", STABLE))
    assert {"GROUP": group.name, "STATE": STABLE} in states
    types = table(shell.run(GROUPS, "--list", "--type", kind_name.lower()))
    assert {"GROUP": group.name, "TYPE": kind_name} in types
    other = shell.run(GROUPS, "--list", "--type", "Consumer" if kind.is_classic else "Classic")
    assert not any(group.name in line for line in other)
    assert not any(group.name in line for line in shell.run(GROUPS, "--list", "--state", "Empty"))
    rows = {row["PARTITION"]: row for row in tool.describe()}
    shown = {name: rows["0"][name] for name in ("TOPIC", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")}
    assert shown == {"TOPIC": topic, "CURRENT-OFFSET": "10", "LOG-END-OFFSET": "10", "LAG": "0"}
    assert (rows["1"]["CURRENT-OFFSET"], rows["1"]["CLIENT-ID"]) == ("-", "one")
    (state,) = tool.describe("--state")
    assert (state["STATE"], state["#MEMBERS"]) == (STABLE, "1")
    assert state["ASSIGNMENT-STRATEGY"] == ("range" if kind.is_classic else "uniform")
    (member,) = tool.describe("--members", "--verbose")
    assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("one", "2")
    assert f"{topic}:0,1" in " ".join(member.values())
    refused = "\n".join(
        shell.run(GROUPS, "--reset-offsets", "--group", group.name, "--all-topics", "--to-earliest")
    )
    assert "only be reset if the group" in refused


def test_offsets_are_reset_every_way(shell: Shell, empty: str, topic: str, tmp_path: Path) -> None:
    tool, first, whole = Tool(shell, empty), ("--topic", f"{topic}:0"), ("--topic", topic)
    middle = datetime.fromtimestamp((FIRST_MS + 7 * SECOND_MS) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    ways: list[tuple[tuple[str, ...], int]] = [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "6"), 6),
        (("--to-offset", "99"), 10),
        (("--to-datetime", middle), 7),
        (("--by-duration", "PT1S"), 10),
        (("--shift-by", "3"), 7),
        (("--shift-by", "-99"), 0),
        (("--to-current",), 4),
    ]
    for way, expected in ways:
        assert (way, tool.reset(*first, *way, "--dry-run")) == (way, {(topic, 0): expected})
    assert tool.describe()[0]["CURRENT-OFFSET"] == "4", "a dry run changed something"
    assert tool.reset(*whole, "--to-latest", "--execute") == {(topic, 0): 10, (topic, 1): 0}
    assert {row["PARTITION"]: row["CURRENT-OFFSET"] for row in tool.describe()} == {"0": "10", "1": "0"}
    exported = shell.run(GROUPS, "--reset-offsets", "--group", empty, *whole, "--to-offset", "3", "--export")
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(line for line in exported if line))
    assert sorted(plan.read_text().splitlines()) == [f"{topic},0,3", f"{topic},1,0"]
    assert tool.reset("--from-file", str(plan), "--execute") == {(topic, 0): 3, (topic, 1): 0}
    assert tool.describe("--offsets")[0]["LAG"] == "7"


def test_groups_and_offsets_are_deleted(shell: Shell, empty: str, topic: str) -> None:
    delete = ("--delete-offsets", "--group", empty)
    deleted = table(shell.run(GROUPS, *delete, "--topic", f"{topic}:0"))
    assert deleted == [{"TOPIC": topic, "PARTITION": "0", "STATUS": "Successful"}]
    unknown = "\n".join(shell.run(GROUPS, *delete, "--topic", "no-such-topic"))
    assert "UnknownTopicOrPartitionException" in unknown
    said = "\n".join(shell.run(GROUPS, "--delete", "--group", empty))
    assert f"Deletion of requested consumer groups ('{empty}') was successful." in said
    assert empty not in shell.run(GROUPS, "--list")
    again = "\n".join(shell.run(GROUPS, "--delete", "--group", empty))
    assert "GroupIdNotFoundException: The group id does not exist." in again


def test_a_group_with_members_keeps_its_offsets_and_itself(shell: Shell, group: Group, topic: str) -> None:
    group.start("one", topic, RANGE)
    group.await_committed({(topic, 0): RECORD_COUNT})
    said = "\n".join(shell.run(GROUPS, "--delete", "--group", group.name))
    assert "GroupNotEmptyException: The group is not empty." in said
    said = "\n".join(shell.run(GROUPS, "--delete-offsets", "--group", group.name, "--topic", topic))
    assert "GroupSubscribedToTopicException" in said


def test_settings_of_a_group_are_described_and_changed(shell: Shell, group: Group) -> None:
    entity = ("--entity-name", group.name)
    with shell.configured("groups", *entity, add="consumer.session.timeout.ms=50000"):
        assert "consumer.session.timeout.ms=50000" in shell.configs("groups", *entity)
        assert group.name in shell.configs("groups")
    assert "consumer.session.timeout.ms=50000" not in shell.configs("groups", *entity)
    unknown = ("--alter", "--entity-type", "groups", *entity, "--add-config", "no.such.key=1")
    assert "InvalidConfigurationException" in shell.fail(CONFIGS, *unknown)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_reads_by_a_group_and_goes_on_where_it_was(
    shell: Shell, group: Group, topic: str, protocol: str
) -> None:
    consume = (f"{PACKAGE}.consumer.ConsoleConsumer", "--topic", topic, "--group", group.name)
    options = ("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000")
    shown = ("--formatter-property", "print.offset=true", "--formatter-property", "print.value=false")
    read = shell.run(*consume, *options, *shown, "--from-beginning", "--max-messages", "6")
    assert read == [f"Offset:{index}" for index in range(6)]
    assert Tool(shell, group.name).describe()[0]["CURRENT-OFFSET"] == "6"
    assert shell.run(*consume, *options, *shown, "--max-messages", "4") == [
        f"Offset:{index}" for index in range(6, 10)
    ]


def test_consumer_perf_reads_what_was_written(shell: Shell, group: Group, topic: str) -> None:
    options = ("--topic", topic, "--group", group.name, "--num-records", str(RECORD_COUNT))
    heads, *rows = shell.run(f"{PACKAGE}.ConsumerPerformance", *options, "--timeout", "20000")
    shown = dict(zip(heads.split(", "), rows[-1].split(", "), strict=True))
    assert (shown["data.consumed.in.nMsg"], shown["data.consumed.in.MB"]) == ("10", "0.0000")


def test_end_to_end_latency_is_measured(shell: Shell, topic: str) -> None:
    options = ("--topic", topic, "--num-records", "20", "--producer-acks", "all", "--record-size", "50")
    said = shell.run(f"{PACKAGE}.EndToEndLatency", *options)
    assert any(re.match(r"Avg latency: [\d.]+ ms", line) for line in said)
    assert any(re.match(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", line) for line in said)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_tells_what_befell_it(
    shell: Shell, group: Group, topic: str, protocol: str
) -> None:
    options = ("--topic", topic, "--group-id", group.name, "--max-messages", str(RECORD_COUNT))
    said = "\n".join(
        shell.run(
            f"{PACKAGE}.VerifiableConsumer",
            *options,
            "--group-protocol",
            protocol,
            "--reset-policy",
            "earliest",
        )
    )
    for event in ("startup_complete", "partitions_assigned", "records_consumed", "offsets_committed"):
        assert f'"name":"{event}"' in said
    eventually(
        lambda: Tool(shell, group.name).describe()[0]["CURRENT-OFFSET"] == "10", "the commit is not shown"
    )
