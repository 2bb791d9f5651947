"""What an operator changed takes effect while the broker runs and stands after its end.

Unlike the contracts these look behind the broker (its files) or end it, so they are about Tidelog alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.client import MESSAGE_TOO_LARGE, Sent, eventually
from tests.compat.contract import PLAIN
from tests.compat.operator import CLUSTER_DEFAULT, OFFSET_OUT_OF_RANGE, Change, Kind, Surveyor, is_refused
from tests.compat.stored import fetch_error
from tidelog.testing.process import BrokerProcess

OperatorAt = Callable[[str], Surveyor]
SEGMENT_SIZE = 1 << 20
MEGABYTE = [Sent(b"v" * 100_000)] * 10
NODE = "1"


class Lasting:
    """`operator_at` makes the client under test for a broker's address."""

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_what_was_changed_stands_after_the_end(
        self, operator_at: OperatorAt, tmp_path: Path, end: str
    ) -> None:
        with BrokerProcess(tmp_path, {"node.id": NODE}) as broker:
            operator = operator_at(broker.bootstrap_servers)
            _change(operator)
            before = _state(operator)
            starts = tmp_path / "data" / "log-start-offset-checkpoint"
            eventually(
                lambda: starts.exists() and "t 0 5" in starts.read_text(), "the new start is not written"
            )
            getattr(broker, end)()
            broker.start()
            assert _state(operator_at(broker.bootstrap_servers)) == before
            _hold(operator_at(broker.bootstrap_servers), broker.bootstrap_servers)

    def test_smaller_segments_and_retention_take_effect_at_once(
        self, operator_at: OperatorAt, tmp_path: Path
    ) -> None:
        settings = {"log.retention.check.interval.ms": "100", "log.dirs": str(tmp_path / "data")}
        with BrokerProcess(tmp_path, settings) as broker:
            operator = operator_at(broker.bootstrap_servers)
            operator.create_topic("t", 1, {})
            for _ in range(3):
                operator.produce("t", MEGABYTE)
            assert len(_segments(tmp_path)) == 1
            operator.alter("TOPIC", "t", ("SET", "segment.bytes", str(SEGMENT_SIZE)))
            for _ in range(3):
                operator.produce("t", MEGABYTE)
            assert len(_segments(tmp_path)) >= 3
            retention: Change = ("SET", "retention.bytes", str(SEGMENT_SIZE))
            operator.alter("TOPIC", "t", ("SET", "file.delete.delay.ms", "0"), retention)
            eventually(lambda: operator.edges("t")[0] >= 30, "the first segments are still there")
            eventually(
                lambda: len(_segments(tmp_path)) <= 3, "the files of the first segments are still there"
            )
            assert operator.edges("t")[1] == 60


def _change(operator: Surveyor) -> None:
    operator.create_topic("t", 1, {"retention.ms": "-1"})
    operator.produce("t", PLAIN)
    operator.grow("t", 3)
    operator.delete_records("t", 5)
    operator.alter(
        "TOPIC", "t", ("SET", "max.message.bytes", "10000"), ("APPEND", "cleanup.policy", "compact")
    )
    operator.alter("BROKER", NODE, ("SET", "log.index.interval.bytes", "5000"))
    if operator.knows_cluster_default:
        operator.alter("BROKER", CLUSTER_DEFAULT, ("SET", "log.retention.ms", "7200000"))
    operator.alter("CLIENT_METRICS", "m", ("SET", "interval.ms", "60000"))
    operator.alter("GROUP", "g", ("SET", "consumer.session.timeout.ms", "50000"))
    operator.set_credential("alice", "SCRAM-SHA-256", 4096, "secret")


def _state(operator: Surveyor) -> dict[str, Any]:
    named: list[tuple[Kind, str]] = [
        ("TOPIC", "t"),
        ("BROKER", NODE),
        ("CLIENT_METRICS", "m"),
        ("GROUP", "g"),
    ]
    state: dict[str, Any] = {f"{kind} {name}": operator.settings(kind, name) for kind, name in named}
    del state[f"BROKER {NODE}"]["listeners"]  # port 0 became the port that it keeps
    return state | {
        "cluster": operator.cluster(),
        "partitions": [(each.index, each.replicas) for each in operator.partitions("t")],
        "edges": operator.edges("t"),
        "credentials": operator.credentials(),
        "features": operator.features(),
        "resources": operator.resources(),
    }


def _hold(operator: Surveyor, bootstrap: str) -> None:
    """What was described is also what is done."""
    topic = operator.settings("TOPIC", "t")
    assert topic["max.message.bytes"].value == "10000"
    assert topic["index.interval.bytes"].source == "DYNAMIC_BROKER_CONFIG"
    assert is_refused(MESSAGE_TOO_LARGE, operator.produce, "t", [Sent(b"v" * 20_000, b"key")])
    assert fetch_error(bootstrap, "t", 4) == OFFSET_OUT_OF_RANGE
    assert [record.offset for record in operator.consume("t", 15)] == list(range(5, 20))


def _segments(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "t-0").glob("*.log"))
