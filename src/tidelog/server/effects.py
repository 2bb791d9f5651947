"""What the broker asks the shell for, besides answers and fsyncs: to whom each goes.

**Invariant:** effects are passed on in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic_ns

from tidelog.base.events import Event, info, warning
from tidelog.broker.broker import Effect
from tidelog.broker.lookups import ColdRead
from tidelog.broker.partitions import Checkpoint
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.broker.relocation import CopyRequest
from tidelog.cluster.store import Store, StoreRequest, Watch
from tidelog.server.jobs import Jobs
from tidelog.server.peers import Peers
from tidelog.server.vitals import Vitals


class Effects:
    def __init__(self, store: Store, peers: Peers, jobs: Jobs) -> None:
        self._store = store
        self._peers = peers
        self._jobs = jobs
        self._submitted_ns: dict[int, int] = {}  # when what the store works on was asked, by ticket

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PeerSend):
                self._peers.send(effect)
            elif isinstance(effect, StoreRequest):
                self._submitted_ns[effect.ticket] = monotonic_ns()
                self._store.submit(effect)
            elif isinstance(effect, Watch):
                self._store.submit(effect)
            elif isinstance(effect, PeerClose):
                self._peers.drop(effect)
            elif isinstance(effect, Checkpoint):
                self._jobs.write_checkpoint(effect)
            elif isinstance(effect, CopyRequest):
                self._jobs.copy(effect)
            elif isinstance(effect, ColdRead):
                self._jobs.read_cold(effect)
            else:
                self._jobs.remove_later(effect)

    def took_ns(self, ticket: int) -> int:
        """How long the store has worked on what it answers now."""
        return monotonic_ns() - self._submitted_ns.pop(ticket)

    def store_news(self, vitals: Vitals) -> Event | None:
        """That the store cannot be reached any more, or can again."""
        is_connected = self._store.is_connected
        if is_connected == vitals.is_store_connected:
            return None
        vitals.is_store_connected = is_connected
        return info("store reached") if is_connected else warning("store not reached")
