"""Every request in every state, beside Apache Kafka 4.3.1.

The rows are `oracle`'s: each request of the transaction APIs in each state of a transaction.
P is the producer id, e the epoch of the open or last transaction, cur the epoch that the coordinator has;
`settled` is the transaction after the markers were let through.

Produce, WriteTxnMarkers and DescribeProducers are the leaders' and not asked here. Of TxnOffsetCommit it is
asked what its group's coordinator asks this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transactions.desk import Desk, Waiting
from tests.transactions.oracle import Row, rows
from tidelog.base.hashing import partition_of_name
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.listing import Filters
from tidelog.transactions.transaction import NO_IDENTITY, Identity, Spot, Transaction
from tidelog.transactions.turn import ProducerAnswer

LEADERS = ("Produce", "WriteTxnMarkers", "DescribeProducers", "leader")
OF_GROUPS = ("TxnOffsetCommit v5 unknown topic",)
# Kafka takes a partition without a leader for deleted, and the transaction is torn; where markers go is the
# sender's here.
TORN = ("Ongoing, one partition without a leader",)
TOPICS = {"t": 4, "u": 2}
GROUP_PARTITIONS = 2
UNKNOWN_ID = 9_000_000

# Where we answer otherwise on purpose: (protocol, state, request) → (answer, what has settled, reason).
FENCED, OLD_FENCED = ["producer_fenced", -1, -1], ["invalid_producer_epoch", -1, -1]
OPEN_STAYS = "an instance that names an old identity does not end the open transaction of a live one"
REPEAT_TOLD = "a repeated EndTxn waits for the markers with the first, and is told the same"
NOT_ITS_END = "the epoch before was fenced by InitProducerId; its transaction was not the one that was ended"
OTHERWISE: dict[tuple[str, str, str], tuple[list[Any], tuple[str, str], str]] = {
    ("new", "Ongoing", "Init v5 (P,cur-1)"): (FENCED, ("Ongoing", "e+0"), OPEN_STAYS),
    ("new", "Ongoing", "Init v3 (P,cur-2)"): (OLD_FENCED, ("Ongoing", "e+0"), OPEN_STAYS),
    ("new", "Ongoing", "Init v5 (P,cur+1)"): (FENCED, ("Ongoing", "e+0"), OPEN_STAYS),
    ("old", "Ongoing", "Init v5 (P,cur-1)"): (FENCED, ("Ongoing", "e+0"), OPEN_STAYS),
    ("old", "Ongoing", "Init v3 (P,cur-2)"): (OLD_FENCED, ("Ongoing", "e+0"), OPEN_STAYS),
    ("old", "Ongoing", "Init v5 (P,cur+1)"): (FENCED, ("Ongoing", "e+0"), OPEN_STAYS),
    ("new", "PrepareCommit", "EndTxn v5 commit (P,e+0)"): (
        ["none", "P", "e+1"],
        ("CompleteCommit", "e+1"),
        REPEAT_TOLD,
    ),
    ("new", "PrepareAbort", "EndTxn v5 abort (P,e+0)"): (
        ["none", "P", "e+1"],
        ("CompleteAbort", "e+1"),
        REPEAT_TOLD,
    ),
    **{
        ("old", f"Prepare{outcome.title()}", f"EndTxn v{version} {outcome} (P,e+0)"): (
            ["none", None, None],
            (f"Complete{outcome.title()}", "e+0"),
            REPEAT_TOLD,
        )
        for version in (1, 4)
        for outcome in ("commit", "abort")
    },
    **{
        ("old", f"Complete{done}", f"EndTxn v5 {outcome} (P,e-1)"): (
            FENCED,
            (f"Complete{done}", "e+0"),
            NOT_ITS_END,
        )
        for done in ("Commit", "Abort")
        for outcome in ("commit", "abort")
    },
}


def is_leaders(row: Row) -> bool:
    is_asked_elsewhere = row["request"].startswith(LEADERS) or row["request"] in OF_GROUPS
    return is_asked_elsewhere or row["state"] in TORN


def table() -> Iterator[Row]:
    """Of each request in each state, without what timing has made different."""
    seen = set()
    for row in rows():
        if "settled" not in row or is_leaders(row):
            continue
        key = json.dumps(
            [row[field] for field in ("protocol", "state", "request", "tv", "answer", "settled")]
        )
        if key not in seen:
            seen.add(key)
            yield row


class Case:
    """A transactional id in the state of a row, with the names that the row has for its producer."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.is_new = row["protocol"] == "new"
        self.desk = Desk()
        self.identity = Identity(UNKNOWN_ID, 2)
        self._prepare(row["state"])
        found = self.desk.described()
        self.epoch = found.producer_epoch if found is not None else 0
        self.desk.may_raise_epochs = row["tv"] != [0]

    def _prepare(self, state: str) -> None:
        desk = self.desk
        if state == "none":
            return
        self.identity = [desk.producer() for _ in range(3)][-1]
        if state == "Empty":
            return
        desk.add(self.identity, ("t", 0), is_new_protocol=self.is_new)
        if state == "Ongoing":
            return
        if "by timeout" in state:
            desk.tick(60_000)
        else:
            desk.end(self.identity, state.endswith("Commit"), is_new_protocol=self.is_new)
        if state.startswith("Complete"):
            desk.mark_all()
        assert desk.state == state.split()[0]

    def named(self, text: str) -> Identity:
        """`(P,cur-1)`, `(P+7,e)`, `(P,-1)`."""
        match = re.search(r"\(P(\+7)?,(cur|e)?([+-]?\d+)?\)", text)
        if match is None:
            return NO_IDENTITY
        other, of, distance = match.groups()
        start = {"cur": self.epoch, "e": self.identity.epoch, None: 0}[of]
        epoch = start + int(distance or 0)
        if distance == "-2" and of == "cur" and self.epoch <= 1:
            epoch = 0
        return Identity(self.identity.producer_id + (7 if other else 0), epoch)

    # Requests.

    def ask(self, request: str) -> Any:
        api, _, rest = request.partition(" ")
        version = int(rest[1]) if re.match(r"v\d", rest) else 0
        return getattr(self, f"_{api.lower()}")(version, rest)

    def _init(self, version: int, rest: str) -> Any:
        timeout_ms = {"v5 timeout 0": 0, "v5 timeout too long": 900_001}.get(rest, 60_000)
        tid = "" if "empty id" in rest else "t"
        waiting = self.desk.init(self.named(rest), timeout_ms, tid, knows_fencing=version >= 4)
        return self._producer(self._answer(waiting))

    def _endtxn(self, version: int, rest: str) -> Any:
        is_new = version >= 5
        waiting = self.desk.end(
            self.named(rest),
            "commit" in rest,
            tid="" if "empty id" in rest else "t",
            is_new_protocol=is_new,
            knows_fencing=version >= 2,
        )
        answer = self._producer(self._answer(waiting))
        return answer if is_new else [answer[0], None, None]

    def _addpartitions(self, version: int, rest: str) -> Any:
        spots = spots_of(rest)
        if "verify" in rest:
            identity = self.named(rest if "(" in rest else "(P,cur)")
            waiting = self.desk.verify(identity, *spots)
        else:
            waiting = self.desk.add(
                self.named(rest if "(" in rest else "(P,cur)"),
                *spots,
                problems=problems_of(spots),
                is_new_protocol=version >= 4,
                knows_fencing=version >= 2,
            )
        codes = self._answer(waiting)
        if codes[0] is ErrorCode.unsupported_version:
            return ["unsupported_version"]
        told = [[f"{topic}-{index}", code.name] for (topic, index), code in zip(spots, codes, strict=True)]
        return ["none", *told] if version >= 4 else told

    def _addoffsets(self, version: int, rest: str) -> Any:
        group = "" if "empty group" in rest else "g"
        identity = self.named(rest if "(" in rest else "(P,cur)")
        waiting = self.desk.add(identity, group_spot(group), knows_fencing=version >= 2)
        return self._answer(waiting)[0].name

    def _txnoffsetcommit(self, version: int, rest: str) -> Any:
        """A group's coordinator has the partition of the group added, or looks for it; what it is told it
        tells in words that old clients know."""
        if version >= 5:
            waiting = self.desk.add(self.named(rest), group_spot("g"), is_new_protocol=True)
        else:
            waiting = self.desk.verify(self.named(rest), group_spot("g"))
        code = self._answer(waiting)[0].name
        if code == "transaction_abortable" and version < 4:
            return "invalid_txn_state"
        return "invalid_producer_epoch" if code == "producer_fenced" else code

    def _describe(self, version: int, rest: str) -> Any:
        found = self.desk.described()
        if found is None:
            return {"error": "transactional_id_not_found", "state": "", "producer_id": "new", "epoch": 0}
        return {
            "error": "none",
            "state": found.state.title,
            "producer_id": "P" if found.producer_id == self.identity.producer_id else "new",
            "epoch": self._epoch(found.identity),
            "partitions": names(found),
            "timeout_ms": found.timeout_ms,
            "started": found.started_ms >= 0,
        }

    def _list(self, version: int, rest: str) -> Any:
        states = {"Ongoing": ("Ongoing",), "states with an unknown one": ("Nope",)}.get(rest, ())
        listing = self.desk.listed(Filters(states=states))
        assert listing.unknown_states == tuple(name for name in states if name == "Nope")
        return [listing.code.name, [each.state.title for each in listing.found]]

    def _answer(self, waiting: Waiting) -> Any:
        if not waiting.answers:  # it waits for markers, which the proxy holds
            self.desk.tick(1_000)
        return waiting.answer

    # In the row's words.

    def _producer(self, answer: ProducerAnswer) -> list[Any]:
        producer_id, epoch = answer.identity
        if answer.code is not ErrorCode.none:
            assert answer.identity == NO_IDENTITY
            return [answer.code.name, -1, -1]
        if producer_id == self.identity.producer_id:
            return ["none", "P", self._epoch(answer.identity)]
        return ["none", "new", epoch]

    def _epoch(self, identity: Identity) -> Any:
        if identity.producer_id != self.identity.producer_id:
            return identity.epoch
        return f"e{identity.epoch - self.identity.epoch:+d}"

    def settled(self) -> list[Any]:
        self.desk.mark_all()
        found = self.desk.described()
        if found is None:
            return ["transactional_id_not_found", 0, "new", []]
        is_known = found.producer_id == self.identity.producer_id
        return [
            found.state.title,
            self._epoch(found.identity),
            "P" if is_known else "new",
            names(found),
        ]


