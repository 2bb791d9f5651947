"""Transactions under kills of brokers and clients: a bank, and a chain of consume, transform and produce.

The accounts of the bank are partitions, and what tellers move between them adds up to nothing (`bank`). What
the chain has put out is what was put in, turned around, each once and in order. Coordinators, leaders and
both at once are killed and put to sleep, and clients are killed, at random moments.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.awaiting import await_that, let_pass
from tests.chaos.bank import Findings, judge_bank
from tests.chaos.committed import Follower, read_all
from tests.chaos.crew import Crew, Worker
from tests.chaos.machines import OFFSETS_PARTITIONS, SESSION_MS, Machines
from tests.chaos.nemesis import Story
from tests.chaos.readers import CLIENT
from tests.chaos.replicas import differing_replicas
from tests.chaos.transacting import TELLER, TRANSFORMER
from tests.chaos.truth import NOBODY, coordinator_partition
from tests.compat.transactional import Ground
from tests.compat.transactor import transformed
from tests.soak import Tally, choose_seed, is_soak, record

BANK, SOURCE, TARGET, GROUP = "bank", "source", "target", "transformers"
PARTITIONS, STATE_PARTITIONS = 4, 3
STATE_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
SETTINGS = {"transaction.state.log.num.partitions": str(STATE_PARTITIONS)}
SOAK_KILLS = 100
CLIENT_KILL, COORDINATOR, LEADER, BOTH = "client", "coordinator", "leader", "both"
SLEEPY_COORDINATOR, SLEEPY_LEADER = "sleepy coordinator", "sleepy leader"
ROUND = (CLIENT_KILL, COORDINATOR, CLIENT_KILL, LEADER, SLEEPY_COORDINATOR, CLIENT_KILL, BOTH, SLEEPY_LEADER)
DEALS_MAX = 20  # that may go by before a fault
WAIT_S = 240.0
FEED_S = 0.05


class Feed:
    """Writes numbers to every partition of the source until it is stopped; idempotent."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.failures: list[str] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        self._producer = Producer(CLIENT | settings)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(FEED_S):
            for partition, sent in enumerate(self.sent):
                sent.append(b"%d of %d" % (len(sent), partition))
                self._producer.produce(SOURCE, sent[-1], partition=partition, on_delivery=self._on_delivery)
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(str(error))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        assert self.failures == []


