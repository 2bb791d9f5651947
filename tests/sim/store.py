"""The shared store as the brokers of a cluster may meet it: slow, forgetful, behind, cut off, down.

A request travels to the store, is carried out there, and its answer travels back; a broker's requests keep
their order both ways. What `Faults` says happens by chance, the rest when it is told to.

| fault               | what the broker meets                                                              |
|---------------------|------------------------------------------------------------------------------------|
| a lost answer       | `Unknown`; the multi was applied, or never will be. With `late`: is applied after  |
|                     | the `Unknown`, but before anything else of that session                            |
| an old view         | readings that are not synced show a point of the past; so may a new session's      |
| a watch             | comes late, and once for several changes                                           |
| `disconnect`        | requests wait, or are lost. After the session's timeout the store ends the session; |
|                     | the broker hears of it when it is back                                             |
| `kill`              | the broker is gone; its session stays until it has timed out                       |
| `expire`            | `Unknown` for all that is under way, then `SessionEnded`                           |
| `SimulatedStore.stop` | as if everybody were disconnected, but no session ends meanwhile                 |

**Invariant:** the same seed and the same calls give the same events; whatever happens, the store's contract
(`tidelog.cluster.store`) holds.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from tidelog.cluster.store import (
    Done,
    Multi,
    Outcome,
    SessionEnded,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Unknown,
    Watch,
)
from tidelog.cluster.tree import Session, SharedTree

NEVER = 1 << 62


@dataclass(slots=True)
class Faults:
    """What goes wrong by chance. May be changed while the store is used."""

    delay_ms_max: int = 10  # each way
    slow: float = 0.02
    slow_ms_max: int = 500
    watch_delay_ms_max: int = 200
    lost: float = 0.03
    late: float = 0.0  # of the lost ones
    stale: float = 0.3
    session_timeout_ms: int = 6_000


def calm() -> Faults:
    return Faults(delay_ms_max=1, slow=0, watch_delay_ms_max=1, lost=0, stale=0)


class Fate(Enum):
    ANSWERED = auto()
    LOST_BEFORE = auto()  # and never applied
    LOST_AFTER = auto()
    LATE = auto()


@dataclass(slots=True)
class Arrival:
    """A request on its way to the store."""

    at_ms: int
    request: StoreRequest | Watch
    fate: Fate


class SimulatedStore:
    """Somebody has to call `due` of every connection when it is `next_ms`."""

    def __init__(self, random: Random, faults: Faults | None = None) -> None:
        self.random = random
        self.faults = faults or Faults()
        self.tree = SharedTree()
        self.counts: Counter[str] = Counter()
        self.down_until_ms = 0
        self._connections: list[SimulatedConnection] = []
        self.now_ms = 0

    def connect(self, node: int) -> SimulatedConnection:
        connection = SimulatedConnection(self, node)
        self._connections.append(connection)
        return connection

    def stop(self, now_ms: int, until_ms: int) -> None:
        self.advance(now_ms)
        self.counts["outages"] += 1
        self.down_until_ms = max(self.down_until_ms, until_ms)
        for connection in self._connections:
            connection.cut(self.down_until_ms)
            connection.wait_for_the_store()

    @property
    def next_ms(self) -> int:
        return min([connection.next_ms for connection in self._connections], default=NEVER)

    def advance(self, now_ms: int) -> None:
        """Let everything happen at the store that happens until then, in its order."""
        assert now_ms >= self.now_ms, "time does not go back"
        self.now_ms = now_ms
        while True:
            first = min(self._connections, key=lambda connection: connection.step_ms, default=None)
            if first is None or first.step_ms > now_ms:
                return
            step_ms, point = first.step_ms, self.tree.newest
            first.step(step_ms)
            self.spread(step_ms, point)

    def spread(self, now_ms: int, point: int) -> None:
        """Let everybody see, some time, what was committed since that point."""
        if self.tree.newest > point:
            touched = list(self.tree.touched_between(max(point, self.tree.oldest), self.tree.newest))
            for connection in self._connections:
                connection.on_commit(now_ms, touched)

    def node_of(self, session: Session | None) -> int | None:
        """Whose session that is, as long as it lasts."""
        return next((each.node for each in self._connections if each.has(session)), None)

    def forget(self, connection: SimulatedConnection) -> None:
        self._connections.remove(connection)

    def delay_ms(self) -> int:
        is_slow = self.random.random() < self.faults.slow
        return self.random.randint(0, self.faults.slow_ms_max if is_slow else self.faults.delay_ms_max)

    def fate(self) -> Fate:
        if self.random.random() >= self.faults.lost:
            return Fate.ANSWERED
        if self.random.random() < self.faults.late:
            return Fate.LATE
        return self.random.choice((Fate.LOST_BEFORE, Fate.LOST_AFTER))


class SimulatedConnection:
    """One broker's way to the store. Times are the simulation's."""

    def __init__(self, store: SimulatedStore, node: int) -> None:
        self.node = node
        self._store = store
        self._random = store.random
        self._session: Session | None = None
        self._arrivals: deque[Arrival] = deque()
        self._late: Multi | None = None  # answered with Unknown, and not applied yet
        self._late_ms = NEVER
        self._sent: deque[tuple[int, StoreEvent]] = deque()  # on its way back, with when it comes
        self._catch_up_ms = NEVER  # when the view goes on by itself
        self._cut_until_ms = store.down_until_ms
        self._silent_since_ms = store.down_until_ms
        self._expiry_ms = NEVER  # when the store ends the session if it is not heard of
        self._ended_ms = NEVER  # when the broker will know that its session was ended
        self._is_killed = False
        self._is_held = False
        self._unreported: Counter[str] = Counter()  # changes near a path since the broker last heard of it

    def has(self, session: Session | None) -> bool:
        return session is not None and self._session is session

    # The broker's side.

    def submit(self, request: StoreRequest | Watch, now_ms: int) -> None:
        self._store.advance(now_ms)
        self._store.counts["requests"] += isinstance(request, StoreRequest)
        if self._ended_ms != NEVER:
            if isinstance(request, StoreRequest):
                self._send(now_ms, StoreReply(request.ticket, Unknown("the session has ended")), 1)
            return
        is_cut = now_ms < self._cut_until_ms
        fate = Fate.ANSWERED if isinstance(request, Watch) else self._store.fate()
        if is_cut and isinstance(request, StoreRequest) and self._random.random() < 0.5:
            fate = Fate.LOST_BEFORE
        starts_ms = self._cut_until_ms if is_cut and fate is not Fate.LOST_BEFORE else now_ms
        self._travel(Arrival(starts_ms + self._store.delay_ms(), request, fate))

    def due(self, now_ms: int) -> list[StoreEvent]:
        """What has come by now."""
        self._store.advance(now_ms)
        events: list[StoreEvent] = []
        while self._sent and self._sent[0][0] <= now_ms:
            events.append(self._sent.popleft()[1])
        if not self._sent and self._ended_ms <= now_ms:
            self._ended_ms = NEVER
            events.append(SessionEnded())
        return events

    @property
    def next_ms(self) -> int:
        """When something happens here or may be received, if nothing is submitted before."""
        return min(self.step_ms, self._sent[0][0] if self._sent else self._ended_ms)

    # What may befall it.

    def disconnect(self, now_ms: int, until_ms: int) -> None:
        self._store.advance(now_ms)
        self._store.counts["disconnections"] += 1
        self._fall_silent(now_ms)
        self.cut(until_ms)
        self._plan_expiry()

    def kill(self, now_ms: int) -> None:
        """The broker's process is gone. What it sent last has arrived, or has not, or will while its session
        stands."""
        self._store.advance(now_ms)
        self._is_killed, point = True, self._store.tree.newest
        is_heard = self._is_held or self._random.random() < 0.5
        if self._session is None or not is_heard:
            self._settle_under_way(now_ms)
        else:
            self._store.counts["under way after a kill"] += len(self._arrivals)
        self._store.spread(now_ms, point)
        self._sent.clear()
        self._ended_ms = NEVER
        self._fall_silent(now_ms)
        self._plan_expiry()

    def close(self, now_ms: int) -> None:
        """The broker says goodbye, if anybody can hear it."""
        self.kill(now_ms)
        if now_ms >= self._cut_until_ms:
            self.expire(now_ms)

    def expire(self, now_ms: int) -> None:
        """The store gives the session up, if there is one."""
        self._store.advance(now_ms)
        if self._session is not None or self._is_killed:
            self._expiry_ms = now_ms
            self._store.advance(now_ms)

    def cut(self, until_ms: int) -> None:
        """Nothing goes either way. Either the connection breaks, or it only waits."""
        self._cut_until_ms = max(self._cut_until_ms, until_ms)
        breaks = self._random.random() < 0.5
        arrivals, self._arrivals = self._arrivals, deque()
        for arrival in arrivals:
            if breaks and isinstance(arrival.request, StoreRequest):
                arrival.fate = Fate.LOST_BEFORE
            elif arrival.fate is not Fate.LOST_BEFORE:
                arrival.at_ms = max(arrival.at_ms, self._cut_until_ms + self._store.delay_ms())
            self._travel(arrival)
        sent, self._sent = self._sent, deque()
        for at_ms, event in sent:
            if breaks and isinstance(event, StoreReply):
                self._send(at_ms, self._made_unknown(event), 0)
            else:
                self._send(max(at_ms, self._cut_until_ms), event, 0)
        if self._catch_up_ms != NEVER:
            self._catch_up_ms = max(self._catch_up_ms, self._cut_until_ms)
        if self._ended_ms != NEVER:
            self._ended_ms = max(self._ended_ms, self._cut_until_ms)

    def hold(self, until_ms: int, fate: Fate | None = None) -> None:
        """What is on its way arrives then, whatever becomes of who sent it while its session stands."""
        self._is_held = True
        for arrival in self._arrivals:
            arrival.at_ms = max(arrival.at_ms, until_ms)
            arrival.fate = fate or arrival.fate

    def wait_for_the_store(self) -> None:
        """A store that was down gives everybody the whole timeout again."""
        self._silent_since_ms = self._store.down_until_ms
        self._plan_expiry()

    def _fall_silent(self, now_ms: int) -> None:
        if now_ms >= self._cut_until_ms:
            self._silent_since_ms = now_ms

    def _plan_expiry(self) -> None:
        times_out_ms = self._silent_since_ms + self._store.faults.session_timeout_ms
        is_back_before = self._session is None or self._cut_until_ms <= times_out_ms
        will_end = self._is_killed or not is_back_before
        self._expiry_ms = max(times_out_ms, self._store.now_ms) if will_end else NEVER

    # The store's side.

    @property
    def step_ms(self) -> int:
        """When the next thing happens at the store."""
        arrival_ms = self._arrivals[0].at_ms if self._arrivals else NEVER
        return min(self._expiry_ms, self._late_ms, arrival_ms, self._catch_up_ms)

    def step(self, now_ms: int) -> None:
        if self._expiry_ms <= now_ms:
            self._end_session(now_ms)
        elif self._late_ms <= now_ms:
            self._apply_late()
        elif self._arrivals and self._arrivals[0].at_ms <= now_ms:
            self._arrive(self._arrivals.popleft())
        else:
            self._catch_up(now_ms)

    def on_commit(self, now_ms: int, touched: list[str]) -> None:
        for path in touched:
            self._unreported.update({path, path.rpartition("/")[0] or "/"})
        self._plan_catching_up(now_ms)

    def _plan_catching_up(self, now_ms: int) -> None:
        if self._session is not None and self._catch_up_ms == NEVER:
            delay_ms = self._random.randint(0, self._store.faults.watch_delay_ms_max)
            self._catch_up_ms = max(now_ms, self._cut_until_ms) + delay_ms

    def _catch_up(self, now_ms: int) -> None:
        self._catch_up_ms = NEVER
        session, newest = self._session, self._store.tree.newest
        if session is None or session.seen == newest:
            return
        session.see(self._random.randint(session.seen + 1, newest))
        self._send_changes(now_ms, session)
        if session.seen < newest:
            self._plan_catching_up(now_ms)

    def _arrive(self, arrival: Arrival) -> None:
        request, now_ms = arrival.request, arrival.at_ms
        if arrival.fate is Fate.LOST_BEFORE:
            assert isinstance(request, StoreRequest)
            self._count_lost(request, None)
            self._send(now_ms, StoreReply(request.ticket, Unknown("the request was lost")))
            return
        self._apply_late()
        session = self._session = self._session or self._opened()
        if isinstance(request, Watch):
            session.watch(request.path)
        elif arrival.fate is Fate.LATE and isinstance(request.action, Multi):
            delay_ms = self._random.randint(0, self._store.faults.slow_ms_max)
            self._late, self._late_ms = request.action, now_ms + delay_ms
            self._send(now_ms, StoreReply(request.ticket, Unknown("the answer was lost")))
        else:
            self._carry_out(arrival, request, session)

    def _opened(self) -> Session:
        tree = self._store.tree
        is_stale = self._random.random() < self._store.faults.stale
        return tree.open_session(self._random.randint(tree.oldest, tree.newest) if is_stale else None)

    def _carry_out(self, arrival: Arrival, request: StoreRequest, session: Session) -> None:
        is_lost = arrival.fate is not Fate.ANSWERED
        if is_lost and isinstance(
            request.action, Multi
        ):  # the view does not go on: nobody was shown anything
            outcome: Outcome = self._store.tree.change(session, request.action.operations)
        elif is_lost:
            outcome = Unknown("the answer was lost")
        else:
            outcome = session.perform(request.action, self._point(session))
            self._store.counts["stale readings"] += session.seen < self._store.tree.newest
            self._send_changes(arrival.at_ms, session)
        if is_lost:
            self._count_lost(request, outcome)
            outcome = Unknown("the answer was lost")
        self._send(arrival.at_ms, StoreReply(request.ticket, outcome))

    def _point(self, session: Session) -> int | None:
        is_stale = self._random.random() < self._store.faults.stale
        return self._random.randint(session.seen, self._store.tree.newest) if is_stale else None

    def _apply_late(self) -> None:
        if self._late is not None:
            outcome = self._store.tree.change(self._session, self._late.operations)
            self._store.counts["late, applied" if outcome == Done() else "late, refused"] += 1
        self._late, self._late_ms = None, NEVER

    def _end_session(self, now_ms: int) -> None:
        self._settle_under_way(now_ms)
        self._expiry_ms = self._catch_up_ms = NEVER
        if self._session is not None:
            self._store.tree.end_session(self._session)
            self._session = None
            if not self._is_killed:
                self._store.counts["expiries"] += 1
                self._ended_ms = max(now_ms, self._cut_until_ms) + self._store.delay_ms()
        if self._is_killed:
            self._store.forget(self)

    def _settle_under_way(self, now_ms: int) -> None:
        """Nothing more arrives: everything gets an Unknown, and it is decided what of it was applied."""
        self._apply_late()
        arrivals, self._arrivals = self._arrivals, deque()
        is_cut = now_ms < self._cut_until_ms
        applied_count = 0 if is_cut else self._random.randint(0, len(arrivals))
        for place, arrival in enumerate(arrivals):
            if isinstance(arrival.request, StoreRequest):
                is_applied = place < applied_count and arrival.fate is not Fate.LOST_BEFORE
                arrival.fate = Fate.LOST_AFTER if is_applied else Fate.LOST_BEFORE
                arrival.at_ms = now_ms
                self._arrive(arrival)
        sent, self._sent = self._sent, deque()
        for at_ms, event in sent:
            if isinstance(event, StoreReply):
                self._send(at_ms, self._made_unknown(event), 0)

    # On the way.

    def _travel(self, arrival: Arrival) -> None:
        if self._arrivals:
            arrival.at_ms = max(arrival.at_ms, self._arrivals[-1].at_ms)
        self._arrivals.append(arrival)

    def _send(self, now_ms: int, event: StoreEvent, delay_ms: int | None = None) -> None:
        if self._is_killed:
            return
        at_ms = now_ms + (self._store.delay_ms() if delay_ms is None else delay_ms)
        self._sent.append((max(at_ms, self._sent[-1][0]) if self._sent else at_ms, event))

    def _send_changes(self, now_ms: int, session: Session) -> None:
        for changed in session.take_changes():
            self._store.counts["watches"] += 1
            self._store.counts["coalesced watches"] += self._unreported.pop(changed.path, 0) > 1
            self._send(now_ms, changed)

    def _made_unknown(self, reply: StoreReply) -> StoreReply:
        if isinstance(reply.outcome, Unknown):
            return reply
        self._store.counts["lost, applied" if reply.outcome == Done() else "lost, nothing to apply"] += 1
        return StoreReply(reply.ticket, Unknown("the connection was lost"))

    def _count_lost(self, request: StoreRequest, outcome: Outcome | None) -> None:
        if not isinstance(request.action, Multi):
            kind = "lost, nothing to apply"
        else:
            kind = "lost, applied" if outcome == Done() else "lost, not applied"
        self._store.counts[kind] += 1
