"""Transactions of the client: begun in one process, ended in another; what is retried and what is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.client.cluster import Cluster, TopicPartition
from tidelog.client.connection import Connection
from tidelog.client.errors import ConnectionLost, GaveUp, Refused, TopicGone, UnsupportedByBroker
from tidelog.client.identity import identity_of
from tidelog.client.sender import Sender
from tidelog.client.transaction_messages import ONGOING, CommittedOffset, Opened
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import build_batch
from tidelog.testing import Broker

PLACE = TopicPartition("t", 0)
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster({"bootstrap.servers": bootstrap}) as cluster:
        cluster.wake("t")
        yield cluster


def written(cluster: Cluster, transactional_id: str) -> Opened:
    opened = cluster.transactions.begin(transactional_id, MINUTE_MS)
    sender = Sender(cluster, properties={}, identity=identity_of(opened))
    sender.send(PLACE, bytearray(build_batch([(None, b"v", [], 1)])), 1)
    sender.flush()
    return opened


def test_what_one_process_writes_another_one_ends(cluster: Cluster, bootstrap: str) -> None:
    opened = written(cluster, "first")
    with Cluster({"bootstrap.servers": bootstrap}) as other:
        assert other.transactions.list_open("first") == ["first"]
        assert other.transactions.describe(["first", "nobody"])["first"] == (ONGOING, opened)
        assert "nobody" not in other.transactions.describe(["first", "nobody"])
        for _ in range(2):
            codes = other.transactions.end([opened], commits=True, timeout_ms=MINUTE_MS)
            assert codes == {opened: ErrorCode.none}
        codes = other.transactions.end([opened], commits=False, timeout_ms=MINUTE_MS)
        assert codes == {opened: ErrorCode.invalid_txn_state}
        assert other.transactions.list_open("first") == []


def test_a_new_identity_aborts_what_is_open_and_fences(cluster: Cluster) -> None:
    opened = written(cluster, "second")
    later = written(cluster, "second")
    assert later.producer_epoch > opened.producer_epoch
    codes = cluster.transactions.end([opened, later], commits=True, timeout_ms=MINUTE_MS)
    assert codes == {opened: ErrorCode.producer_fenced, later: ErrorCode.none}


def test_a_pattern_must_match_the_whole_id(cluster: Cluster) -> None:
    opened = [written(cluster, name) for name in ("third", "third/1", "third/10")]
    assert cluster.transactions.list_open("third/[0-9]") == ["third/1"]
    assert cluster.transactions.list_open("third.*", older_than_ms=MINUTE_MS) == []
    cluster.transactions.end(opened, commits=False, timeout_ms=MINUTE_MS)


def test_offsets_count_when_their_transaction_is_committed(cluster: Cluster, bootstrap: str) -> None:
    opened = cluster.transactions.begin("fourth", MINUTE_MS)
    cluster.transactions.commit_offsets(opened, "group", {PLACE: CommittedOffset(7, "note")})
    problems: list[str] = []
    for timeout_ms in (300, 3_000, 30_000):  # more if the machine is too slow for an answer
        hurry = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": str(timeout_ms)}
        with Cluster(hurry) as hurried, pytest.raises((GaveUp, ConnectionLost)) as failed:
            hurried.transactions.committed("group", [PLACE])
        problems.append(str(failed.value))
        if "UNSTABLE_OFFSET_COMMIT" in problems[-1]:
            break
    assert "UNSTABLE_OFFSET_COMMIT" in problems[-1]
    cluster.transactions.end([opened], commits=True, timeout_ms=MINUTE_MS)
    assert cluster.transactions.committed("group", [])[PLACE] == CommittedOffset(7, "note")
    assert cluster.transactions.committed("no group", [PLACE]) == {}


def test_errors_that_last_are_told(cluster: Cluster) -> None:
    with pytest.raises(Refused, match="INVALID_TRANSACTION_TIMEOUT"):
        cluster.transactions.begin("fifth", 2**31 - 1)
    opened = cluster.transactions.begin("fifth", MINUTE_MS)
    missing = {TopicPartition("missing", 0): CommittedOffset(1, "")}
    with pytest.raises(TopicGone, match=r"missing-0: TxnOffsetCommit"):
        cluster.transactions.commit_offsets(opened, "group", missing)
    cluster.transactions.begin("fifth", MINUTE_MS)
    with pytest.raises(Refused) as fenced:
        cluster.transactions.commit_offsets(opened, "group", {PLACE: CommittedOffset(1, "")})
    assert fenced.value.code in (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)


def test_a_cluster_of_the_old_protocol_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "level_of", lambda connection, feature: 1)
    with pytest.raises(UnsupportedByBroker, match=r"transaction\.version 1: expected at least 2"):
        cluster.transactions.begin("sixth", MINUTE_MS)
