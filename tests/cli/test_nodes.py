"""What the commands say of a cluster that answers and cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.scripted import Asked, ScriptedBroker
from tidelog.cli import addresses, commands, nodes, remote
from tidelog.cli.failure import Failure

NOBODY = -1


class Headless(ScriptedBroker):
    """A broker of a cluster whose controller is gone."""

    def __init__(self) -> None:
        super().__init__(describe_cluster=self.tell_cluster)
        self.controller_id = NOBODY
        self.others: dict[int, int] = {}  # ports by id

    def tell_cluster(self, asked: Asked) -> bytes | None:
        rows = tuple(
            asked.make(
                "DescribeClusterBroker",
                broker_id=node_id,
                host="127.0.0.1",
                port=port,
                rack=None,
                is_fenced=False,
            )
            for node_id, port in ({1: self.port} | self.others).items()
        )
        return asked.respond(
            error_code=0,
            error_message=None,
            endpoint_type=asked.decode().endpoint_type,
            cluster_id="c",
            controller_id=self.controller_id,
            brokers=rows,
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


def test_a_controller_that_is_cut_off_from_the_store_says_so_itself(
    headless: Headless, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker that is asked cannot know it, and names the controller."""
    with Headless() as other:
        other.controller_id, other.others = 7, {7: headless.port}
        cluster = nodes.describe_cluster(other.bootstrap_servers)
        assert cluster.controller_id == 7 and not nodes.has_controller(cluster)
        with pytest.raises(Failure, match="the cluster has no controller"):
            nodes.await_controller(other.bootstrap_servers)
        headless.controller_id = 7
        nodes.await_controller(other.bootstrap_servers)
        other.others = {7: 1}
        assert nodes.has_controller(nodes.describe_cluster(other.bootstrap_servers)), "brokers may reach it"


def test_a_broker_that_takes_a_request_and_is_silent_is_not_said_to_be_missing(
    headless: Headless, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(remote, "ANSWER_TIMEOUT_S", 0.2)
    headless.answer("describe_cluster", lambda _: b"")
    assert commands.run(["broker", "list"]) == 1
    said = capsys.readouterr().err
    assert f"the broker at {headless.bootstrap_servers} did not answer within" in said