def names(found: Transaction) -> list[str]:
    return [f"{topic}-{index}" for topic, index in sorted(found.partitions)]


def group_spot(group: str) -> Spot:
    return "__consumer_offsets", partition_of_name(group, GROUP_PARTITIONS)


def spots_of(rest: str) -> tuple[Spot, ...]:
    if "known+unknown" in rest:
        return ("t", 1), ("t", 99)
    if "unknown topic" in rest:
        return (("nope", 0),)
    if "__transaction_state" in rest:
        return (("__transaction_state", 0),)
    if "same partition" in rest or ("in txn" in rest and "not in" not in rest) or "verify (" in rest:
        return (("t", 0),)
    is_new = rest.startswith(("v4", "v5"))
    return (("t", 2),) if is_new else (("t", 1),)


def problems_of(spots: tuple[Spot, ...]) -> dict[Spot, ErrorCode]:
    """As the handler sees the cluster."""
    problems = {}
    for topic, index in spots:
        if topic == "__transaction_state":
            problems[topic, index] = ErrorCode.topic_authorization_failed
        elif index >= TOPICS.get(topic, 0):
            problems[topic, index] = ErrorCode.unknown_topic_or_partition
    return problems


def name_of(row: Row) -> str:
    level = "" if row["tv"] != [0] else " level 0"
    return f"{row['protocol']} {row['state']}: {row['request']}{level}"


