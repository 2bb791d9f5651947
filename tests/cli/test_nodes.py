"""What the commands say of a cluster that answers and cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.scripted import Asked, ScriptedBroker
from tidelog.cli import addresses, commands, nodes, remote

NOBODY = -1


class Headless(ScriptedBroker):
    """A broker of a cluster whose controller is gone."""

    def __init__(self) -> None:
        super().__init__(describe_cluster=self.tell_cluster)
        self.controller_id = NOBODY

    def tell_cluster(self, asked: Asked) -> bytes | None:
        node = asked.make(
            "DescribeClusterBroker", broker_id=1, host="127.0.0.1", port=self.port, rack=None, is_fenced=False
        )
        return asked.respond(
            error_code=0,
            error_message=None,
            endpoint_type=asked.decode().endpoint_type,
            cluster_id="c",
            controller_id=self.controller_id,
            brokers=(node,),
            cluster_authorized_operations=0,
        )


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Headless]:
    monkeypatch.setattr(nodes, "CONTROLLER_WAIT_S", 0.0)
    with Headless() as broker:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", broker.bootstrap_servers)
        yield broker


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "tides"),
        ("topic", "delete", "tides"),
        ("topic", "alter", "tides", "--partitions", "3"),
        ("config", "set", "topic/tides", "retention.ms=1"),
    ],
)
def test_a_cluster_without_a_controller_is_said_to_have_none(
    headless: Headless, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert commands.run(words) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert (
        f"the broker at {headless.bootstrap_servers} answers, but the cluster has no controller" in said.err
    )


def test_a_broker_that_takes_a_request_and_is_silent_is_not_said_to_be_missing(
    headless: Headless, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(remote, "ANSWER_TIMEOUT_S", 0.2)
    headless.answer("describe_cluster", lambda _: b"")
    assert commands.run(["broker", "list"]) == 1
    said = capsys.readouterr().err
    assert f"the broker at {headless.bootstrap_servers} did not answer the request within" in said
