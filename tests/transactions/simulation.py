"""A seeded walk of clients, coordinator and leaders: requests and markers are delayed, repeated, reordered
and lost; the coordinator restarts from its journal, with some of what was not committed, or without.

| checked after every step                                                                              |
|-------------------------------------------------------------------------------------------------------|
| the machine's state is what a replay of the bytes that were written gives                             |
| markers leave for a decision that is committed, with the outcome that was committed, and no other one |
| who is told that a transaction is committed, or aborted: so it was decided                            |
| who is told that a partition is added: it has a marker when the transaction ends                      |
| a transaction is complete when all its markers are there                                              |
| at the end nothing stands in Prepare*, and a client that was alone was never fenced                   |

**Invariant:** the same seed gives the same walk.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.transactions.desk import Desk, Waiting, latest
from tidelog.base.decision import Entry
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.state import Transactions
from tidelog.transactions.transaction import EPOCH_MAX, NO_IDENTITY, Identity, Spot, Transaction
from tidelog.transactions.turn import Add, End, Init, Markers

IDS = ("t", "u")
PARTITIONS: tuple[Spot, ...] = (("a", 0), ("a", 1), ("b", 0))
RETRIED = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
STEPS = 250


class Violation(AssertionError):
    pass


class Request(NamedTuple):
    client: Client
    asked: Init | Add | End
    ticket: Waiting


class Client:
    """One instance of a producer with the new protocol: transactions, one after the other."""

    def __init__(self, world: World, tid: str) -> None:
        self.world = world
        self.tid = tid
        self.identity = NO_IDENTITY
        self.added: list[Spot] = []
        self.wants_commit: bool | None = None  # once it has asked for an end
        self.pending: Request | None = None
        self.is_stopped = False

    def step(self) -> None:
        random = self.world.random
        if self.is_stopped:
            return
        if self.pending is not None:
            self._take_answer(self.pending)
        elif self.identity == NO_IDENTITY:
            self._ask(Init(self.tid, 60_000))
        elif self.wants_commit is not None or (random.random() < 0.3):
            if self.wants_commit is None:
                self.wants_commit = bool(self.added) and random.random() < 0.6
            self._ask(End(self.tid, self.identity, self.wants_commit, is_new_protocol=True))
        else:
            spot = random.choice(PARTITIONS)
            self._ask(Add(self.tid, self.identity, (spot,), is_new_protocol=True))

    def _ask(self, asked: Init | Add | End) -> None:
        self.pending = Request(self, asked, Waiting())
        self.world.requests.append(self.pending)

    def _take_answer(self, request: Request) -> None:
        if not request.ticket.answers:
            if self.world.random.random() < 0.1:  # asked again: a time-out, or another coordinator
                self._ask(request.asked)
            return
        self.pending = None
        answer = request.ticket.answers[0]
        code = answer if isinstance(answer, ErrorCode) else answer[0]
        if code in RETRIED:
            self._ask(request.asked)
        elif code is not ErrorCode.none:
            self._stop(request.asked, code)
        elif isinstance(request.asked, Add):
            self.world.on_added(request.asked)
            self.added += request.asked.partitions
        else:
            if isinstance(request.asked, End):
                self.world.on_ended(request.asked, answer.identity)
            self.identity, self.added, self.wants_commit = answer.identity, [], None

    def _stop(self, asked: Init | Add | End, code: ErrorCode) -> None:
        self.is_stopped = True
        if self.world.is_calm and not isinstance(asked, Init):
            raise Violation(f"{self.tid}: the only client is stopped by {code.name}: {asked}")


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_calm = seed % 2 == 0  # no second instance and no timeout
        self.desk = Desk()
        self.desk.is_committing = False
        self.requests: list[Request] = []
        self.markers: list[Markers] = []
        self.clients = [Client(self, tid) for tid in IDS]
        self.outcomes: dict[tuple[str, Identity], bool] = {}  # by the identity that was ended
        self._marked: dict[tuple[str, int], Markers] = {}
        self._arrived: dict[tuple[str, int], set[Spot]] = {}
        self._added: dict[tuple[str, Identity], set[Spot]] = {}
        self._ended: dict[tuple[str, Identity], set[Spot]] = {}
        self._shadow = Transactions()
        self._replayed = 0
        if self.random.random() < 0.3:
            self._begin_at_the_last_epochs()

    def _begin_at_the_last_epochs(self) -> None:
        for client in self.clients:
            producer_id = self.desk.ids.take()
            assert producer_id is not None
            found = Transaction.new(client.tid, producer_id, 60_000, self.desk.now_ms)
            old = found._replace(producer_epoch=EPOCH_MAX - self.random.randint(2, 5))
            self.desk.run(lambda turn, old=old: turn.decide(old))  # type: ignore[misc]

    # Steps.

    def step(self) -> None:
        chosen = self.random.choices(*zip(*self._choices(), strict=True))[0]
        chosen()
        self._check()

    def _choices(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (lambda: self.random.choice(self.clients).step(), 30),
            (self._deliver_request, 30),
            (self._deliver_markers, 20),
            (self.desk.commit, 12),
            (lambda: self.desk.tick(self.random.choice((10, 300, 1_000))), 5),
            (self._restart, 1),
            (self._refuse_for_a_moment, 1),
            (self._empty_ids_for_a_moment, 1),
            (self._begin_another_instance, 0 if self.is_calm else 1),
            (lambda: self.desk.tick(0 if self.is_calm else 61_000), 1),
        ]

    def _deliver_request(self) -> None:
        if not self.requests:
            return
        index = self.random.randrange(len(self.requests))
        request = self.requests[index]
        if self.random.random() < 0.85:
            del self.requests[index]
        ticket = request.ticket if not request.ticket.answers else Waiting()
        self._run(request.asked, ticket)

    def _run(self, asked: Init | Add | End, ticket: Waiting) -> None:
        machine = self.desk.coordinator
        if isinstance(asked, Init):
            self.requests = [each for each in self.requests if each.asked != asked]  # asked once: it fences
            self.desk.run(lambda turn: machine.init(turn, asked, ticket))
        elif isinstance(asked, Add):
            self.desk.run(lambda turn: machine.add(turn, asked, ticket))
        else:
            self.desk.run(lambda turn: machine.end(turn, asked, ticket))

    def _deliver_markers(self) -> None:
        self._collect_markers()
        if not self.markers:
            return
        index = self.random.randrange(len(self.markers))
        markers = self.markers[index]
        if self.random.random() < 0.8:
            del self.markers[index]
            self._mark(markers, *markers.partitions)
        else:
            self._mark(markers, self.random.choice(markers.partitions))

    def _mark(self, markers: Markers, *partitions: Spot) -> None:
        key = markers.transactional_id, markers.number
        self._arrived.setdefault(key, set()).update(partitions)
        self.desk.mark(markers, *partitions)

    def _collect_markers(self) -> None:
        self.markers += self.desk.sender.sent
        self.desk.sender.sent = []

    def _restart(self) -> None:
        self._collect_markers()
        left = len(self.desk.journal) - self.desk.committed
        self.desk.restart(losing=self.random.randint(0, left))
        self._shadow, self._replayed = Transactions(), 0
        for request in self.requests:
            if not request.ticket.answers:
                request.ticket.fail(ErrorCode.not_coordinator)

    def _refuse_for_a_moment(self) -> None:
        self.desk.is_refusing = True
        self._deliver_request()
        self._deliver_markers()
        self.desk.tick(self.random.choice((0, 1_500)))
        self.desk.is_refusing = False

    def _empty_ids_for_a_moment(self) -> None:
        self.desk.ids.is_empty = True
        self._deliver_request()
        self.desk.ids.is_empty = False

    def _begin_another_instance(self) -> None:
        if len(self.clients) < 6:
            self.clients.append(Client(self, self.random.choice(IDS)))

    # What must hold.

    def on_added(self, asked: Add) -> None:
        """A client was told that partitions are in its transaction."""
        key = asked.transactional_id, asked.identity
        self._added.setdefault(key, set()).update(asked.partitions)

    def on_ended(self, asked: End, following: Identity) -> None:
        """A client was told that its transaction has ended, and who it is from now on."""
        if following == asked.identity:
            raise Violation(f"{asked} did not raise the epoch")
        outcome = self.outcomes.get((asked.transactional_id, asked.identity))
        if outcome is not asked.is_commit and (asked.is_commit or outcome is not None):
            raise Violation(f"{asked} was told none, and {outcome} was decided")

    def _check(self) -> None:
        self._check_replay()
        self._check_markers()
        self._check_complete()
        for key, spots in self._ended.items():
            missing = self._added.get(key, set()) - spots
            if missing:
                raise Violation(f"{key}: {sorted(missing)} were added, and have no marker")

    def _check_complete(self) -> None:
        for found in self.desk.coordinator.transactions.values():
            key = found.transactional_id, found.number
            markers = self._marked.get(key)
            if found.state.is_complete and markers is not None:
                missing = set(markers.partitions) - self._arrived.get(key, set())
                if missing:
                    raise Violation(f"{found} without markers in {sorted(missing)}")

    def _check_replay(self) -> None:
        journal = self.desk.journal
        if self._replayed == 0:
            for key, value in latest(journal).items():
                self._shadow.replay(Entry(key, value))
        else:
            for entry in journal[self._replayed :]:
                self._shadow.replay(Entry(entry.key, entry.value))
        self._replayed = len(journal)
        if self._shadow.transactions != self.desk.coordinator.transactions:
            raise Violation("a replay gives another state")

    def _check_markers(self) -> None:
        for markers in self.desk.sender.sent:
            key = markers.transactional_id, markers.number
            if self._marked.setdefault(key, markers) != markers:
                raise Violation(f"{markers} after {self._marked[key]}")
            if not any(_is_decision_of(entry, markers) for entry in self.desk.journal[: self.desk.committed]):
                raise Violation(f"{markers} before its decision was committed")
            ended = Identity(markers.identity.producer_id, markers.identity.epoch - 1)
            self.outcomes[markers.transactional_id, ended] = markers.is_commit
            self._ended[markers.transactional_id, ended] = set(markers.partitions)

    def finish(self) -> None:
        """All that is under way arrives, time passes, everybody is answered."""
        for _ in range(50):
            while self.requests:
                request = self.requests.pop(0)
                if not request.ticket.answers:
                    self._run(request.asked, request.ticket)
                self._check()
            self._collect_markers()
            while self.markers:
                markers = self.markers.pop(0)
                self._mark(markers, *markers.partitions)
            self.desk.commit()
            self._check()
            for client in self.clients:
                client.step()
            self.desk.tick(1_000)
        self.requests.clear()
        self.desk.commit()
        self._collect_markers()
        for markers in self.markers:
            self._mark(markers, *markers.partitions)
        self.desk.commit()
        for found in self.desk.coordinator.transactions.values():
            if found.state.is_prepared:
                raise Violation(f"{found} stays prepared")


def _is_decision_of(entry: Entry, markers: Markers) -> bool:
    fact = entry.fact
    if not isinstance(fact, Transaction) or not fact.state.is_prepared:
        return False
    return (fact.transactional_id, fact.number, fact.state.is_commit) == (
        markers.transactional_id,
        markers.number,
        markers.is_commit,
    )


def walk(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.finish()
    return world