@pytest.mark.parametrize("row", list(table()), ids=name_of)
def test_a_request_is_answered_as_by_kafka(row: Row) -> None:
    key = row["protocol"], row["state"], row["request"]
    answer, settled = row["answer"], row["settled"]
    if key in OTHERWISE:
        answer, (state, epoch), _ = OTHERWISE[key]
        settled = [state, epoch, "P", ["t-0"] if state == "Ongoing" else []]
        assert (answer, settled) != (row["answer"], row["settled"]), "this is what Kafka does: no exception"
    case = Case(row)
    told = case.ask(row["request"])
    if row["request"] == "Describe":
        answer = {name: answer[name] for name in told}
    assert told == answer
    if row["state"].startswith("Prepare"):  # and stands there, as the markers are held
        assert case.desk.state == row["state"]
    assert case.settled() == settled


def test_every_exception_is_of_a_row() -> None:
    keys = {(row["protocol"], row["state"], row["request"]) for row in table()}
    assert keys.issuperset(OTHERWISE)


# Rows that took time, or several requests.


def timed_out() -> list[Row]:
    """After a timeout; the request says no version: it is that of the protocol in the state."""
    found = []
    for row in rows():
        if row["state"].startswith("CompleteAbort by timeout") and not is_leaders(row):
            protocol = "new" if "(new)" in row["state"] else "old"
            found.append(row | {"protocol": protocol})
    return found


