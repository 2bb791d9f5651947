"""The simulated store keeps the store's contract, whatever goes wrong; and enough does go wrong.

First a random workload: every multi adds its token to `/log`, writes it to a pair of nodes, and sometimes to
an ephemeral one; what the brokers are told is held against what a store may say. Then each fault by itself.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from tests.sim.store import NEVER, Faults, SimulatedConnection, SimulatedStore, calm
from tidelog.cluster.store import (
    Action,
    Changed,
    Check,
    Create,
    Done,
    Multi,
    Node,
    Operation,
    ReadTree,
    Refused,
    SessionEnded,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Watch,
    Write,
)

BROKERS = 3
STEPS = 300
SEEDS = range(30)
LOG, HERE, PAIR = "/log", "/here", ("/left", "/right")


@dataclass
class Asked:
    """A request under way, and what had happened when it was submitted."""

    action: Action
    token: str
    written: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


class Caller:
    """A broker that checks what it is told."""

    def __init__(self, workload: Workload, node: int) -> None:
        self.workload = workload
        self.connection = workload.store.connect(node)
        self.under_way: dict[int, Asked] = {}
        self.unknown: set[str] = set()
        self.ephemeral: set[str] = set()  # tokens of this session
        self.log_size = 0  # as this session last read it
        self.watching_since: int | None = None  # the ticket before the watch
        self.watched_size: int | None = None

    def submit(self, asked: Asked) -> None:
        self.workload.ticket += 1
        self.under_way[self.workload.ticket] = asked
        self.connection.submit(StoreRequest(self.workload.ticket, asked.action), self.workload.now_ms)

    def watch(self) -> None:
        if self.watching_since is None:
            self.watching_since, self.watched_size = self.workload.ticket, None
            self.connection.submit(Watch(LOG), self.workload.now_ms)

    def take(self) -> None:
        for event in self.connection.due(self.workload.now_ms):
            self.workload.trace.append(f"{self.workload.now_ms} {self.connection.node} {event}")
            if isinstance(event, StoreReply):
                self.on_reply(event)
            elif isinstance(event, Changed):
                assert event.path == LOG and self.watching_since is not None
                self.watching_since = None
            else:
                self.on_session_ended()

    def on_session_ended(self) -> None:
        assert not self.under_way, "it comes after an answer for all that was under way"
        self.workload.gone |= self.ephemeral
        self.ephemeral = set()
        self.log_size, self.watching_since = 0, None

    def on_reply(self, reply: StoreReply) -> None:
        assert reply.ticket == next(iter(self.under_way)), "answers keep the order of the requests"
        asked = self.under_way.pop(reply.ticket)
        if isinstance(reply.outcome, Tree):
            self.on_tree(reply.ticket, asked, reply.outcome.nodes)
        elif isinstance(asked.action, Multi):
            self.workload.outcomes[asked.token] = reply.outcome
            if isinstance(reply.outcome, Unknown):
                self.unknown.add(asked.token)
        else:
            assert isinstance(reply.outcome, Unknown)

    def on_tree(self, ticket: int, asked: Asked, nodes: dict[str, Node]) -> None:
        assert len({nodes[path] for path in PAIR}) == 1, "a multi shows whole or not at all"
        log = tokens_below(LOG, nodes)
        assert log == self.workload.tokens()[: len(log)], "the past is as it was"
        assert len(log) >= self.log_size, "a session never goes back"
        self.log_size = len(log)
        assert isinstance(asked.action, ReadTree)
        if asked.action.is_synced:
            assert asked.written <= set(log), "it shows all that was written before it was asked for"
            assert not asked.gone & set(tokens_below(HERE, nodes)), "ephemeral nodes go with their session"
            self.workload.never |= asked.undecided - set(log)
        if self.watching_since is not None and ticket > self.watching_since:
            assert self.watched_size in (None, len(log)), "a watch comes before its change can be read"
            self.watched_size = len(log)


class Workload:
    def __init__(self, seed: int, faults: Faults) -> None:
        self.random = Random(seed)
        self.store = SimulatedStore(Random(seed + 1), faults)
        self.now_ms = 0
        self.ticket = 0
        self.trace: list[str] = []
        self.outcomes: dict[str, object] = {}  # of multis, by token
        self.never: set[str] = set()  # tokens that a synced reading has shown not to be applied
        self.gone: set[str] = set()  # tokens of ephemeral nodes whose session is known to be over
        self.store.tree.change(None, [Create(path, b"") for path in PAIR])
        self.callers = [Caller(self, node) for node in range(BROKERS)]

    def tokens(self) -> list[str]:
        """All that was ever applied, in its order."""
        return tokens_below(LOG, self.store.tree.read(ReadTree("/"), self.store.tree.newest).nodes)

    def run(self) -> None:
        for _ in range(STEPS):
            self.pass_time(self.now_ms + self.random.choice((0, 1, 5, 30, 300)))
            self.act(self.random.choice(self.callers))
        self.pass_time(self.now_ms + 100_000)
        self.check_the_end()

    def pass_time(self, until_ms: int) -> None:
        while self.store.next_ms <= until_ms:
            assert self.store.next_ms >= self.now_ms
            self.now_ms = self.store.next_ms
            for caller in self.callers:
                caller.take()
        self.now_ms = until_ms

    def act(self, caller: Caller) -> None:
        chance, connection = self.random.random(), caller.connection
        if chance < 0.4:
            self.change(caller)
        elif chance < 0.65:
            caller.submit(Asked(ReadTree("/"), ""))
        elif chance < 0.8:
            known = frozenset(self.tokens()), frozenset(caller.unknown), frozenset(self.gone)
            caller.submit(Asked(ReadTree("/", is_synced=True), "", *known))
        elif chance < 0.95:
            caller.watch()
        elif chance < 0.965:
            connection.disconnect(self.now_ms, self.now_ms + self.random.choice((50, 500, 10_000)))
        elif chance < 0.975:
            connection.expire(self.now_ms)
        elif chance < 0.985:
            self.store.stop(self.now_ms, self.now_ms + self.random.choice((50, 50, 10_000)))
        else:
            self.restart(caller)

    def change(self, caller: Caller) -> None:
        token = str(self.ticket + 1)
        data = token.encode()
        operations: list[Operation] = [Create(f"{LOG}/", data, is_sequential=True)]
        operations += [Write(path, data) for path in PAIR]
        if self.random.random() < 0.3:
            caller.ephemeral.add(token)
            operations.append(Create(f"{HERE}/{token}", data, is_ephemeral=True))
        if self.random.random() < 0.2:
            operations.append(Check("/none"))
        caller.submit(Asked(Multi(tuple(operations)), token))

    def restart(self, caller: Caller) -> None:
        end = self.random.choice((caller.connection.kill, caller.connection.close))
        end(self.now_ms)
        for asked in caller.under_way.values():
            self.outcomes[asked.token] = Unknown("nobody is there to hear it")
        self.callers[self.callers.index(caller)] = Caller(self, caller.connection.node)

    def check_the_end(self) -> None:
        assert not any(caller.under_way for caller in self.callers), "everything is answered"
        tokens = self.tokens()
        assert len(tokens) == len(set(tokens)), "nothing is applied twice"
        assert not self.never & set(tokens), "what was decided stays so"
        for token, outcome in self.outcomes.items():
            if not isinstance(outcome, Unknown):
                assert (token in tokens) == (outcome == Done())


def tokens_below(path: str, nodes: dict[str, Node]) -> list[str]:
    return [node.data.decode() for found, node in nodes.items() if found.startswith(f"{path}/")]


@pytest.mark.parametrize("late", [0.0, 0.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_contract_holds_whatever_goes_wrong(seed: int, late: float) -> None:
    Workload(seed, Faults(late=late, lost=0.1)).run()


def test_everything_that_can_go_wrong_does() -> None:
    counts: Counter[str] = Counter()
    for seed in range(10):
        workload = Workload(seed, Faults(late=0.3, lost=0.1))
        workload.run()
        counts += workload.store.counts
    kinds = [
        *("lost, applied", "lost, not applied", "lost, nothing to apply", "late, applied", "late, refused"),
        *("stale readings", "watches", "coalesced watches", "expiries", "disconnections", "outages"),
    ]
    assert {kind: counts[kind] for kind in kinds if counts[kind] < 3} == {}, counts


def trace_of(seed: int) -> str:
    workload = Workload(seed, Faults(late=0.3, lost=0.1))
    workload.run()
    return hashlib.sha256("\n".join(workload.trace).encode()).hexdigest()


def test_a_seed_gives_the_same_events_under_any_hash_seed() -> None:
    program = "from tests.sim.test_store import trace_of; print(trace_of(5))"
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert traces == {trace_of(5)} and trace_of(6) not in traces


# Each by itself.

TIMEOUT_MS = Faults().session_timeout_ms
PRESENT = Multi((Create("/e", b"", is_ephemeral=True),))


class Pair:
    """Two brokers at a store where nothing goes wrong but what the test says."""

    def __init__(self, faults: Faults | None = None, seed: int = 0) -> None:
        self.store = SimulatedStore(Random(seed), faults or calm())
        self.first, self.second = self.store.connect(1), self.store.connect(2)
        self.ticket = 0

    def submit(self, connection: SimulatedConnection, action: Action, now_ms: int) -> int:
        self.ticket += 1
        connection.submit(StoreRequest(self.ticket, action), now_ms)
        return self.ticket

    def nodes(self, now_ms: int) -> list[str]:
        """As the second broker reads them, beginning then."""
        self.submit(self.second, ReadTree("/", is_synced=True), now_ms)
        events = self.second.due(now_ms + 10)
        reply = events[-1]
        assert isinstance(reply, StoreReply) and isinstance(reply.outcome, Tree)
        return list(reply.outcome.nodes)


def outcomes(events: list[StoreEvent]) -> list[object]:
    return [type(event.outcome) if isinstance(event, StoreReply) else type(event) for event in events]


def test_a_session_that_is_not_heard_of_ends_and_its_broker_learns_it_when_it_is_back() -> None:
    pair = Pair()
    pair.submit(pair.first, PRESENT, 0)
    assert outcomes(pair.first.due(10)) == [Done]
    pair.first.disconnect(10, until_ms=20_000)
    assert pair.nodes(TIMEOUT_MS - 20) == ["/e"]
    assert pair.nodes(TIMEOUT_MS + 10) == []
    pair.submit(pair.first, PRESENT, 10_000)
    assert SessionEnded not in outcomes(pair.first.due(19_999))
    assert outcomes(pair.first.due(20_010))[-1] is SessionEnded
    pair.submit(pair.first, PRESENT, 20_010)
    assert outcomes(pair.first.due(20_020)) == [Done]
    assert pair.nodes(20_020) == ["/e"]


def test_a_broker_that_is_back_in_time_keeps_its_session() -> None:
    pair = Pair()
    pair.submit(pair.first, PRESENT, 0)
    pair.first.due(10)
    pair.first.disconnect(10, until_ms=TIMEOUT_MS)
    assert pair.nodes(TIMEOUT_MS + 1_000) == ["/e"]
    assert pair.first.due(TIMEOUT_MS + 2_000) == []


def test_a_disconnection_made_longer_counts_from_its_begin() -> None:
    pair = Pair()
    pair.submit(pair.first, PRESENT, 0)
    pair.first.due(10)
    pair.first.disconnect(10, until_ms=4_000)
    pair.first.disconnect(3_000, until_ms=8_000)
    assert pair.nodes(TIMEOUT_MS + 10) == []


def test_no_session_ends_while_the_store_is_down() -> None:
    pair = Pair()
    pair.submit(pair.first, PRESENT, 0)
    pair.first.due(10)
    pair.first.kill(10)
    pair.store.stop(5_000, until_ms=50_000)
    assert pair.nodes(50_100) == ["/e"]
    assert pair.nodes(50_010 + TIMEOUT_MS + 100) == []


def test_the_nodes_of_a_killed_broker_stay_until_its_session_times_out() -> None:
    pair = Pair()
    pair.submit(pair.first, PRESENT, 0)
    pair.first.due(10)
    pair.first.kill(10)
    pair.first = pair.store.connect(1)
    pair.submit(pair.first, PRESENT, 10)
    assert outcomes(pair.first.due(20)) == [Refused]
    assert pair.nodes(TIMEOUT_MS - 20) == ["/e"]
    assert pair.nodes(TIMEOUT_MS + 10) == []


def test_a_closed_connection_s_session_ends_at_once() -> None:
    pair = Pair()
    pair.submit(pair.first, PRESENT, 0)
    pair.first.due(10)
    pair.first.close(10)
    assert pair.nodes(10) == []


def test_an_expiry_answers_all_that_is_under_way_then_says_so() -> None:
    fates = set()
    for seed in range(20):
        pair = Pair(seed=seed)
        pair.submit(pair.first, ReadTree("/"), 0)
        assert outcomes(pair.first.due(10)) == [Tree]
        pair.submit(pair.first, Multi((Create("/a", b""),)), 10)
        pair.submit(pair.first, ReadTree("/"), 10)
        pair.first.expire(10)
        pair.submit(pair.first, ReadTree("/"), 10)
        assert outcomes(pair.first.due(100)) == [Unknown] * 3 + [SessionEnded]
        fates.add(tuple(pair.nodes(100)))
    assert fates == {(), ("/a",)}


def test_requests_of_a_broker_that_is_cut_off_wait_or_are_lost() -> None:
    fates = set()
    for seed in range(30):
        pair = Pair(seed=seed)
        pair.first.disconnect(0, until_ms=1_000)
        pair.submit(pair.first, Multi((Create("/a", b""),)), 0)
        early = outcomes(pair.first.due(999))
        late = outcomes(pair.first.due(1_100))
        fates.add((*early, None, *late, *pair.nodes(1_100)))
    assert fates == {(Unknown, None), (None, Done, "/a")}


def test_a_reading_that_is_not_synced_may_be_old_after_an_unknown_but_a_synced_one_is_not() -> None:
    """What was lost may be applied and not yet visible: nobody may take an old reading for a decision."""
    seen_old = 0
    for seed in range(60):
        pair = Pair(Faults(stale=1, lost=0, slow=0, watch_delay_ms_max=1_000), seed)
        pair.submit(pair.first, ReadTree("/"), 0)
        pair.first.due(100)
        pair.store.faults.lost = 1
        pair.submit(pair.first, Multi((Create("/a", b""),)), 100)
        assert outcomes(pair.first.due(150)) == [Unknown]
        pair.store.faults.lost = 0
        pair.submit(pair.first, ReadTree("/"), 150)
        pair.submit(pair.first, ReadTree("/", is_synced=True), 150)
        old, synced = pair.first.due(200)
        assert isinstance(old, StoreReply) and isinstance(synced, StoreReply)
        seen_old += old.outcome != synced.outcome
    assert seen_old > 5


def test_a_calm_store_loses_nothing_and_is_idle_when_all_is_told() -> None:
    pair = Pair()
    assert pair.store.next_ms == NEVER
    pair.first.submit(Watch("/"), 0)
    pair.submit(pair.first, ReadTree("/"), 0)
    pair.first.due(5)
    pair.submit(pair.second, Multi((Create("/a", b""),)), 5)
    assert (outcomes(pair.first.due(10)), outcomes(pair.second.due(10))) == ([Changed], [Done])
    assert pair.store.next_ms == NEVER
    assert set(pair.store.counts) <= {"requests", "watches", "coalesced watches", "stale readings"}
    assert pair.store.counts["stale readings"] == pair.store.counts["coalesced watches"] == 0
