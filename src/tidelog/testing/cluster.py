"""A replicated cluster inside your test: brokers on threads of their own, with real sockets and real files.

    with Cluster(3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.kill(2)
        cluster.start(2)

The brokers share a store in memory and are numbered from 1 on. By default topics have three
replicas, or as many as there are brokers, of which two must be in sync for acks=all (the production profile);
settings are those of `Broker`, for all of them. `racks=["a", "b", "c"]` puts the first in rack a and so on,
and over again if there are more. With `log_dirs=tmp_path` broker 1 has its files in `tmp_path/1`, and they
stay.

**Invariant:** after the `with` block nothing is left: no thread, no port, no temporary directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from tidelog.testing.broker import START_TIMEOUT_S, Broker, OpenStore

REPLICAS = 3
_LOOK_S = 0.002  # between two looks at what the brokers know


class _Member(Broker):
    def __init__(self, open_store: OpenStore, **properties: object) -> None:
        super().__init__(**properties)
        self._open_store = open_store


class Cluster:
    """Some brokers; a context manager."""

    def __init__(self, brokers: int = 3, racks: list[str] | None = None, **properties: object) -> None:
        from tidelog.server.stores.memory import MemoryStore, MemoryTree

        if brokers < 1 or racks == []:
            raise ValueError(f"a cluster has one broker at least, and no racks or some: {brokers=}, {racks=}")
        tree = MemoryTree()
        replicas = min(REPLICAS, brokers)
        named = {name.replace("_", "."): value for name, value in properties.items()}
        named.setdefault("default.replication.factor", replicas)
        named.setdefault("offsets.topic.replication.factor", replicas)
        named.setdefault("transaction.state.log.replication.factor", replicas)
        named.setdefault("min.insync.replicas", min(2, replicas))
        self.brokers: dict[int, Broker] = {}
        for node_id in range(1, brokers + 1):
            own = named | _of_its_own(named, node_id)
            if racks is not None:
                own["broker.rack"] = racks[(node_id - 1) % len(racks)]
            self.brokers[node_id] = _Member(lambda notify: MemoryStore(tree, notify), **own)
        self._stack = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`: all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def __getitem__(self, node_id: int) -> Broker:
        if node_id not in self.brokers:
            raise ValueError(f"no broker {node_id} here: there are {sorted(self.brokers)}")
        return self.brokers[node_id]

    def kill(self, node_id: int) -> None:
        """Drop everything of one broker at once, as a crash of its process would."""
        self[node_id].kill()

    def stop(self, node_id: int) -> None:
        """A clean shutdown of one broker: its leaderships are handed over first."""
        self[node_id].stop()

    def start(self, node_id: int) -> None:
        """Start a broker that was killed or stopped, with the same port and directory."""
        self[node_id].start()
        self._await_each_other()

    def restart(self, node_id: int) -> None:
        """Stop one broker cleanly if it runs, then start it again."""
        self[node_id].restart()
        self._await_each_other()

    def _await_each_other(self) -> None:
        """Until those that run know each other: what is asked of one of them then counts on all."""
        running = {node_id for node_id, broker in self.brokers.items() if broker.is_running}
        deadline = monotonic() + START_TIMEOUT_S
        for node_id in running:
            while missing := running - self.brokers[node_id].known_ids:
                if monotonic() > deadline:
                    raise TimeoutError(f"broker {node_id} does not know of {sorted(missing)}")
                sleep(_LOOK_S)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for broker in self.brokers.values():
                stack.enter_context(broker)
            self._await_each_other()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _of_its_own(named: Mapping[str, object], node_id: int) -> dict[str, object]:
    """The settings in which brokers must differ."""
    for name in ("node.id", "broker.id"):
        if name in named:
            raise ValueError(f"{name}={named[name]}: the brokers of a cluster are numbered from 1 on")
    own: dict[str, object] = {"node.id": node_id}
    if "log.dirs" in named:
        folders = str(named["log.dirs"]).split(",")
        own["log.dirs"] = ",".join(os.path.join(folder, str(node_id)) for folder in folders)
    for name in ("listeners", "probe.listener"):
        if not all(word.strip().endswith(":0") for word in str(named.get(name, ":0")).split(",")):
            raise ValueError(f"{name}={named[name]}: several brokers need several ports; end it in :0")
    return own