@pytest.mark.parametrize("row", timed_out(), ids=name_of)
def test_after_a_timeout_a_request_is_answered_as_by_kafka(row: Row) -> None:
    case = Case(row)
    versions = {"EndTxn": 4, "Init": 5, "AddPartitions": 3, "TxnOffsetCommit": 4}
    if case.is_new:
        versions |= {"EndTxn": 5, "TxnOffsetCommit": 5}
    answers = []
    for step in row["request"].split(", "):
        api, *rest, named = step.removeprefix("then ").split(" ")
        if api == "produce":  # its leader adds the partition, or verifies it
            producer = case.named(f"(P,{named})")
            told = case.desk.verify(producer, ("t", 0))
            if case.is_new:
                told = case.desk.add(producer, ("t", 0), is_new_protocol=True)
            answers.append([told.answer[0].name, "offset" if told.answer[0] is ErrorCode.none else -1])
            continue
        identity = "" if named == "fresh" else named if named.startswith("(") else f"(P,{named})"
        answers.append(case.ask(f"{api} v{versions[api]} {' '.join(rest)} {identity}"))
    assert answers == (row["answer"] if len(answers) > 1 else [row["answer"]])
    told = case.ask("Describe")
    case.desk.mark_all()
    settled = row["then"]
    assert case.settled() == [
        settled["state"],
        settled["epoch"],
        settled["producer_id"],
        settled["partitions"],
    ]
    assert told["started"] == settled["started"]


def row_of(state: str, request: str) -> Row:
    return next(row for row in rows() if row["state"] == state and row["request"] == request)


def test_init_that_is_repeated_is_told_the_same_until_another_instance_begins() -> None:
    case = Case({"protocol": "new", "state": "Empty", "tv": [2]})
    first = [case.ask("Init v5 (P,e)"), case.ask("Init v5 (P,e)")]
    assert first == row_of("Empty", "Init (P,e) twice (first answer lost)")["answer"]
    case.desk.restart()
    assert case.ask("Init v5 (P,e)") == first[0]  # Kafka forgets that in a restart
    then = [case.ask("Init v5"), case.ask("Init v5 (P,e)"), case.ask("Init v5 (P,e+1)")]
    assert then == row_of("Empty", "then Init fresh, Init (P,e), Init(P,e+1)")["answer"]


@pytest.mark.parametrize("protocol", ["new", "old"])
def test_an_end_that_is_repeated_after_a_restart_is_told_the_same(protocol: str) -> None:
    row = row_of(f"PrepareCommit ({protocol}), broker killed and started", "EndTxn commit e again, abort e")
    case = Case({"protocol": protocol, "state": "PrepareCommit", "tv": [2]})
    case.desk.restart()
    case.desk.mark_all()
    version = "v5" if protocol == "new" else "v4"
    answers = [case.ask(f"EndTxn {version} {outcome} (P,e)") for outcome in ("commit", "abort")]
    assert answers == row["answer"]


