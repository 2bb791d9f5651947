"""What a leader answers to WriteTxnMarkers, beside Apache Kafka 4.3.1: every row that one partition decides.

The rows are those of `tests/transactions`; the coordinator's are asked there. In Prepare* the coordinator's
own marker is still to come, and comes when the row has been asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.log.making import NOW_MS, append, make_batch, open_new, refusal
from tests.transactions.oracle import Row, rows
from tidelog.log.log import Log
from tidelog.log.markers import NEW_PROTOCOL, End, Marked, append_markers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker

PRODUCER, EPOCH = 2_000, 5
OLD_PROTOCOL = 0
OF_BROKERS = "unknown topic and partition"  # not a partition's to answer
ASKED = re.compile(
    r"WriteTxnMarkers v\d tv(?P<version>\d) (?P<marker>commit|abort) \(P,e(?P<epoch>[+-]\d)\)"
    r" coordinator epoch (?P<first>\d)(?: then (?P<then>\d))?"
)


def table() -> Iterator[Row]:
    seen = set()
    for row in rows():
        asked = row["request"]
        if not asked.startswith("WriteTxnMarkers") or OF_BROKERS in asked:
            continue
        key = json.dumps([row[field] for field in ("protocol", "state", "request", "answer", "leader_t0")])
        if key not in seen:
            seen.add(key)
            yield row


class Leader:
    """A partition that knows what the state of a row means for it."""

    def __init__(self, folder: Path, row: Row) -> None:
        self.log = open_new(folder)
        self.state: str = row["state"]
        self.version = NEW_PROTOCOL if row["protocol"] == "new" else OLD_PROTOCOL
        if not self.state.startswith(("none", "Empty")):
            batch = make_batch(producer_id=PRODUCER, producer_epoch=EPOCH, transactional=True)
            append(self.log, batch)
        if self.state.startswith("Complete"):
            self.write_own()

    def write_own(self) -> None:
        marker = Marker.COMMIT if "Commit" in self.state else Marker.ABORT
        epoch = EPOCH + (self.version == NEW_PROTOCOL)
        self.write(End(PRODUCER, epoch, marker, 0, self.version))

    def write(self, end: End) -> Marked:
        (marked,) = append_markers(self.log, [end], 0, NOW_MS)
        return marked

    def ask(self, request: str) -> list[str]:
        found = ASKED.fullmatch(request)
        assert found is not None, request
        end = End(
            PRODUCER,
            EPOCH + int(found["epoch"]),
            Marker[found["marker"].upper()],
            int(found["first"]),
            int(found["version"]),
        )
        ends = [end] + ([end._replace(coordinator_epoch=int(found["then"]))] if found["then"] else [])
        return [self.write(each).code.name for each in ends]

    def known(self) -> dict[str, Any]:
        return described(self.log)


def described(log: Log) -> dict[str, Any]:
    known = log.producers.get(PRODUCER)
    assert known is not None
    return {
        "epoch": f"e{known.epoch - EPOCH:+d}" if known.epoch != EPOCH - 1 else "e-1",
        "last_sequence": known.last_sequence,
        "coordinator_epoch": known.coordinator_epoch,
        "open": known.transaction_offset >= 0,
    }


def codes(answer: list[Any]) -> list[str]:
    """Of partition t-0, of one request or of two."""
    requests = answer if isinstance(answer[0][0], list) else [answer]
    return [code for request in requests for _, code in request]


@pytest.mark.parametrize(
    "row",
    list(table()),
    ids=lambda row: f"{row['protocol']}-{row['state']}-{row['request'][16:]}".replace(" ", "-"),
)
def test_a_leader_answers_as_kafka_does(row: Row, tmp_path: Path) -> None:
    leader = Leader(tmp_path, row)
    if "unknown producer" in row["request"]:
        answer, known = row["answer"]
        log = open_new(tmp_path / "t-2")
        (marked,) = append_markers(log, [End(PRODUCER, EPOCH + 1, Marker.ABORT, 0, NEW_PROTOCOL)], 0, NOW_MS)
        assert [marked.code.name] == codes([answer[0]]) and described(log) == known
        late = make_batch(producer_id=PRODUCER, producer_epoch=EPOCH, transactional=True)
        assert refusal(log, late) == ErrorCode.invalid_producer_epoch
        return
    assert leader.ask(row["request"]) == codes(row["answer"])
    if leader.state.startswith("Prepare"):
        leader.write_own()
    assert leader.known() == row["leader_t0"]


def test_every_kind_of_row_is_asked() -> None:
    assert len(list(table())) >= 96
