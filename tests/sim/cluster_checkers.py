"""What must hold in a cluster, whatever happens to it; each claim a class that hears of what it needs.

**Invariant:** a checker judges by what the store has committed, what clients were told and what lies on the
disks, never by what a broker believes of itself, but for whether it leads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.sim.cluster_clients import Producer, Spot, split_batches, values_of
from tests.sim.cluster_clock import Violation
from tests.sim.cluster_tree import Commit, Committed
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.paths import BROKER_EPOCHS, CONTROLLER, CONTROLLER_EPOCH, NAMES, TOPICS
from tidelog.log.log import Log
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition, Role

if TYPE_CHECKING:
    from tests.sim.cluster import World

# What an idempotent producer with one batch under way is never told.
_NEVER = (
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.unknown_producer_id,
    ErrorCode.invalid_producer_epoch,
)


def is_partition(path: str) -> bool:
    return path.startswith(TOPICS + "/") and path.count("/") == 3


class SingleLeaderPerEpoch:
    """In the store and among the brokers."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], int] = {}

    def on_commit(self, commit: Commit) -> None:
        for path, node in commit.written.items():
            if is_partition(path):
                fields = json.loads(node)
                if fields["leader"] != NOBODY:
                    self._note(path, fields["leader_epoch"], fields["leader"])

    def look(self, world: World) -> None:
        for node in world.nodes.values():
            for partition in node.broker.partitions.all() if node.broker is not None else ():
                if partition.role is Role.LEADER:
                    path = f"{TOPICS}/{partition.topic_id.hex()}/{partition.index}"
                    self._note(path, partition.leader_epoch, node.node_id)

    def _note(self, path: str, epoch: int, node_id: int) -> None:
        known = self._leaders.setdefault((path, epoch), node_id)
        if known != node_id:
            raise Violation(f"{known} and {node_id} both lead {path} under epoch {epoch}")


