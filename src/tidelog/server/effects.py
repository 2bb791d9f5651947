"""What the broker asks the shell for, besides answers: to whom each goes.

**Invariant:** effects are passed on in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.broker.outbox import Effect, Removal
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.cluster.store import StoreRequest, Watch
from tidelog.server.jobs import Jobs
from tidelog.server.peers import Peers
from tidelog.server.removals import Removals
from tidelog.server.store_link import StoreLink


class Effects:
    def __init__(self, store: StoreLink, peers: Peers, jobs: Jobs, removals: Removals) -> None:
        self._store = store
        self._peers = peers
        self._jobs = jobs
        self._removals = removals

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PeerSend):
                self._peers.send(effect)
            elif isinstance(effect, StoreRequest | Watch):
                self._store.submit(effect)
            elif isinstance(effect, PeerClose):
                self._peers.drop(effect)
            elif isinstance(effect, Removal):
                self._removals.add(effect)
            else:
                self._jobs.start(effect)