def at_epoch(epoch: int) -> Case:
    """An id whose epochs come to their end, as a record has it."""
    case = Case({"protocol": "new", "state": "Empty", "tv": [2]})
    case.desk.run(lambda turn: turn.decide(case.desk.found()._replace(producer_epoch=epoch)))
    case.identity = case.desk.found().identity
    return case


def test_commits_go_over_the_end_of_the_epochs_as_in_kafka() -> None:
    case, rows_of_kafka = at_epoch(32_765), row_of("Ongoing at 32765..", "commit over the overflow")["answer"]
    desk, producer = case.desk, case.identity
    first_id = producer.producer_id
    for expected in rows_of_kafka[1:]:
        assert (producer.epoch, producer.producer_id == first_id) == (expected["epoch"], expected["same_id"])
        assert desk.add(producer, ("t", 0), is_new_protocol=True).answer == [ErrorCode.none]
        ended = desk.commit_new(producer)
        held = desk.found()
        id_held = "same" if held.producer_id == producer.producer_id else "new"
        assert [held.state.title, id_held, held.producer_epoch] == expected["while_prepared"]
        assert desk.sender.sent[-1].identity.epoch == expected["leader"]["epoch"]
        desk.mark_all()
        again = desk.commit_new(producer)
        for told, answer in ((ended, expected["end"]), (again, expected["again"])):
            is_same = told.answer.identity.producer_id == producer.producer_id
            name = told.answer.code.name
            assert [name, "same" if is_same else "new", told.answer.identity.epoch] == answer
        producer = again.answer.identity


def test_a_fence_at_the_last_epoch_gives_a_new_id_as_in_kafka() -> None:
    row = row_of("Ongoing at 32766", "Init fresh (fence), EndTxn abort old, Init again")
    case = at_epoch(32_766)
    case.desk.add(case.identity, ("t", 0), is_new_protocol=True)
    answers = [case.ask("Init v5")]
    assert case.desk.sender.sent[-1].identity == Identity(case.identity.producer_id, 32_767)
    case.desk.mark_all()
    answers += [case.ask("EndTxn v5 abort (P,e)"), case.ask("Init v5")]
    expected = row["answer"][1:]
    assert [answer[0] for answer in answers] == [answer[0] for answer in expected]
    assert [answer[2] for answer in answers] == [answer[2] for answer in expected]
    assert answers[1][1] == answers[2][1] == "new"


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "Ongoing"])
def test_an_id_expires_as_in_kafka(state: str) -> None:
    asked = [row for row in rows() if row["state"] == f"{state}, id expired" and not is_leaders(row)]
    assert asked
    for row in asked:
        case = Case({"protocol": "new", "state": state, "tv": [2]})
        case.desk.settings.values["transactional.id.expiration.ms"] = 1_000
        case.desk.settings.values["transaction.remove.expired.transaction.cleanup.interval.ms"] = 500
        case.desk.restart()
        case.desk.tick(2_000)
        if row["request"].startswith("Describe"):
            told = case.ask("Describe")
            assert f"{told['error']} {told['state']}" == row["answer"]
            continue
        request = {
            "AddPartitions v3": "AddPartitions v3 (P,e) same partition",
            "TxnOffsetCommit v5": "TxnOffsetCommit v5 (P,e)",
            "EndTxn v5 commit e": "EndTxn v5 commit (P,e)",
            "Init (P,e)": "Init v5 (P,e)",
        }[row["request"]]
        assert case.ask(request) == row["answer"]


def test_every_row_is_asked_or_is_the_leaders() -> None:
    several = ("Empty", "PrepareCommit (new), broker", "PrepareCommit (old), broker", "Ongoing at 3276")
    left = [
        row
        for row in rows()
        if "settled" not in row
        and not is_leaders(row)
        and "by timeout" not in row["state"]
        and "id expired" not in row["state"]
        and not row["state"].startswith(several)
    ]
    assert left == []
    assert len(list(table())) > 1_000