class LeaderHasAll:
    """Who leads has every record that was acknowledged with acks=all or shown to anybody, byte for byte,
    whatever it was elected by (R7). Judged is who really leads: one that was elected and has lost something
    since may know better."""

    def __init__(self) -> None:
        self.election_count = 0
        self._judged: set[tuple[int, int, str, int]] = set()  # node, life, partition, epoch
        self.plan: Callable[[str], None] = lambda path: None  # have somebody look at a partition soon

    def on_commit(self, commit: Commit) -> None:
        for path, data in commit.written.items():
            before = commit.before.get(path)
            if is_partition(path) and before is not None:
                self._follow(path, json.loads(before), json.loads(data))

    def _follow(self, path: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if new["leader_epoch"] == old["leader_epoch"]:
            if new["leader"] != old["leader"]:
                raise Violation(f"{path} went from {old} to {new} without a new epoch")
            return
        if new["leader_epoch"] != old["leader_epoch"] + 1:
            raise Violation(f"the epoch of {path} went from {old} to {new}")
        self.election_count += 1
        self.plan(path)

    def look(self, world: World) -> None:
        for spot in world.spots:
            self.look_at(world, spot)

    def look_at(self, world: World, spot: Spot) -> None:
        facts = world.facts(spot)
        node = world.nodes.get(facts["leader"])
        here = world.find(node, spot) if node is not None else None
        if node is None or here is None or here.role is not Role.LEADER or node.disk.is_faulty:
            return
        key = (node.node_id, node.life, spot.path, here.leader_epoch)
        if here.leader_epoch == facts["leader_epoch"] and key not in self._judged:
            self._judged.add(key)
            self._judge(world, spot, here, f"{spot}: {node.node_id} leads under {here.leader_epoch}")

    def _judge(self, world: World, spot: Spot, leader: Partition, who: str) -> None:
        data, shown = read_all(leader.log), world.replicas.shown(spot)
        if data[: len(shown)] != shown:
            raise Violation(
                f"{who}; it has {len(data)} bytes, and not those {len(shown)} that were committed"
            )
        found = dict(
            pair for batch in split_batches(memoryview(data)[len(shown) :]) for pair in values_of(batch)
        )
        first = _end_of(shown)
        for what, values in (("acknowledged", world.kept.acknowledged), ("read", world.reads.values)):
            for offset, value in values.get(spot, {}).items():
                if offset >= first and found.get(offset) != value:
                    ends = f"its log ends at {leader.log.end_offset}"
                    raise Violation(
                        f"{who}; {value!r} was {what} at {offset}, it has {found.get(offset)!r}, {ends}"
                    )


def read_all(log: Log) -> bytes:
    """The bytes of a whole log."""
    pieces, offset = [b""], log.start_offset
    while offset < log.end_offset:
        records = log.read(offset, log.end_offset, 1 << 20, True)
        assert records is not None
        pieces.append(records.read())
        records.release()
        offset = _end_of(pieces[-1])
    return b"".join(pieces)


class ControllerEpochMonotonic:
    """Each controller has a higher epoch than the one before; who is not the controller decides nothing."""

    def __init__(self) -> None:
        self._epoch = 0
        self.controller_count = 0

    def on_restored(self, data: bytes | None) -> None:
        """The store was restored from a backup: no epoch may be used a second time."""
        epoch = json.loads(data or b"{}").get("epoch", 0)
        if epoch <= self._epoch:
            raise Violation(f"controllers have had the epoch {self._epoch}, and begin again at {epoch}")
        self._epoch = epoch

    def on_commit(self, commit: Commit) -> None:
        data = commit.written.get(CONTROLLER_EPOCH)
        if data is not None:
            epoch = json.loads(data)["epoch"]
            if epoch != self._epoch + 1 and epoch != 0:
                raise Violation(f"the controller's epoch went from {self._epoch} to {epoch}")
            self._epoch = epoch
        if CONTROLLER in commit.written:
            self.controller_count += 1
            if json.loads(commit.written[CONTROLLER])["epoch"] != self._epoch:
                raise Violation(f"{commit.written[CONTROLLER]!r} is controller under epoch {self._epoch}")
        if not commit.is_of_controller and (
            decided := [path for path in commit.paths if self._decides(commit, path)]
        ):
            raise Violation(f"who is not the controller decided {decided}")

    def _decides(self, commit: Commit, path: str) -> bool:
        if not path.startswith((TOPICS + "/", NAMES + "/")):
            return False
        before, after = commit.before.get(path), commit.written.get(path)
        if not is_partition(path) or before is None or after is None:
            return True
        old, new = json.loads(before), json.loads(after)
        if new["leader"] == NOBODY or {*old["isr"], *old["eligible"]} == {new["leader"]}:
            return False  # one that gives up leading, or that nobody can lead in place of
        is_same = old.get("flush") == new.get("flush") and not _have_lost(old["members"], new["members"])
        has_epoch = old["leader_epoch"] != new["leader_epoch"] and is_same
        return bool(old["leader"] != new["leader"] or has_epoch)


def _have_lost(old: dict[str, int], new: dict[str, int]) -> bool:
    """Whether a member states that its log has lost records."""
    return any(stamp < 0 <= old.get(node_id, 0) for node_id, stamp in new.items())


class HighWatermarkNeverFalls:
    """What a client was told, or read, under a leader is there under it and all later ones (KIP-207)."""

    def __init__(self) -> None:
        self._told: dict[Spot, dict[int, int]] = {}  # by epoch of the leader

    def known(self, spot: Spot) -> dict[int, int]:
        """What may not be fallen below from now on."""
        return dict(self._told.get(spot, {}))

    def on_told(self, spot: Spot, epoch: int, offset: int) -> None:
        told = self._told.setdefault(spot, {})
        told[epoch] = max(told.get(epoch, 0), offset)

    def on_latest(self, spot: Spot, epoch: int, offset: int, known: dict[int, int]) -> None:
        for told_epoch, told in known.items():
            if told_epoch <= epoch and offset < told:
                raise Violation(f"{spot} ended at {told} under {told_epoch}, and at {offset} under {epoch}")
        self.on_told(spot, epoch, offset)


class ConsistentRead:
    """What was read at an offset is always read there; and no offset is left out (L1)."""

    def __init__(self) -> None:
        self.values: dict[Spot, dict[int, bytes]] = {}
        self._places: dict[Spot, dict[bytes, int]] = {}
        self._seen: dict[Spot, set[bytes]] = {}

    def on_read(self, spot: Spot, batch: bytes) -> None:
        seen = self._seen.setdefault(spot, set())
        if batch in seen:
            return
        seen.add(batch)
        header = read_header(batch)
        records = values_of(batch)
        if [offset for offset, _ in records] != list(range(header.base_offset, header.last_offset + 1)):
            raise Violation(f"{spot} has gaps at {header}")
        self._note(spot, batch)

    def _note(self, spot: Spot, batch: bytes) -> None:
        values, places = self.values.setdefault(spot, {}), self._places.setdefault(spot, {})
        for offset, value in values_of(batch):
            if values.setdefault(offset, value) != value:
                raise Violation(f"{spot} had {values[offset]!r} at {offset}, and now {value!r}")
            if places.setdefault(value, offset) != offset:
                raise Violation(f"{spot} has {value!r} at {places[value]} and at {offset}")


class CommittedNeverLost:
    """What was acknowledged with acks=all stands where it was said to, once, in the order of its producer."""

    def __init__(self) -> None:
        self.acknowledged: dict[Spot, dict[int, bytes]] = {}
        self._sent: dict[Spot, list[bytes]] = {}

    def on_acknowledged(self, producer: Producer, offset: int) -> None:
        if producer.producer_id < 0:
            return
        self._sent.setdefault(producer.spot, []).extend(producer.values)
        if offset >= 0:
            at = self.acknowledged.setdefault(producer.spot, {})
            for place, value in enumerate(producer.values):
                if at.setdefault(offset + place, value) != value:
                    raise Violation(
                        f"{producer.spot}: {at[offset + place]!r} and {value!r} at {offset + place}"
                    )

    def values_sent(self, spot: Spot) -> list[bytes]:
        """All that was acknowledged."""
        return self._sent.get(spot, [])

    def on_refused(self, producer: Producer, code: ErrorCode) -> None:
        if code in _NEVER:
            raise Violation(f"{producer.name} at {producer.sequence} of {producer.spot} was told {code.name}")

    def at_end(self, spot: Spot, batches: list[bytes]) -> None:
        found = [pair for batch in batches for pair in values_of(batch)]
        offsets = [offset for offset, _ in found]
        if offsets != list(range(len(offsets))):
            raise Violation(f"{spot} has gaps: {offsets}")
        for offset, value in self.acknowledged.get(spot, {}).items():
            if offset >= len(found) or found[offset][1] != value:
                there = found[offset][1] if offset < len(found) else None
                raise Violation(f"{spot} lost {value!r}, acknowledged at {offset}; there is {there!r}")
        there_at = {value: offset for offset, value in found}
        if len(there_at) != len(found):
            raise Violation(f"{spot} has something twice")
        last: dict[bytes, int] = {}
        for offset, value in found:
            name, _, number = value.partition(b":")
            if name.startswith(b"i") and last.get(name, -1) + 1 != int(number):
                raise Violation(f"{spot}: {value!r} at {offset} is out of order")
            last[name] = int(number)
        missing = [value for value in self._sent.get(spot, ()) if value not in there_at]
        if missing:
            raise Violation(f"{spot} lost {missing}")


class ReplicasAgreeBelowHighWatermark:
    """The bytes of every member of an ISR below its high watermark are the same ones."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[bytes, int], bytearray] = {}  # all that anybody had below its high watermark
        # By node, life and partition; one that was moved away and back has another log.
        self._checked: dict[tuple[int, int, bytes, int], tuple[Log, int, int]] = {}

    def shown(self, spot: Spot) -> bytes:
        """All that was committed, as far as anybody has looked."""
        return bytes(self._bytes.get((spot.topic_id, spot.partition), b""))

    def look(self, world: World) -> None:
        for node in world.nodes.values():
            if node.broker is None or node.disk.is_faulty:
                continue
            for partition in node.broker.partitions.all():
                if partition.is_open and not partition.is_internal and world.is_member(node, partition):
                    self._compare(node.node_id, node.life, partition)

    def _compare(self, node_id: int, life: int, partition: Partition) -> None:
        key, log, end = (partition.topic_id, partition.index), partition.log, partition.high_watermark
        known = self._bytes.setdefault(key, bytearray())
        checked, offset, position = self._checked.get((node_id, life, *key), (log, 0, 0))
        if checked is not log:
            offset = position = 0
        name = f"{partition.topic}-{partition.index}"
        if offset > log.end_offset:
            raise Violation(f"{node_id} has cut {name} to {log.end_offset}, its high watermark was {offset}")
        while offset < end:
            records = log.read(offset, end, 1 << 20, True)
            assert records is not None
            data = records.read()
            records.release()
            common = known[position : position + len(data)]
            if common != data[: len(common)]:
                raise Violation(f"{name} on {node_id} differs from {offset} on, below {end}")
            known += data[len(common) :]
            position += len(data)
            offset = _end_of(data)
        self._checked[node_id, life, *key] = (log, offset, position)


def _end_of(data: bytes) -> int:
    """The offset behind the last batch."""
    position = end = 0
    while position < len(data):
        header = read_header(data, position)
        position += header.size
        end = header.last_offset + 1
    return end


class Bound(NamedTuple):
    """How many replicas of a topic's partitions may have lost something at a time."""

    losses_max: int
    is_flushed: bool  # then a power cut loses nothing


class Loss(NamedTuple):
    """A replica that has lost what it may have acknowledged, under that epoch of its broker."""

    epoch: int
    is_of_disk: bool  # anything may be lost; else what was not flushed

    def counts(self, bound: Bound) -> bool:
        return self.is_of_disk or not bound.is_flushed


class WhoIsLost:
    """Replicas that have lost something and are not back in sync; how many there may be is bounded."""

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._lost: dict[str, dict[int, Loss]] = {}  # by partition and node
        self.lost_at_birth: dict[str, list[Loss]] = {}  # replicas of a partition when it was made
        self._last_lost: dict[int, Loss] = {}  # by node

    def on_commit(self, commit: Commit) -> None:
        for path, data in commit.written.items():
            if is_partition(path) and commit.before.get(path) is None:
                self._note_new(path, json.loads(data))
            lost = self._lost.get(path)
            if lost:
                fields = json.loads(data)
                for node_id in [n for n, loss in lost.items() if _is_back(fields, n, loss.epoch)]:
                    del lost[node_id]
                for node_id in [n for n in lost if n not in fields["replicas"]]:
                    del lost[node_id]  # it was moved away: nobody counts on it

    def _note_new(self, path: str, fields: dict[str, Any]) -> None:
        """A partition was given to brokers that nobody knew yet were gone."""
        for node_id, loss in self._last_lost.items():
            if node_id in fields["replicas"] and not _is_back(fields, node_id, loss.epoch):
                self._lost.setdefault(path, {})[node_id] = loss
        self.lost_at_birth[path] = list(self._lost.get(path, {}).values())

    def have_all_lost(self, path: str, fields: dict[str, Any]) -> bool:
        """Whether every member of a partition may have lost anything: that is for an operator to decide."""
        lost = self._lost.get(path, {})
        return all(n in lost and lost[n].is_of_disk for n in (*fields["isr"], *fields["eligible"]))

    def on_loss(self, node_id: int, is_of_disk: bool, only: str | None = None) -> None:
        """A broker has lost something: of one partition, or of all."""
        known = json.loads(self._committed.at(f"{BROKER_EPOCHS}/{node_id}") or b"{}")
        loss = Loss(known.get("epoch", 0), is_of_disk)
        if only is None:
            last = self._last_lost.get(node_id, loss)
            is_same_life = last.epoch >= known.get("registered", 0)
            self._last_lost[node_id] = Loss(loss.epoch, is_of_disk or (is_same_life and last.is_of_disk))
        for path, fields in self._committed.partitions():
            if node_id in fields["replicas"] and only in (None, path):
                lost = self._lost.setdefault(path, {})
                before = lost.get(node_id, loss)
                lost[node_id] = Loss(loss.epoch, is_of_disk or before.is_of_disk)

    def may_lose(self, node_ids: Sequence[int], is_of_disk: bool, bounds: Mapping[str, Bound]) -> bool:
        """Whether so many of no partition have lost something then that the rest may lack what was committed.
        `bounds` is by topic, as a path; what it does not have may be lost altogether."""
        for path, fields in self._committed.partitions():
            bound = bounds.get(path.rpartition("/")[0])
            if bound is None:
                continue
            new = {n: Loss(0, is_of_disk) for n in node_ids if n in fields["replicas"]}
            lost = {n for n, loss in self._lost.get(path, {}).items() if loss.counts(bound)}
            more = {n for n, loss in new.items() if loss.counts(bound)}
            if more and len(lost | more) > bound.losses_max:
                return False
        return True


def _is_back(fields: dict[str, Any], node_id: int, epoch: int) -> bool:
    return node_id in fields["isr"] and fields["members"].get(str(node_id), 0) > epoch
