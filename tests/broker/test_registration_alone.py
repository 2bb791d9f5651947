"""A broker's way into its cluster, with logs that only note what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.broker.parts import Controlled
from tests.sim.disk import SimulatedDisk
from tidelog.broker.control_plane.registration import Registration, StoreFailed
from tidelog.broker.standing import Standing
from tidelog.cluster.facts import BrokerEpoch, BrokerFacts
from tidelog.cluster.paths import BROKER_EPOCHS, BROKERS
from tidelog.cluster.store import Action, Multi, Operation, Outcome, Unknown, Write
from tidelog.log.directory import LogDirectory
from tidelog.log.trust import Kept, Life

PATH, EPOCHS = f"{BROKERS}/1", f"{BROKER_EPOCHS}/1"


class NotedLogs:
    """What is asked of the logs, in its order, and what the store had of this broker at that moment."""

    def __init__(self, standing: Standing, epoch_in_store: Callable[[], int]) -> None:
        self._standing = standing
        self._epoch_in_store = epoch_in_store
        directory = LogDirectory(SimulatedDisk().root)
        directory.directory_id = "own"
        self.directories: Sequence[LogDirectory] = [directory]
        self.asked: list[str] = []
        self.losses: list[list[Write]] = []  # what must be stated, some at a time
        self.led: list[Operation] = []
        self.vouching: list[Callable[[], None]] = []

    def claim(self, cluster_id: str, life: Life) -> None:
        self.asked.append("claim")

    def vouch(self, epoch: int) -> None:
        assert epoch <= self._epoch_in_store() + 1, "no note is further ahead of the store than one epoch"
        self._standing.vouched_epoch = epoch
        self.asked.append(f"vouch {epoch}")

    def vouch_later(self, epoch: int, then: Callable[[], None]) -> None:
        self.asked.append(f"vouch later {epoch}")

        def on_durable() -> None:
            self._standing.vouched_epoch = epoch
            then()

        self.vouching.append(on_durable)

    def open(self, own: BrokerEpoch) -> None:
        self._standing.are_logs_open = True
        self.asked.append(f"open at {own.epoch}")

    def first_losses(self) -> list[Write]:
        return self.losses.pop(0) if self.losses else []

    def led_alone(self) -> list[Operation]:
        return self.led

    def settle_losses(self) -> None:
        self.asked.append("settle")

    def use_broker_epoch(self) -> None:
        self.asked.append("use epoch")

    def serve(self) -> None:
        self.asked.append("serve")


class Coming:
    """Broker 1, which the store has not seen yet."""

    def __init__(self) -> None:
        self.plane = Controlled(is_sharing=True, node_ids=())
        self.plane.standing.is_registered, self.plane.standing.epoch = False, 0
        self.standing = self.plane.standing
        self.logs = NotedLogs(self.standing, lambda: self.known.epoch)
        self.registration = Registration(
            self.plane.kernel,
            self.plane.stored.desk,
            self.standing,
            self.plane.following,
            self.plane.control,
            self.plane.in_force,
            self.logs,
        )

    @property
    def known(self) -> BrokerEpoch:
        """What the store has of this broker."""
        return self.plane.image.broker_epochs.get(1, BrokerEpoch(0, 0))

    def start(self, perform: Callable[[Action], Outcome] | None = None) -> None:
        self.registration.start("h", 1)
        self.settle(perform)

    def settle(self, perform: Callable[[Action], Outcome] | None = None) -> None:
        self.plane.stored.settle(perform)

    def register_other(self, directory: str) -> None:
        facts = BrokerFacts(1, "other", 2, "", 1, directory)
        self.plane.stored.store.put(PATH, facts.encode())


@pytest.fixture
def coming() -> Coming:
    return Coming()


def test_logs_are_opened_behind_the_fence_and_served_when_the_broker_is_registered(coming: Coming) -> None:
    coming.start()
    expected = ["claim", "vouch 1", "open at 1", "use epoch", "settle", "vouch 1", "serve"]
    assert coming.logs.asked == expected
    assert coming.standing.is_serving and coming.standing.has_registered
    assert coming.plane.image.brokers[1].epoch == coming.standing.epoch == 1


def test_what_logs_have_lost_is_in_the_store_before_the_broker_can_be_seen(coming: Coming) -> None:
    coming.plane.stored.store.put("/lost", b"{}")
    coming.logs.losses = [[Write("/lost", b"[1]", 0)], [Write("/lost", b"[2]", 1)]]
    seen: list[bytes] = []

    def perform(action: Action) -> Outcome:
        if isinstance(action, Multi) and any(each.path == PATH for each in action.operations):
            seen.append(coming.plane.stored.store.nodes["/lost"].data)
        return coming.plane.stored.store.perform(action)

    coming.start(perform)
    assert seen == [b"[2]"] and coming.standing.is_serving


def test_an_answer_that_was_lost_is_read_back(coming: Coming) -> None:
    lost = 0

    def lose_each_first(action: Action) -> Outcome:
        nonlocal lost
        outcome = coming.plane.stored.store.perform(action)
        if isinstance(action, Multi) and lost < 2:
            lost += 1
            return Unknown("the answer was lost")
        return outcome

    coming.start(lose_each_first)
    assert coming.standing.is_serving and coming.plane.image.brokers[1].epoch == coming.standing.epoch


def test_another_broker_s_number_is_refused(coming: Coming) -> None:
    coming.register_other("another directory")
    with pytest.raises(StoreFailed, match="is registered by the broker at other:2"):
        coming.start()


def test_a_second_process_that_starts_under_the_number_ends_the_first(coming: Coming) -> None:
    def raise_epoch_too(action: Action) -> Outcome:
        outcome = coming.plane.stored.store.perform(action)
        if isinstance(action, Multi) and any(each.path == EPOCHS for each in action.operations):
            other = Write(EPOCHS, BrokerEpoch(7, 1).encode())
            coming.plane.stored.store.perform(Multi((other,)))
        return outcome

    with pytest.raises(StoreFailed, match="another process starts under it"):
        coming.start(raise_epoch_too)
    assert "open at 7" not in coming.logs.asked


def test_who_may_have_lost_unflushed_records_is_trusted_from_this_epoch_on(coming: Coming) -> None:
    coming.plane.stored.store.put(EPOCHS, BrokerEpoch(4, 2, "own", registered=4).encode())
    coming.logs.directories[0].kept = Kept.UNFLUSHED
    coming.start()
    assert (coming.known.epoch, coming.known.trusted_since) == (5, 5)


def test_after_a_lapse_the_note_is_durable_before_the_broker_registers_again(coming: Coming) -> None:
    coming.start()
    coming.plane.stored.store.end_session()
    coming.registration.on_session_ended()
    coming.settle()
    assert not coming.standing.is_registered and coming.logs.asked[-1] == "vouch later 2"
    assert PATH not in coming.plane.stored.store.nodes
    coming.logs.vouching.pop()()
    coming.settle()
    assert coming.standing.is_registered and coming.standing.epoch == 2


def test_a_stop_is_announced_once_and_by_the_process_that_is_registered(coming: Coming) -> None:
    coming.start()
    for _ in range(2):
        coming.registration.announce_stop()
    asked = coming.plane.stored.settle()
    assert len(asked) == 1 and coming.plane.image.brokers[1].is_stopping
