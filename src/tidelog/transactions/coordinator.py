"""The transactions of one partition of `__transaction_state`: commands that decide, timers, expiration.

What a request leads to in each state is in `init`, `add` and `end`; here it is decided, answered and timed.

| what leaves                        | when                                                                 |
|------------------------------------|----------------------------------------------------------------------|
| markers of a transaction           | its Prepare* is committed; also that of a journal which was loaded   |
| the answer to EndTxn               | all markers are committed, or `END_WAIT_MS_MAX` after the decision   |
| every other answer, also refusals  | what it reflects is committed                                        |

Markers leave as answers do: the sender of markers is a ticket that is answered once for each Prepare*. So the
runtime has one rule for all that leaves, and what is refused or lost with its turn sends nothing. An EndTxn
does not wait for Complete*: that follows from what is committed by then (`Decision.tell`).

A timer only says that a transactional id is looked at. What happens is decided by its state of that moment.

**Invariant:** an answer is made when it is decided, and reflects nothing that comes later. Complete* is
decided when no marker is missing, and never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.base.decision import Ticket
from tidelog.base.limits import END_WAIT_MS_MAX, RETRY_MS
from tidelog.base.timers import Timer, Timers
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.add import codes_with_problems, decide_add, verify
from tidelog.transactions.end import decide_end
from tidelog.transactions.ending import Ending, markers_of
from tidelog.transactions.expiry import Expiry
from tidelog.transactions.init import decide_fence, decide_init
from tidelog.transactions.listing import Filters, listing
from tidelog.transactions.state import Transactions
from tidelog.transactions.transaction import Spot, State, Transaction
from tidelog.transactions.turn import (
    Add,
    End,
    Init,
    Marked,
    ProducerAnswer,
    Refused,
    Turn,
    told_code,
)

EXPIRY = ""  # the subject of a timer; no transactional id is empty
EXPIRY_PAUSE_MS = 100  # before what is left expires


class TransactionCoordinator(Transactions):
    def __init__(self, sender: Ticket) -> None:
        """`sender`: is given `Markers` to be written, and never fails."""
        super().__init__()
        self.timers: Timers[str] = Timers()
        self._sender = sender
        self._endings: dict[str, Ending] = {}
        self._timers: dict[str, Timer[str]] = {}  # of transactions that are open or prepared
        self._expiry_timer = Timer(EXPIRY)
        self._expiry = Expiry(self.transactions)

    # The life of a machine.

    def resume(self, turn: Turn) -> None:
        """Everything is loaded: time goes on, and the markers of prepared transactions are sent."""
        for transaction in list(self.transactions.values()):
            if transaction.state.is_prepared:
                self._begin_end(turn, transaction)
            self._time(turn, transaction.transactional_id, transaction)
        self._await_expiry(turn)

    def stop(self, turn: Turn) -> None:
        """The partition is led elsewhere: who waits is told."""
        for ending in self._endings.values():
            _dismiss(turn, ending, ErrorCode.not_coordinator)
        self._endings.clear()

    def undo(self, turn: Turn, refused: Turn, code: ErrorCode) -> None:
        """What a turn decided cannot be kept: its ids are what the journal has."""
        for transactional_id in refused.decided:
            ending = self._endings.pop(transactional_id, None)
            if ending is not None:
                _dismiss(turn, ending, code)
            kept = self.transactions.get(transactional_id)
            if kept is not None and kept.state.is_prepared:  # all markers are there, it completes later
                self._endings[transactional_id] = Ending(frozenset(), turn.uptime_ms + RETRY_MS)
            self._time(turn, transactional_id, kept, RETRY_MS)

    def current(self, turn: Turn, transactional_id: str) -> Transaction | None:
        """A transactional id as this turn has left it so far."""
        if transactional_id in turn.decided:
            return turn.decided[transactional_id]
        return self.transactions.get(transactional_id)

    # Commands.

    def init(self, turn: Turn, asked: Init, ticket: Ticket) -> None:
        try:
            decided = decide_init(self.current(turn, asked.transactional_id), asked, turn)
        except Refused as refusal:
            self._refuse(turn, asked, refusal.code, ticket)
            return
        self._decide(turn, decided)
        if decided.state is State.EMPTY:
            turn.decision.answer(ticket, ProducerAnswer(ErrorCode.none, decided.identity))
        else:
            self._refuse(turn, asked, ErrorCode.concurrent_transactions, ticket)

    def add(
        self, turn: Turn, asked: Add, ticket: Ticket, problems: Mapping[Spot, ErrorCode] | None = None
    ) -> None:
        """Answered with one error for each partition. `problems` are those of partitions that cannot be
        added, as the caller sees the cluster."""
        if problems:
            turn.decision.answer(ticket, codes_with_problems(asked.partitions, problems))
            return
        found = self.current(turn, asked.transactional_id)
        ending = self._endings.get(asked.transactional_id)
        is_next = found is not None and asked.identity == found.next_identity
        if ending is not None and ending.is_awaited and is_next:
            ending.adds.append((ticket, asked))
            return
        try:
            decided = decide_add(found, asked, turn)
        except Refused as refusal:
            self._refuse_all(turn, asked, refusal.code, ticket)
            return
        if decided is not found:
            self._decide(turn, decided)
        turn.decision.answer(ticket, [ErrorCode.none] * len(asked.partitions))

    def verify(self, turn: Turn, asked: Add, ticket: Ticket) -> None:
        """Answered with one error for each partition: whether it is in the open transaction."""
        try:
            codes = verify(self.current(turn, asked.transactional_id), asked)
        except Refused as refusal:
            self._refuse_all(turn, asked, refusal.code, ticket)
            return
        turn.decision.answer(ticket, codes)

    def end(self, turn: Turn, asked: End, ticket: Ticket) -> None:
        found = self.current(turn, asked.transactional_id)
        try:
            decided = decide_end(found, asked, turn)
        except Refused as refusal:
            self._refuse(turn, asked, refusal.code, ticket)
            return
        if decided is not found:
            decided = self._decide(turn, decided)
        answer = ProducerAnswer(ErrorCode.none, decided.next_identity)
        ending = self._endings.get(asked.transactional_id)
        if ending is not None and ending.is_awaited:
            ending.ends.append((ticket, answer))
        else:
            turn.decision.answer(ticket, answer)

    def marked(self, turn: Turn, done: Marked) -> None:
        """Markers are committed. Those of an earlier end are no news."""
        found = self.current(turn, done.transactional_id)
        ending = self._endings.get(done.transactional_id)
        if found is None or ending is None or (found.identity, found.number) != (done.identity, done.number):
            return
        ending.missing -= frozenset(done.partitions)
        if not ending.missing:
            self._complete(turn, found)

    def describe(self, turn: Turn, transactional_ids: Iterable[str], ticket: Ticket) -> None:
        """Answered with a transaction for each id, or None."""
        found = [self.current(turn, transactional_id) for transactional_id in transactional_ids]
        turn.decision.answer(ticket, found)

    def list_transactions(self, turn: Turn, filters: Filters, ticket: Ticket) -> None:
        known = {**self.transactions, **turn.decided}
        found = [each for each in known.values() if each is not None]
        turn.decision.answer(ticket, listing(found, filters, turn.now_ms))

    @staticmethod
    def _refuse(turn: Turn, asked: Init | End, code: ErrorCode, ticket: Ticket) -> None:
        turn.decision.answer(ticket, ProducerAnswer(told_code(code, asked.knows_fencing)))

    @staticmethod
    def _refuse_all(turn: Turn, asked: Add, code: ErrorCode, ticket: Ticket) -> None:
        code = told_code(code, asked.knows_fencing)
        turn.decision.answer(ticket, [code] * len(asked.partitions))

    # What follows from a decision.

    def _decide(self, turn: Turn, transaction: Transaction) -> Transaction:
        """What a transactional id is from now on. A prepared transaction without partitions is complete."""
        if transaction.state.is_prepared and not transaction.partitions:
            transaction = transaction.completed(turn.now_ms)
        turn.decide(transaction)
        if transaction.state.is_prepared:
            self._begin_end(turn, transaction)
        self._time(turn, transaction.transactional_id, transaction)
        return transaction

    def _begin_end(self, turn: Turn, prepared: Transaction) -> None:
        until_ms = turn.uptime_ms + END_WAIT_MS_MAX
        self._endings[prepared.transactional_id] = Ending(prepared.partitions, until_ms)
        if prepared.partitions:
            turn.decision.answer(self._sender, markers_of(prepared))

    def _complete(self, turn: Turn, prepared: Transaction) -> None:
        """The outcome and all markers are committed."""
        ending = self._endings.pop(prepared.transactional_id)
        self._decide(turn, prepared.completed(turn.now_ms))
        for ticket, answer in ending.ends:
            turn.decision.tell(ticket, answer)
        for ticket, asked in ending.adds:
            if ticket.is_gone:  # nobody may be there to end what this would begin
                self._refuse_all(turn, asked, ErrorCode.concurrent_transactions, ticket)
            else:
                self.add(turn, asked, ticket)

    # Time.

    def _time(
        self, turn: Turn, transactional_id: str, found: Transaction | None, delay_ms_min: int = 0
    ) -> None:
        """When a transaction is looked at next, if that is to happen by itself."""
        ending = self._endings.get(transactional_id)
        if found is not None and found.state is State.ONGOING:
            delay_ms = max(found.ends_ms - turn.now_ms, delay_ms_min)
        elif ending is not None and (ending.is_awaited or not ending.missing):
            delay_ms = max(ending.until_ms - turn.uptime_ms, delay_ms_min)
        else:
            timer = self._timers.pop(transactional_id, None)
            if timer is not None:
                self.timers.stop(timer)
            return
        timer = self._timers.setdefault(transactional_id, Timer(transactional_id))
        self.timers.set(timer, turn.uptime_ms + delay_ms)

    def tick(self, turn: Turn) -> None:
        """Let the next of what is due happen."""
        transactional_id = self.timers.pop_due(turn.uptime_ms)
        if transactional_id is None:
            return
        if transactional_id == EXPIRY:
            self._await_expiry(turn, 0 if self._expiry.expire_piece(turn) else EXPIRY_PAUSE_MS)
            return
        found = self.current(turn, transactional_id)
        if found is None:
            return
        if found.state is State.ONGOING and found.ends_ms <= turn.now_ms:
            self._time_out(turn, found)
        elif found.state.is_prepared:
            self._stop_waiting(turn, found)
        else:
            self._time(turn, transactional_id, found)

    def _time_out(self, turn: Turn, found: Transaction) -> None:
        try:
            self._decide(turn, decide_fence(found, turn))
        except Refused:  # there is no producer id at hand
            self._time(turn, found.transactional_id, found, RETRY_MS)

    def _stop_waiting(self, turn: Turn, prepared: Transaction) -> None:
        """Markers take long: EndTxn is told what was decided, and who is early comes again."""
        ending = self._endings[prepared.transactional_id]
        if not ending.missing:
            self._complete(turn, prepared)
            return
        ending.is_awaited = False
        ends, ending.ends = ending.ends, []
        adds, ending.adds = ending.adds, []
        for ticket, answer in ends:
            turn.decision.answer(ticket, answer)
        for ticket, asked in adds:
            self._refuse_all(turn, asked, ErrorCode.concurrent_transactions, ticket)

    def _await_expiry(self, turn: Turn, delay_ms: int = 0) -> None:
        key = "transaction.remove.expired.transaction.cleanup.interval.ms"
        self.timers.set(self._expiry_timer, turn.uptime_ms + (delay_ms or turn.settings.number(key)))


def _dismiss(turn: Turn, ending: Ending, code: ErrorCode) -> None:
    """Nobody is waited for here any more."""
    waiting: list[tuple[Ticket, Any]] = [(ticket, ProducerAnswer(code)) for ticket, _ in ending.ends]
    waiting += [(ticket, [code] * len(asked.partitions)) for ticket, asked in ending.adds]
    for ticket, answer in waiting:
        turn.decision.answer(ticket, answer)
