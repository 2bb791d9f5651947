"""Transactions that are open or prepared change house with the files: Kafka ends ours, Tidelog ends Kafka's.

The same story is told to both brokers. Ours stops with two transactions prepared, as no marker leaves it; of
Kafka's files the ends of two are cut away, as a crash leaves them. Both take the other's folders and go on.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from bench.peers.kafka import Kafka

from tests.compat.broker import running_broker
from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent
from tests.compat.confluent.transactor import ConfluentTransactor
from tests.compat.java.history import Served, served, write_transactions
from tests.compat.java.jvm import Jvm
from tests.compat.java.shell import Shell
from tests.compat.java.tools import dump, files_of, replace_partition, running_kafka
from tests.compat.java.transaction_tool import Row, described
from tests.compat.java.transactor import JavaTransactor
from tests.compat.transactional import Ground
from tests.server.wire_client import WireClient
from tidelog.base.hashing import partition_of_name
from tidelog.broker.data_plane.marking import Errand, Marking
from tidelog.protocol.batch import read_header
from tidelog.testing import Broker
from tidelog.transactions.coordinator import TransactionCoordinator
from tidelog.transactions.transaction import Spot

PARTITIONS = 20
HISTORY, EMPTY = "history", "empty"
COMMITTED_THERE, FENCED_THERE, TIMED_OUT_THERE = "committed-there", "fenced-there", "timed-out-there"
OPEN = (COMMITTED_THERE, FENCED_THERE, TIMED_OUT_THERE)
TO_COMMIT, TO_ABORT = "to-commit", "to-abort"
PREPARED = (TO_COMMIT, TO_ABORT)
TOPICS = (HISTORY, *OPEN, *PREPARED)
GROUP = "group"
STATE_FOLDERS = [f"__transaction_state-{index}" for index in range(PARTITIONS)]
FOLDERS = [*(f"{topic}-0" for topic in TOPICS), "__consumer_offsets-0", *STATE_FOLDERS]
CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
RECORD = re.compile(r"key: (\{.*\}) payload: (\{.*\}|<DELETE>)$")
DIFFERS = re.compile("[pP]roducerId|Timestamp")
SETTINGS = {"transaction.state.log.num.partitions": str(PARTITIONS), "offsets.topic.num.partitions": "1"}
LONG_MS, SHORT_MS = 600_000, 1_000
END, FIND_COORDINATOR = 26, 10
OF_GROUP, OF_TRANSACTION = 0, 1


def place_of(name: str) -> int:
    return partition_of_name(name, PARTITIONS)


def port_of(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


Survey = dict[str, tuple[str, ...]]


def survey(shell: Shell) -> Survey:
    """Of ids that have nothing prepared; not what time may have ended meanwhile."""
    names = (EMPTY, COMMITTED_THERE, FENCED_THERE, f"{HISTORY}-first", f"{HISTORY}-second")
    return {name: _summary(described(shell, name)) for name in names}


def _summary(row: Row) -> tuple[str, ...]:
    kept = ("TransactionState", "TransactionTimeoutMs", "ProducerEpoch")
    return (*(row[each] for each in kept), *sorted(row.get("TopicPartitions", "").split(",")))


@dataclass(frozen=True)
class Told:
    """A broker that was told the story and stopped."""

    log_dir: Path
    history: Served
    ids: Survey


def tell(shell: Shell, jvm: Jvm) -> tuple[Served, Survey]:
    bootstrap = shell.bootstrap
    client = ConfluentTransactor(bootstrap)
    for topic in TOPICS:
        Confluent(bootstrap).create_topic(topic, 1, {"retention.ms": "-1"})
    write_transactions(bootstrap, HISTORY)
    with ExitStack() as stack:
        stack.enter_context(client.instance(EMPTY))
        for name in OPEN:
            Ground(bootstrap, name).write(name, [b"before"])
            timeout_ms = SHORT_MS if name == TIMED_OUT_THERE else LONG_MS
            instance = stack.enter_context(client.instance(name, timeout_ms))
            instance.begin()
            instance.send((name, 0), [b"open"])
            if name == COMMITTED_THERE:
                instance.send_offsets(GROUP, {(name, 0): 7})
            Ground(bootstrap, name).write(name, [b"plain"])
        for name in PREPARED:
            Ground(bootstrap, name).write(name, [b"before"])
            with JavaTransactor(bootstrap, jvm, Path()).instance(name, LONG_MS) as newer:
                newer.begin()
                newer.send((name, 0), [b"open"])
                Ground(bootstrap, name).write(name, [b"plain"])
                (newer.commit if name == TO_COMMIT else newer.abort)()
        return served(bootstrap, HISTORY), survey(shell)


def go_on(shell: Shell, told: Told) -> None:
    """Everything that was open or prepared there ends here, and readers see whole transactions."""
    bootstrap = shell.bootstrap
    assert survey(shell) == told.ids
    assert served(bootstrap, HISTORY) == told.history
    _commit_from_outside(shell, COMMITTED_THERE)
    with ConfluentTransactor(bootstrap).instance(FENCED_THERE) as instance:
        instance.begin()
        instance.send((FENCED_THERE, 0), [b"after"])
        instance.commit()
    expected = {
        COMMITTED_THERE: ("CompleteCommit", [b"before", b"open", b"plain"]),
        FENCED_THERE: ("CompleteCommit", [b"before", b"plain", b"after"]),
        TIMED_OUT_THERE: ("CompleteAbort", [b"before", b"plain"]),
        TO_COMMIT: ("CompleteCommit", [b"before", b"open", b"plain"]),
        TO_ABORT: ("CompleteAbort", [b"before", b"plain"]),
    }
    for name, (state, values) in expected.items():
        eventually(partial(_is, shell, name, state), f"{name} is not {state}")
        ground = Ground(bootstrap, name)
        assert ground.stable_offset((name, 0)) == ground.end_offset((name, 0)), name
        records = Confluent(bootstrap).read_to_end(name, committed_only=True)
        assert [record.value for record in records] == values, name
    Ground(bootstrap, COMMITTED_THERE).await_committed(GROUP, [7])


def _is(shell: Shell, name: str, state: str) -> bool:
    return described(shell, name)["TransactionState"] == state


def _commit_from_outside(shell: Shell, name: str) -> None:
    """Its producer is gone, but its end is for anybody who knows the identity."""
    found = described(shell, name)
    identity = {"producer_id": int(found["ProducerId"]), "producer_epoch": int(found["ProducerEpoch"])}
    with WireClient(port_of(shell.bootstrap)) as client:
        answer = client.ask(END, 5, transactional_id=name, committed=True, **identity)
    assert answer.error_code == 0


@contextmanager
def ending_nothing() -> Iterator[None]:
    """Markers of some ids do not leave, and no timeout aborts."""
    direct = Marking._direct

    def keep(self: Marking, errand: Errand, spot: Spot, *more: Any) -> None:
        if errand.markers.transactional_id in PREPARED:
            self._send_again(errand, spot)
        else:
            direct(self, errand, spot, *more)

    with (
        patch.object(Marking, "_direct", keep),
        patch.object(TransactionCoordinator, "_time_out", lambda *_: None),
    ):
        yield


@pytest.fixture(scope="module")
def ours(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Told:
    log_dir = tmp_path_factory.mktemp("ours") / "logs"
    with ending_nothing(), Broker(log_dirs=str(log_dir), **SETTINGS) as broker:
        shell = Shell(jvm, broker.bootstrap_servers)
        told = tell(shell, jvm)
        assert _is(shell, TO_COMMIT, "PrepareCommit") and _is(shell, TO_ABORT, "PrepareAbort")
    return Told(log_dir, *told)


def cut_last_batch(folder: Path) -> None:
    """And what was derived from it."""
    (log,) = files_of(folder, ".log")
    content = log.read_bytes()
    position, last = 0, 0
    while position < len(content):
        last = position
        position += read_header(content, position).size
    log.write_bytes(content[:last])
    for path in files_of(folder, ".snapshot", ".txnindex"):
        path.unlink()


def cut_ends(log_dir: Path) -> None:
    """The markers of two transactions, and what the coordinator wrote when they were in."""
    for name in PREPARED:
        cut_last_batch(log_dir / f"{name}-0")
        cut_last_batch(log_dir / STATE_FOLDERS[place_of(name)])


def make_all_topics(bootstrap: str) -> None:
    """Without a record, as a partition that has fewer than before would be mistrusted."""
    client = Confluent(bootstrap)
    for topic in TOPICS:
        client.create_topic(topic, 1, {"retention.ms": "-1"})
    for key_type in (OF_GROUP, OF_TRANSACTION):
        with WireClient(port_of(bootstrap)) as asking:
            asking.ask(FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=("any",))
    internal = {"__consumer_offsets", "__transaction_state"}
    eventually(lambda: internal <= client.topics().keys(), "the internal topics are not made")


def states_in(log_dir: Path) -> dict[str, Any]:
    """The last value of each transactional id, as Kafka's tool decodes it; not what differs by time."""
    files = [
        path for name in STATE_FOLDERS for path in files_of(log_dir / name, ".log") if path.stat().st_size
    ]
    dumped = dump(files, "--transaction-log-decoder")
    assert dumped.complaints == ()
    pairs = [(json.loads(found[1]), found[2]) for line in dumped.lines if (found := RECORD.search(line))]
    assert len(pairs) == sum(line.startswith("| offset: ") for line in dumped.lines)
    values = {key["data"]["transactionalId"]: json.loads(value) for key, value in pairs}
    return {name: (each["version"], _without_ids(each["data"])) for name, each in values.items()}