class Scene:
    """The machines, the clients, and those who read what they commit."""

    def __init__(self, machines: Machines, folder: Path, chance: random.Random, stack: ExitStack) -> None:
        self.machines, self.chance, self.kills = machines, chance, 0
        self.story = Story(folder / "story.txt")
        bootstrap = machines.bootstrap_servers
        for topic in (BANK, SOURCE, TARGET):
            machines.create(topic, PARTITIONS)
        self.bank, self.chain = stack.enter_context(Crew()), stack.enter_context(Crew())
        for number in range(2):
            self.bank.add(Worker(TELLER, bootstrap, f"teller-{number}", folder, BANK, str(PARTITIONS)))
            self.chain.add(Worker(TRANSFORMER, bootstrap, f"member-{number}", folder, SOURCE, TARGET, GROUP))
        self.followed = stack.enter_context(Follower(bootstrap, BANK, PARTITIONS))
        self.put_out = stack.enter_context(Follower(bootstrap, TARGET, PARTITIONS))
        self.feed = Feed(bootstrap)
        stack.callback(self.feed.end)

    # Progress.

    def await_deals(self, count: int, whom: str) -> None:
        """Until both the bank and the chain have committed so many more; `whom` is who is away."""
        before = [crew.committed_count for crew in (self.bank, self.chain)]

        def have_gone_on() -> bool:
            self.see()
            after = [crew.committed_count for crew in (self.bank, self.chain)]
            return all(now >= then + count for now, then in zip(after, before, strict=True))

        await_that(have_gone_on, lambda: f"{whom}: of {before} it went to {self._counts()}", WAIT_S)

    def see(self) -> None:
        self.bank.see()
        self.chain.see()

    def _counts(self) -> list[dict[str, int]]:
        return [dict(each.counts()) for each in (*self.bank.workers, *self.chain.workers)]

    # Faults.

    def strike(self, kind: str) -> None:
        self.story.tell(f"{self.kills} kills, {self.bank.committed_count} deals; {kind}")
        if kind == CLIENT_KILL:
            self._kill_client()
            return
        self._await(self.machines.truth.await_whole, set(self.machines.brokers))
        self.await_deals(self.chance.randrange(1, DEALS_MAX), f"before {kind}")
        victims = {self._coordinator(), self._leader()} if kind == BOTH else {self._victim(kind)}
        if kind in (SLEEPY_COORDINATOR, SLEEPY_LEADER):
            self._put_to_sleep(victims.pop())
            return
        self.story.tell(f"kill {sorted(victims)}")
        for victim in victims:
            self.machines.kill(victim)
        self.kills += len(victims)
        if len(victims) == 1:
            self.await_deals(1, f"{kind} {victims} is dead")
        else:
            let_pass(self.chance.uniform(0.0, SESSION_MS / 1_000))
        self.machines.start(victims)

    def _await(self, wait: Callable[..., object], *asked: object) -> None:
        wait(*asked, WAIT_S, self.see)

    def _kill_client(self) -> None:
        worker = self.chance.choice((*self.bank.workers, *self.chain.workers))
        self.await_deals(self.chance.randrange(1, DEALS_MAX), f"before {worker.name}")
        worker.kill()
        self.kills += 1
        worker.start()

    def _put_to_sleep(self, victim: int) -> None:
        """Past its session: what was asked of a coordinator before is not done after clients have given up
        waiting. (A late request of the old protocol of transactions looks like one of the next.)"""
        broker = self.machines.brokers[victim]
        self.story.tell(f"put {victim} to sleep")
        broker.pause()
        try:
            await_that(lambda: victim not in self.machines.truth.brokers(), "its session lasts", WAIT_S)
            self.await_deals(1, f"{victim} sleeps")
        finally:
            broker.resume()

    def _victim(self, kind: str) -> int:
        return self._coordinator() if kind in (COORDINATOR, SLEEPY_COORDINATOR) else self._leader()

    def _coordinator(self) -> int:
        """Of some transactional id, or of the group."""
        names = [each.name for each in (*self.bank.workers, *self.chain.workers)]
        name = self.chance.choice([*names, GROUP])
        if name == GROUP:
            return self._leads(OFFSETS_TOPIC, coordinator_partition(GROUP, OFFSETS_PARTITIONS))
        return self._leads(STATE_TOPIC, coordinator_partition(name, STATE_PARTITIONS))

    def _leader(self) -> int:
        return self._leads(self.chance.choice((BANK, SOURCE, TARGET)), self.chance.randrange(PARTITIONS))

    def _leads(self, topic: str, index: int) -> int:
        found: list[int] = []

        def is_led() -> bool:
            led = [each.leader for each in self.machines.truth.partitions(topic) if each.partition == index]
            found[:] = [each for each in led if each != NOBODY]
            return bool(found)

        await_that(is_led, f"{topic}-{index} is not led", WAIT_S)
        return found[0]

    # The end.

    def end(self) -> None:
        """Everything is transformed, and no transaction is open any more."""
        self._await(self.machines.truth.await_whole, set(self.machines.brokers))
        self.feed.end()
        count = sum(map(len, self.feed.sent))

        def is_transformed() -> bool:
            self.see()
            return len(self.put_out.reads) >= count

        await_that(is_transformed, lambda: f"{len(self.put_out.reads)} of {count} are there", WAIT_S)
        self.bank.end()
        self.chain.end()
        for topic in (BANK, TARGET):
            await_that(partial(self._is_stable, topic), f"transactions in {topic} stay open", WAIT_S)

    def _is_stable(self, topic: str) -> bool:
        ground = Ground(self.machines.bootstrap_servers, topic)
        places = [(topic, index) for index in range(PARTITIONS)]
        return all(ground.stable_offset(place) == ground.end_offset(place) for place in places)

    def judge(self) -> Findings:
        bootstrap = self.machines.bootstrap_servers
        deals = {
            (worker.name, number): deal
            for worker in self.bank.workers
            for number, deal in worker.deals().items()
        }
        found = [read for index in range(PARTITIONS) for read in read_all(bootstrap, BANK, index)]
        findings = judge_bank(deals, self.followed.reads, found)
        findings.wrong += self.followed.problems + self.put_out.problems
        for index, sent in enumerate(self.feed.sent):
            expected = [transformed(value) for value in sent]
            values = [read.value for read in read_all(bootstrap, TARGET, index)]
            findings.missing_count += len(set(expected) - set(values))
            findings.duplicated_count += len(values) - len(set(values))
            if values != expected:
                findings.wrong.append(f"{TARGET}-{index} has {len(values)} values, of {len(expected)}")
        return findings


@pytest.mark.soak
@pytest.mark.timeout(10_000 if is_soak() else 1_800)
@pytest.mark.usefixtures("needs_zookeeper")
def test_whoever_is_killed_a_bank_and_a_chain_come_out_even(tmp_path: Path) -> None:
    seed, outcome, findings = choose_seed(), "failed", Findings()
    chance = random.Random(seed)
    sample = (CLIENT_KILL, chance.choice((COORDINATOR, LEADER, BOTH)))
    with Machines(tmp_path, brokers=3, zookeepers=1, settings=SETTINGS) as machines, ExitStack() as stack:
        scene = Scene(machines, tmp_path, chance, stack)
        try:
            scene.await_deals(2, "nobody")
            for kind in sample if not is_soak() else ROUND:
                scene.strike(kind)
            while is_soak() and scene.kills < SOAK_KILLS:
                scene.strike(chance.choice(ROUND))
            scene.end()
            findings = scene.judge()
            assert findings.is_clean, findings
            outcome = "passed"
        finally:
            ends = dict(scene.bank.ends + scene.chain.ends)
            count = scene.bank.committed_count + len(scene.put_out.reads)
            print(
                f"{scene.kills} kills, {count} committed, ended by themselves: {ends}; {findings.wrong[:10]}"
            )
            found = (findings.missing_count, findings.duplicated_count)
            tally = Tally(outcome, scene.kills, count, *found, seed)
            record("transactions: a bank and a chain, killed at random", tally)
        assert differing_replicas(machines) == []
