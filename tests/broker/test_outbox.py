"""What a broker asks of the shell: in its order, each once, and not before it is due."""

from __future__ import annotations

from tests.broker.parts import make_disks, make_kernel, make_partitions, make_topic
from tests.sim.disk import SimulatedDisk
from tidelog.base.events import info
from tidelog.broker.clock import Clock
from tidelog.broker.outbox import Outbox, Removal
from tidelog.broker.peers import FORWARD, PeerClose


def test_effects_and_events_are_taken_once_and_in_their_order() -> None:
    outbox = Outbox(Clock())
    closes = [PeerClose(node_id, FORWARD) for node_id in (3, 1, 2)]
    outbox.effects += closes
    outbox.tell(info("first"))
    outbox.tell(info("second"))
    assert outbox.take_effects() == closes and outbox.take_effects() == []
    assert [event.name for event in outbox.take_events()] == ["first", "second"]
    assert outbox.take_events() == []


def test_what_is_removed_later_is_due_by_the_time_that_the_shell_has_set() -> None:
    clock = Clock()
    outbox, directory = Outbox(clock), SimulatedDisk().root
    clock.set(now_ms=10**12, uptime_ms=70)
    outbox.remove_later(directory, "t-0.deleted", 500)
    assert outbox.take_effects() == [Removal(directory, ["t-0.deleted"], 570)]


def test_files_of_a_log_are_removed_after_the_delay_of_its_topic_and_none_make_no_effect() -> None:
    kernel = make_kernel()
    partitions = make_partitions(kernel, make_disks(kernel), make_topic(file_delete_delay_ms="900"))
    (partition,) = partitions.all()
    kernel.outbox.remove_files(partition, [])
    kernel.outbox.remove_files(partition, ["a", "b"])
    assert kernel.outbox.take_effects() == [Removal(partition.log.directory, ["a", "b"], 900)]