def _without_ids(data: dict[str, Any]) -> dict[str, Any]:
    """And without times; the order of topics says nothing."""
    assert data["producerId"] >= 0 and data["transactionLastUpdateTimestampMs"] > 0
    topics = sorted(data["transactionPartitions"] or (), key=lambda topic: str(topic["topic"]))
    kept = {key: value for key, value in data.items() if not DIFFERS.search(key)}
    return kept | {"transactionPartitions": topics}


def test_each_takes_up_the_transactions_of_the_other(
    ours: Told, kafka: Kafka, jvm: Jvm, tmp_path: Path
) -> None:
    site = kafka.prepare(tmp_path / "node", SETTINGS | {CLEANUP: "3600000"})
    with running_kafka(site) as bootstrap:
        told = tell(Shell(jvm, bootstrap), jvm)
    theirs = Told(tmp_path / "kept", *told)
    assert theirs.ids == ours.ids
    for name in FOLDERS:
        shutil.copytree(site.log_directory / name, theirs.log_dir / name)
    cut_ends(theirs.log_dir)
    assert states_in(ours.log_dir) == states_in(theirs.log_dir)
    house = tmp_path / "house"
    with running_broker(house, SETTINGS) as bootstrap:
        make_all_topics(bootstrap)
    for name in FOLDERS:
        replace_partition(house / name, theirs.log_dir / name)
    with running_broker(house, SETTINGS) as bootstrap:
        go_on(Shell(jvm, bootstrap), theirs)
    for name in FOLDERS:
        replace_partition(site.log_directory / name, ours.log_dir / name)
    with (site.directory / "server.properties").open("a") as properties:
        properties.write(f"{CLEANUP}=500\n")
    with running_kafka(site, TOPICS) as bootstrap:
        go_on(Shell(jvm, bootstrap), ours)
