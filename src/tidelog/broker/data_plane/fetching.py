"""Fetching from the leaders of what this broker follows, one fetcher for each of them.

| when                             | then                                                                   |
|----------------------------------|------------------------------------------------------------------------|
| a leader answers                 | records are appended, or a cut is planned                              |
| it answers with an error         | the partition is asked for again a while later                         |
| a follower has to flush first    | the partition is left out of requests until the flush has ended (R15)  |
| a rate is exceeded               | the same, until the rate allows it; not for a replica in sync          |
| a connection ends, or is overdue | the session with that leader begins again                              |

**Invariant:** one request to a leader is under way at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.events import error, info
from tidelog.broker.data_plane.cuts import Cuts
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import REPLICATE, PeerClose, PeerSend
from tidelog.broker.signal import Signal
from tidelog.broker.standing import Standing
from tidelog.cluster.facts import BrokerFacts
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.fetcher import Fetcher, FetchLimits, Received
from tidelog.replication.follower import BeginAt, Cut, Take, Wait, next_step
from tidelog.replication.partition import Partition, Role
from tidelog.replication.throttle import FOLLOWER_RATE, FOLLOWER_REPLICAS, NO_LIMIT, Throttle, is_throttled


class Fetching:
    def __init__(
        self,
        kernel: Kernel,
        standing: Standing,
        disks: Disks,
        flushing: Flushing,
        cuts: Cuts,
        advanced: Signal[Partition],
    ) -> None:
        self._node_id = kernel.node_id
        self._settings = kernel.settings
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._standing = standing
        self._disks = disks
        self._flushing = flushing
        self._cuts = cuts
        self._advanced = advanced
        self._fetchers: dict[int, Fetcher] = {}  # by leader
        self._addresses: dict[int, tuple[str, int]] = {}
        self._epochs: dict[int, int] = {}  # of the other brokers, when last looked at
        self._throttled: dict[Partition, None] = {}  # not asked for until the rate allows it
        settings = kernel.settings
        self._limits = FetchLimits(
            settings.number("replica.fetch.wait.max.ms"),
            settings.number("replica.fetch.min.bytes"),
            settings.number("replica.fetch.response.max.bytes"),
            settings.number("replica.fetch.max.bytes"),
            settings.number("replica.fetch.backoff.ms"),
            settings.number("replica.socket.timeout.ms"),
        )
        self.taken = Throttle()  # as a follower that is throttled

    def join(self, partition: Partition, leader_id: int) -> None:
        """Follow a leader."""
        fetcher = self.fetcher(leader_id)
        fetcher.add(partition)
        if self._cuts.is_pending(partition):
            fetcher.hold(partition)
        self.hold_unflushed(partition)
        self.send(leader_id)

    def leave(self, partition: Partition) -> None:
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None:
            fetcher.remove(partition)

    def fetcher(self, node_id: int) -> Fetcher:
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            fetcher = self._fetchers[node_id] = Fetcher(self._node_id, self._standing.epoch, self._limits)
        return fetcher

    def use_broker_epoch(self, epoch: int) -> None:
        """This broker has registered again: it fetches under that epoch from now on."""
        for fetcher in self._fetchers.values():
            fetcher.broker_epoch = epoch

    def send(self, node_id: int) -> None:
        """Ask a leader for more, if nothing is under way."""
        address = self._addresses.get(node_id)
        fetcher = self._fetchers.get(node_id)
        if address is None or fetcher is None:
            return
        frame = fetcher.next_request(self._clock.uptime_ms)
        if frame is not None:
            self._outbox.effects.append(PeerSend(node_id, REPLICATE, *address, frame))

    def on_frame(self, node_id: int, frame: memoryview) -> None:
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            return
        cuts: list[tuple[Partition, Cut | BeginAt]] = []
        rate = self._settings.number(FOLLOWER_RATE)
        throttled: list[Partition] = []
        for received in fetcher.on_answer(frame, self._clock.uptime_ms):
            if received.partition.is_cutting:
                continue  # asked for before the cut began; asked for again when it is durable
            step = next_step(received.partition.log, received.answer)
            if isinstance(step, Take):
                self._take(fetcher, received)
                if rate < NO_LIMIT and self._is_throttled(received.partition):
                    self.taken.record(len(received.records), rate, self._clock.uptime_ms)
                    throttled.append(received.partition)
            elif isinstance(step, Wait):
                self._wait(fetcher, received.partition, step.error_code)
            else:
                cuts.append((received.partition, step))
        if cuts:
            self._cuts.plan(fetcher, cuts)
        for partition in throttled:
            self._hold_throttled(fetcher, partition, rate)
        self.send(node_id)

    def _is_throttled(self, partition: Partition) -> bool:
        node_id = self._node_id
        return is_throttled(partition.log.settings, FOLLOWER_REPLICAS, partition.index, node_id)

    def _hold_throttled(self, fetcher: Fetcher, partition: Partition, rate: int) -> None:
        """Ask for no more until the rate allows it; in sync, a replica must not fall behind for that."""
        is_over = self.taken.wait_ms(rate, self._clock.uptime_ms) > 0
        if is_over and self._node_id not in partition.in_sync_replicas and partition in fetcher:
            fetcher.hold(partition, NO_LIMIT)
            self._throttled[partition] = None

    def _release_throttled(self) -> None:
        rate = self._settings.number(FOLLOWER_RATE)
        if rate < NO_LIMIT and self.taken.wait_ms(rate, self._clock.uptime_ms) > 0:
            return
        throttled, self._throttled = self._throttled, {}
        for partition in throttled:
            fetcher = self._fetchers.get(partition.leader_id)
            if fetcher is None or partition not in fetcher or self._cuts.is_pending(partition):
                continue
            if not partition.is_caught_by_flush:
                fetcher.release(partition)

    def on_closed(self, node_id: int) -> None:
        """The connection to a leader has ended; what was under way on it is lost."""
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None:
            fetcher.restart(self._clock.uptime_ms + self._limits.backoff_ms)

    def _restart(self, node_id: int) -> None:
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None and fetcher.is_under_way:
            self._outbox.effects.append(PeerClose(node_id, REPLICATE))
            fetcher.restart(self._clock.uptime_ms)

    def _take(self, fetcher: Fetcher, received: Received) -> None:
        partition, answer = received.partition, received.answer
        try:
            moved = partition.take(
                received.records,
                answer.high_watermark,
                answer.log_start_offset,
                self._clock.now_ms,
                partition.log.settings.may_have_gaps,
            )
        except CorruptBatch as problem:
            name = f"{partition.topic}-{partition.index}"
            self._outbox.tell(error("replica batch rejected", partition=name, reason=str(problem)))
            fetcher.hold(partition, self._clock.uptime_ms + self._limits.backoff_ms)
            return
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return
        if moved:
            fetcher.touch(partition)
            self._advanced.emit(partition)
            if partition.is_flush_wanted:
                self._flushing.maybe_begin(partition)
            self.hold_unflushed(partition)

    def hold_unflushed(self, partition: Partition) -> None:
        """Where only flushed bytes count, a follower asks for more when it has flushed what it has (R15)."""
        if not partition.is_caught_by_flush or partition.role is not Role.FOLLOWER:
            return
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None:
            partition.want_flush()
            fetcher.hold(partition)
            self._flushing.maybe_begin(partition)

    def on_flushed(self, partition: Partition) -> None:
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None and partition in fetcher and not partition.is_caught_by_flush:
            fetcher.release(partition)
            rate = self._settings.number(FOLLOWER_RATE)
            if rate < NO_LIMIT and self._is_throttled(partition):
                self._hold_throttled(fetcher, partition, rate)
            self.send(partition.leader_id)

    def _wait(self, fetcher: Fetcher, partition: Partition, code: int) -> None:
        fetcher.back_off(partition, self._clock.uptime_ms)
        if code not in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_leader_epoch):
            name = f"{partition.topic}-{partition.index}"
            self._outbox.tell(info("replica fetch rejected", partition=name, error=ErrorCode(code).name))

    def go_on(self, partition: Partition) -> None:
        """Ask the leader for more, after a cut, unless it is another one by now."""
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None or partition not in fetcher:
            return
        fetcher.release(partition)
        fetcher.touch(partition)
        self._flushing.maybe_begin(partition)
        self.hold_unflushed(partition)
        self.send(partition.leader_id)

    def note_brokers(self, brokers: Iterable[BrokerFacts]) -> None:
        """Brokers have come or gone."""
        for facts in brokers:
            node_id = facts.node_id
            self._addresses[node_id] = (facts.host, facts.port)
            known, self._epochs[node_id] = self._epochs.get(node_id), facts.epoch
            if known not in (None, facts.epoch):  # it may have been restarted: nobody answers any more
                self._restart(node_id)
            self.send(node_id)

    def tick(self) -> None:
        if self._throttled:
            self._release_throttled()
        for node_id, fetcher in self._fetchers.items():
            if fetcher.is_overdue(self._clock.uptime_ms):
                self._restart(node_id)
            self.send(node_id)
