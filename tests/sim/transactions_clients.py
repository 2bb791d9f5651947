"""Transactional clients of a simulated cluster, each a script of requests one after the other.

A producer speaks the new protocol (Produce 12, TxnOffsetCommit 5, EndTxn 5) or the old one (Produce 11, and
version 3 of AddPartitionsToTxn, TxnOffsetCommit and EndTxn). By the old one nothing tells a late request of a
coordinator from one of the next transaction, so these wait for their answer as long as the connection lives,
and are never sent a second time beside themselves: the anomaly is the protocol's.

**Invariant:** a batch is sent until it is acknowledged or its transaction is given up, and nothing behind it
before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from tests.log.making import NOW_MS
from tests.sim.cluster_clients import ALL, CORRELATION_ID, Spot, split_batches
from tests.sim.cluster_clock import Violation
from tests.sim.transactions_ledger import LATE, Deal
from tests.wire.harness import FIND_COORDINATOR, decode_answer, parts, request_frame, seconds
from tidelog.client.produce import decode_produce_response, encode_produce_request
from tidelog.cluster.facts import NOBODY
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.protocol.fetch_client import ReceivedPartition, decode_fetch_response, encode_fetch_request
from tidelog.protocol.records import Marker, build_batch, read_marker, read_records

if TYPE_CHECKING:
    from tests.sim.cluster_node import ClusterNode
    from tests.sim.transactions_cluster import TransactionWorld

INIT, ADD, ADD_OFFSETS, END, COMMIT = 22, 24, 25, 26, 28
OFFSET_FETCH, OFFSET_FETCH_VERSION = 9, 9
FIND_VERSION, FETCH_VERSION = 4, 13
OF_GROUP, OF_TRANSACTION = 0, 1
READ_COMMITTED = 1
TIMEOUT_MS = 1_500
WALKED_AWAY = "walked away"
PROMPT_MS = 1_000  # an EndTxn that is answered sooner has all its markers

C = ErrorCode
AGAIN = frozenset(
    (
        C.not_coordinator,
        C.coordinator_load_in_progress,
        C.coordinator_not_available,
        C.concurrent_transactions,
        C.not_enough_replicas,
        C.not_enough_replicas_after_append,
        C.not_leader_or_follower,
        C.unknown_topic_or_partition,
        C.kafka_storage_error,
        C.request_timed_out,
        C.network_exception,
        C.operation_not_attempted,
        C.unstable_offset_commit,
    )
)
FENCED = frozenset((C.producer_fenced, C.invalid_producer_epoch, C.invalid_producer_id_mapping))

Then = Callable[[Any], None]
Steps = Generator[Callable[[Then], None], Any, Any]


class Script:
    """A client whose life is a generator: it yields what is to happen, and is sent what came of that."""

    def __init__(self, world: TransactionWorld) -> None:
        self.world = world
        self.random = world.clock.random
        self.is_over = False
        self._steps = self.live()
        world.clock.after(self.random.randint(1, 300), self._go_on)

    def live(self) -> Steps:
        raise AssertionError("every client does something")

    def _go_on(self, came: Any = None) -> None:
        try:
            begin = self._steps.send(came)
        except StopIteration:
            self.is_over = True
            return
        begin(self._go_on)

    def pause(self, ms_max: int) -> Steps:
        delay_ms = self.random.randint(1, ms_max)
        yield lambda then: self.world.clock.after(delay_ms, lambda: then(None))

    def call(
        self, node: ClusterNode, api_key: int, version: int, is_patient: bool = False, **values: Any
    ) -> Steps:
        """The answer, or None."""
        frame = request_frame(api_key, version, 1, **values)
        answer = yield from self.send(node, frame, is_patient)
        return None if answer is None else decode_answer(api_key, version, answer, 1)

    def send(self, node: ClusterNode, frame: bytes, is_patient: bool = False) -> Steps:
        network = self.world.network
        if node not in self.world.serving():  # its port is closed
            yield from self.pause(100)
            return None
        if is_patient:
            return (yield lambda then: network.call_patiently(node, frame, then))
        return (yield lambda then: network.call(node, frame, TIMEOUT_MS, then))

    def leader_of(self, spot: Spot) -> tuple[ClusterNode, int] | None:
        """With its epoch, as some broker knows it."""
        nodes = self.world.serving()
        if not nodes:
            return None
        asked = self.random.choice(nodes)
        assert asked.broker is not None
        topic = asked.broker.image.topics_by_id.get(spot.topic_id)
        facts = topic.partitions.get(spot.partition) if topic is not None else None
        if facts is None or facts.leader == NOBODY:
            return None
        leader = self.world.nodes[facts.leader]
        return (leader, facts.leader_epoch) if leader.is_running else None


class Coordinated(Script):
    """Somebody who has coordinators, and keeps to one until it says that it is none."""

    _coordinators: dict[int, ClusterNode]

    def ask(
        self,
        key_type: int,
        key: str,
        api_key: int,
        version: int,
        code_of: Callable[[Any], ErrorCode],
        is_patient: bool = False,
        **values: Any,
    ) -> Steps:
        """One attempt: the error, and the answer if there is one."""
        node = self._coordinators.get(key_type)
        if node is None or not node.is_running:
            nodes = self.world.serving()
            if not nodes:
                yield from self.pause(100)
                return C.network_exception, None
            found = yield from self.call(
                self.random.choice(nodes),
                FIND_COORDINATOR,
                FIND_VERSION,
                key_type=key_type,
                coordinator_keys=(key,),
            )
            if found is None or found.coordinators[0].error_code:
                yield from self.pause(100)
                return C.coordinator_not_available, None
            node = self._coordinators[key_type] = self.world.nodes[found.coordinators[0].node_id]
        answer = yield from self.call(node, api_key, version, is_patient, **values)
        code = C.network_exception if answer is None else C(code_of(answer))
        if code in (C.network_exception, C.not_coordinator, C.coordinator_not_available):
            self._coordinators.pop(key_type, None)
        return code, answer


class Plan:
    """How a transactional id is used."""

    def __init__(self, name: str, is_new: bool, is_alone: bool, timeout_ms: int) -> None:
        self.name = name
        self.is_new = is_new
        self.is_alone = is_alone  # it has one instance, which nobody may fence
        self.timeout_ms = timeout_ms


class GivenUp(Exception):
    """Of a transaction: it is to be aborted."""


class Lost(Exception):
    """This instance is fenced, or does not know how its transaction ended: it begins again."""


class TransactionalProducer(Coordinated):
    def __init__(self, world: TransactionWorld, plan: Plan, accounts: list[Spot]) -> None:
        self.plan = plan
        self.name = plan.name
        self.accounts = accounts
        self.producer_id, self.epoch = -1, -1
        self.wants_more = True
        self.told_count = 0  # ends, and beginnings of an instance that can be timed out
        self._sequences: dict[Spot, int] = {}
        self._added: set[Spot] = set()
        self._coordinators = {}
        super().__init__(world)

    def live(self) -> Steps:
        while True:
            yield from self._init()
            try:
                while True:
                    yield from self.pause(self.world.plan.produce_pause_ms)
                    if self.wants_more:
                        yield from self._make_deal()
            except Lost as reason:
                self.world.clock.count(f"instance over: {reason}")
                if self.world.has_other(self):
                    return
                self._check_may_be_lost(reason)
                yield from self.pause(500)

    def _check_may_be_lost(self, reason: Lost) -> None:
        if self.plan.is_alone and self.plan.is_new and str(reason) != WALKED_AWAY:
            raise Violation(f"{self.name} is alone, and was stopped: {reason}")

    # The identity.

    def _init(self) -> Steps:
        is_patient = self.plan.is_alone or not self.plan.is_new
        while True:
            code, answer = yield from self.ask(
                OF_TRANSACTION,
                self.name,
                INIT,
                4,
                lambda answer: answer.error_code,
                is_patient,
                transactional_id=self.name,
                transaction_timeout=seconds(self.plan.timeout_ms / 1_000),
                producer_id=-1,
                producer_epoch=-1,
            )
            if code is C.none:
                break
            if code not in AGAIN:
                raise Violation(f"{self.name} cannot begin: {code.name}")
            yield from self.pause(100)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences = {}
        self.told_count += not self.plan.is_alone
        self.world.clock.note(f"{self.name} is {self.producer_id}:{self.epoch}")

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    # One transaction.

    def _make_deal(self) -> Steps:
        random, ledger = self.random, self.world.ledger
        deal = ledger.new_deal(self.name)
        chosen = random.choices(self.accounts, k=random.randint(2, 4))
        deal.fill(chosen, [random.randint(-99, 99) for _ in chosen])
        deal.has_offset = random.random() < 0.4
        self._added = set()
        is_wanted = random.random() < 0.75
        self.world.clock.note(f"{deal} begins as {self.producer_id}:{self.epoch}")
        try:
            for spot, value in deal.values:
                yield from self._write(spot, value)
                if random.random() < self.world.walk_away:
                    raise Lost(WALKED_AWAY)
            if deal.has_offset:
                yield from self._commit_offset(deal)
        except GivenUp as reason:
            self.world.clock.count(f"given up: {reason}")
            is_wanted = False
        yield from self._end(deal, is_wanted)

    def _write(self, spot: Spot, value: bytes) -> Steps:
        if not self.plan.is_new and spot not in self._added:
            yield from self._add(spot)
        frame = self._frame(spot, value, self._sequences.get(spot, 0))
        sent_count = 0
        while True:
            leader = self.leader_of(spot)
            if leader is None:
                yield from self.pause(200)
                continue
            sent_count += 1
            answer = yield from self.send(leader[0], frame)
            code = C.network_exception
            if answer is not None:
                outcome = decode_produce_response(memoryview(answer), 9, self._version).topics[0][1][0]
                code = C(outcome.error_code)
                where = f"{spot.topic}-{spot.partition} by {leader[0].node_id}"
                self.world.clock.note(f"{value!r} to {where}: {code.name} {outcome.base_offset}")
            self.world.clock.counts[f"transactional produce: {code.name}"] += 1
            if code is C.none:
                self._sequences[spot] = self._sequences.get(spot, 0) + 1
                return
            if code not in AGAIN:
                self._check_refusal(code, spot, *leader)
                self._give_up(code.name)
            if sent_count > 2 and self.random.random() < 0.05:
                self._give_up("no answer")
            yield from self.pause(100)

    def _give_up(self, reason: str) -> NoReturn:
        """By the old protocol what is under way could join the next transaction of the same epoch."""
        is_fenced = reason in (C.producer_fenced.name, C.invalid_producer_epoch.name)
        raise Lost(reason) if is_fenced or not self.plan.is_new else GivenUp(reason)

    def _check_refusal(self, code: ErrorCode, spot: Spot, node: ClusterNode, epoch: int) -> None:
        facts = self.world.facts(spot)
        is_leader = (facts["leader"], facts["leader_epoch"]) == (node.node_id, epoch)
        if self.plan.is_alone and is_leader:
            raise Violation(f"{self.name} is alone, and {node.node_id} said {code.name} for {spot}")

    @property
    def _version(self) -> int:
        return 12 if self.plan.is_new else 11

    def _frame(self, spot: Spot, value: bytes, sequence: int) -> bytes:
        batch = build_batch(
            [(None, value, (), NOW_MS)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topics: Any = [(spot.topic, [(spot.partition, batch)])]
        pieces = encode_produce_request(
            self._version, CORRELATION_ID, self.name, ALL, TIMEOUT_MS - 200, topics, self.name
        )
        return b"".join(bytes(piece) for piece in pieces)[4:]

    def _add(self, spot: Spot) -> Steps:
        part = parts(ADD, 3)
        topic = part.AddPartitionsToTxnTopic(name=spot.topic, partitions=(spot.partition,))
        values = {f"v3_and_below_{name}": value for name, value in self._identity.items()}
        yield from self._until_done(
            OF_TRANSACTION,
            self.name,
            ADD,
            3,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
            **values,
            v3_and_below_topics=(topic,),
        )
        self._added.add(spot)

    def _commit_offset(self, deal: Deal) -> Steps:
        """Of a group that only this id has: the number of the transaction."""
        if not self.plan.is_new:
            yield from self._until_done(
                OF_TRANSACTION,
                self.name,
                ADD_OFFSETS,
                3,
                lambda answer: answer.error_code,
                **self._identity,
                group_id=self.name,
            )
        version = 5 if self.plan.is_new else 3
        part, spot = parts(COMMIT, version), self.accounts[0]
        row = part.TxnOffsetCommitRequestPartition(
            partition_index=spot.partition,
            committed_offset=deal.number,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        yield from self._until_done(
            OF_GROUP,
            self.name,
            COMMIT,
            version,
            lambda answer: answer.topics[0].partitions[0].error_code,
            **self._identity,
            group_id=self.name,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(part.TxnOffsetCommitRequestTopic(name=spot.topic, partitions=(row,)),),
        )

    def _until_done(
        self,
        key_type: int,
        key: str,
        api_key: int,
        version: int,
        code_of: Callable[[Any], ErrorCode],
        **values: Any,
    ) -> Steps:
        """Ask until it is done. GivenUp or Lost if it cannot be."""
        while True:
            code, _ = yield from self.ask(
                key_type, key, api_key, version, code_of, not self.plan.is_new, **values
            )
            self.world.clock.counts[f"{api_key}: {code.name}"] += 1
            if code is C.none:
                return
            if code not in AGAIN:
                self._give_up(code.name)
            yield from self.pause(100)

    # Its end.

    def _end(self, deal: Deal, is_commit: bool) -> Steps:
        deal.is_commit_sent = is_commit
        version = 5 if self.plan.is_new else 3
        former, began_ms = dict(self._identity), self.world.clock.now_ms
        while True:
            code, answer = yield from self.ask(
                OF_TRANSACTION,
                self.name,
                END,
                version,
                lambda answer: answer.error_code,
                not self.plan.is_new,
                **self._identity,
                committed=is_commit,
            )
            self.world.clock.counts[f"end: {code.name}"] += 1
            self.world.clock.note(f"the end of {deal}, {'commit' if is_commit else 'abort'}: {code.name}")
            if code not in AGAIN:
                break
            yield from self.pause(100)
        if code is C.invalid_txn_state:  # it has timed out, or nothing of it has arrived
            self._check_may_time_out(deal, is_commit)
            self.world.ledger.tell(deal, is_committed=False)
            raise Lost(code.name)
        if code is not C.none:
            raise Lost(code.name)
        self.world.ledger.tell(deal, is_commit)
        self.told_count += 1
        if self.plan.is_new:
            took_ms = self.world.clock.now_ms - began_ms
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            sequences, self._sequences = self._sequences, {}
            if took_ms < PROMPT_MS and self.random.random() < 0.3:
                yield from self._write_late(former, sequences)

    def _check_may_time_out(self, deal: Deal, is_commit: bool) -> None:
        if self.plan.is_alone and is_commit:
            raise Violation(f"{deal} had no time to time out, and was refused")

    def _write_late(self, former: dict[str, Any], sequences: dict[Spot, int]) -> Steps:
        """Somebody who holds the former identity writes on, after the end was told."""
        spot = self.random.choice(self.accounts)
        leader = self.leader_of(spot)
        if leader is not None:
            value = b"%s %s:%d" % (LATE, self.name.encode(), former["producer_epoch"])
            identity = self.producer_id, self.epoch
            self.producer_id, self.epoch = former["producer_id"], former["producer_epoch"]
            frame = self._frame(spot, value, sequences.get(spot, 0))
            self.producer_id, self.epoch = identity
            yield from self.send(leader[0], frame)


class Leaver(TransactionalProducer):
    """Begins one transaction, writes all of it, and is never heard of again."""

    asked_ms = began_ms = -1  # between these its transaction has begun
    has_written = False

    def live(self) -> Steps:
        yield from self._init()
        deal = self.world.ledger.new_deal(self.name)
        deal.fill(self.accounts, [self.random.randint(-99, 99) for _ in self.accounts])
        for spot, value in deal.values:
            self.asked_ms = self.asked_ms if self.began_ms >= 0 else self.world.clock.now_ms
            yield from self._write(spot, value)
            self.began_ms = self.began_ms if self.began_ms >= 0 else self.world.clock.now_ms
        self.has_written = True


class CommittedReader(Script):
    """Reads one partition as consumers with `isolation.level=read_committed` do."""

    def __init__(self, world: TransactionWorld, spot: Spot) -> None:
        self.spot = spot
        self.offset = 0
        super().__init__(world)

    def live(self) -> Steps:
        while True:
            yield from self.pause(300)
            leader = self.leader_of(self.spot)
            if leader is None:
                continue
            node, epoch = leader
            if self.random.random() < 0.25:
                node, epoch = self.random.choice(self.world.serving() or [node]), -1
            if self.world.faults.is_on and self.random.random() < 0.05:
                self.offset = self.random.randint(0, self.offset)
            yield from self._read(node, epoch)

    def _read(self, node: ClusterNode, epoch: int) -> Steps:
        request = FetchRequest(-1, self.random.choice((0, 200)), 1, 1 << 20, READ_COMMITTED)
        size = self.random.choice((1, 300, 5_000)) if self.world.faults.is_on else 1 << 20
        request.topics = [
            (self.spot.topic_id, [FetchPartition(self.spot.partition, epoch, self.offset, -1, -1, size)])
        ]
        frame = bytes(encode_fetch_request(FETCH_VERSION, CORRELATION_ID, "c", request)[4:])
        answer = yield from self.send(node, frame)
        if answer is not None:
            view = memoryview(answer)
            response = decode_fetch_response(view, 9, FETCH_VERSION)
            if response.topics:
                found = response.topics[0][1][0]
                if not found.error_code:
                    self._take(found, view[found.start : found.end])

    def _take(self, found: ReceivedPartition, records: memoryview) -> None:
        """KIP-98: the producers of aborted transactions, each from its first offset to its marker."""
        aborted = sorted(found.aborted or (), key=lambda each: each[1])
        gone: set[int] = set()
        for batch in split_batches(records):
            header = read_header(batch)
            while aborted and aborted[0][1] <= header.last_offset:
                gone.add(aborted.pop(0)[0])
            if header.is_control:
                ended = read_marker(batch)
                if ended is not None and ended[0] is Marker.ABORT:
                    gone.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in gone:
                if header.last_offset >= found.last_stable_offset:
                    raise Violation(
                        f"{self.spot} shows {header.last_offset}, stable is {found.last_stable_offset}"
                    )
                for record in read_records(batch):
                    if record.offset >= self.offset:
                        self.world.ledger.on_read(self.spot, record.offset, record.value or b"")
            self.offset = max(self.offset, header.last_offset + 1)


class StableOffsetReader(Coordinated):
    """Asks for the offset of a transactional producer's group."""

    def __init__(self, world: TransactionWorld, name: str, spot: Spot) -> None:
        self.name = name
        self.spot = spot
        self._coordinators = {}
        super().__init__(world)

    def live(self) -> Steps:
        part = parts(OFFSET_FETCH, OFFSET_FETCH_VERSION)
        # By name: an answer about all of a group leaves out what is only pending, as Kafka's does.
        topic = part.OffsetFetchRequestTopics(name=self.spot.topic, partition_indexes=(self.spot.partition,))
        group = part.OffsetFetchRequestGroup(
            group_id=self.name, member_id=None, member_epoch=-1, topics=(topic,)
        )
        while True:
            yield from self.pause(700)
            told = self.world.ledger.offset_told(self.name)
            code, answer = yield from self.ask(
                OF_GROUP,
                self.name,
                OFFSET_FETCH,
                OFFSET_FETCH_VERSION,
                lambda answer: answer.groups[0].error_code,
                groups=(group,),
                require_stable=True,
            )
            self.world.clock.counts[f"stable offset: {code.name}"] += 1
            if code is C.none:
                self._take(answer.groups[0], told)

    def _take(self, found: Any, told: int) -> None:
        rows = [row for topic in found.topics for row in topic.partitions]
        for row in rows:
            code = C(row.error_code)
            self.world.clock.counts[f"stable offset row: {code.name}"] += 1
            if code is C.none and self._is_known_coordinator():
                self.world.ledger.on_offset(self.name, told, max(row.committed_offset, 0))

    def _is_known_coordinator(self) -> bool:
        """One that does not know yet that it is none may tell of older times."""
        node = self._coordinators.get(OF_GROUP)
        return node is not None and self.world.coordinates_groups(node)
