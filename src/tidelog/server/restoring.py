"""A coordination store that was restored from a backup is made fit for use again, while no broker runs.

| step                                     | and if not                                               |
|------------------------------------------|----------------------------------------------------------|
| lock log.dirs, or connect to ZooKeeper   | the command fails: somebody has them, or nobody answers  |
| read the tree                            | the same                                                 |
| nobody is registered, or only sessions   | the same, after the session timeout: stop that broker    |
| that the backup has brought back         |                                                          |
| write what `decide_restored` says        | run the command again: it can be repeated                |

**Invariant:** the generation is written last; until then brokers that have seen a newer store refuse it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tidelog.base.config import BrokerSettings
from tidelog.cluster.image import Image
from tidelog.cluster.restored import decide_restored
from tidelog.cluster.store import (
    Action,
    Done,
    Multi,
    Outcome,
    ReadTree,
    Store,
    StoreReply,
    StoreRequest,
    Tree,
    reason_of,
)
from tidelog.server.locks import DirectoryLocks, StartFailed
from tidelog.server.stores.connect import CONNECT, connect
from tidelog.server.stores.embedded import STORE_FILE, EmbeddedStore

LOOK_SECONDS = 0.5  # between two readings; sessions take seconds to end
SESSION_SLACK_SECONDS = 2.0  # the store ends a session up to a tick of its own late


class Restored(NamedTuple):
    """What was written."""

    cluster_id: str
    generation: int
    topic_count: int
    partition_count: int
    broker_ids: tuple[int, ...]


async def declare_restored(properties: Mapping[str, str]) -> Restored:
    """Raises InvalidSetting or StartFailed; both say what is wrong and what to do."""
    settings = BrokerSettings(dict(properties))
    if settings.text(CONNECT):
        return await _rewrite(settings, settings.text(CONNECT))
    folders = settings.words("log.dirs")
    place = os.path.join(folders[0], STORE_FILE) if folders else ""
    if place and not await asyncio.to_thread(os.path.exists, place):  # before the locks, which make folders
        raise StartFailed(f"{place}: no such file; restore it first, or correct log.dirs")
    locks = DirectoryLocks(folders, "stop that broker")
    try:
        return await _rewrite(settings, os.path.join(locks.paths[0], STORE_FILE))
    finally:
        locks.release()


async def _rewrite(settings: BrokerSettings, place: str) -> Restored:
    woken = asyncio.Event()
    store = await _open(settings, place, partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set))
    asker = _Asker(store, woken, place)
    try:
        image = await _read_unused(asker, settings.number("zookeeper.session.timeout.ms") / 1_000)
        for operations in decide_restored(image):
            outcome = await asker.ask(Multi(tuple(operations)))
            if not isinstance(outcome, Done):
                what = f"not all was written ({reason_of(outcome)})"
                raise StartFailed(f"{place}: {what}; stop all brokers and run this again")
    finally:
        store.close()
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    brokers = tuple(sorted(image.broker_epochs))
    return Restored(image.cluster_id, image.generation + 1, len(image.topics), partitions, brokers)


async def _open(settings: BrokerSettings, place: str, notify: Callable[[], object]) -> Store:
    if settings.text(CONNECT):
        return await connect(settings, notify)
    return EmbeddedStore(place, notify)


async def _read_unused(asker: _Asker, session_seconds: float) -> Image:
    """The tree, once no broker is registered. Sessions that the backup has brought back end by themselves."""
    until = time.monotonic() + session_seconds + SESSION_SLACK_SECONDS
    while True:
        outcome = await asker.ask(ReadTree("/", is_synced=True))
        if not isinstance(outcome, Tree):
            raise StartFailed(f"{asker.place}: cannot be read ({reason_of(outcome)}); run this again")
        image = Image()
        image.take((), outcome.nodes)
        if not image.cluster_id:
            raise StartFailed(f"{asker.place}: there is no cluster here; restore the backup first")
        if not image.brokers or not asker.has_sessions:
            return image
        if time.monotonic() >= until:
            names = ", ".join(f"{each.node_id} at {each.host}:{each.port}" for each in image.brokers.values())
            raise StartFailed(
                f"{asker.place}: brokers are registered ({names}); stop them and run this again"
            )
        await asyncio.sleep(LOOK_SECONDS)


class _Asker:
    """One request at a time."""

    def __init__(self, store: Store, woken: asyncio.Event, place: str) -> None:
        self._store, self._woken = store, woken
        self._ticket = 0
        self.place = place
        self.has_sessions = not isinstance(store, EmbeddedStore)

    async def ask(self, action: Action) -> Outcome:
        self._ticket += 1
        self._store.submit(StoreRequest(self._ticket, action))
        while True:
            self._woken.clear()
            for event in self._store.receive():
                if isinstance(event, StoreReply) and event.ticket == self._ticket:
                    return event.outcome
            await self._woken.wait()
