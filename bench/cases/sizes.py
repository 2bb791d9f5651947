"""What grows with the work, at three sizes each: waiters, records, topics, members that never join.

A bystander asks for something small all the while: its longest wait says how long the broker served nobody.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import ExitStack

from bench.arena import Sample
from bench.load.admin import Admin, metadata_frame, receive_exactly
from bench.load.batches import build_batch
from bench.load.bystander import Bystander
from bench.load.commits import wait_for_coordinator
from bench.load.frames import fetch_frame, produce_frame
from bench.load.group_frames import error_of, join_frame
from bench.load.pipeline import BadAnswer
from bench.peers.process import Peer, RunningBroker, Site
from bench.report import Row, Target
from bench.run import Run

TOPIC = "bench-sizes"
WAIT_MS = 60_000
IN_FLIGHT = 5
RECORD_SECONDS = 2.0
TOPICS_PER_REQUEST = 500
DESCRIPTIONS = 5
GROUP_NAME_SIZE = 30_000
MEMBER_ID_REQUIRED = 79
SECONDS_MAX = 120.0
SETTINGS = {"message.max.bytes": "20000000", "replica.fetch.max.bytes": "20000000"}
PROMPT = Target(tidelog_max=50.0)  # milliseconds
METHOD = (
    "sizes, waiters: connections that each wait for a record of one partition, all woken by one; until the"
    " last has it, and a bystander's longest wait meanwhile",
    f"sizes, records: one to a request, {IN_FLIGHT} in flight on one connection, for {RECORD_SECONDS:g} s",
    f"sizes, topics (Tidelog alone): of one partition, empty; Metadata of all, {DESCRIPTIONS} times; and from"
    " the start of the process after a clean stop until it serves",
    f"sizes, members: JoinGroups of groups with names of {GROUP_NAME_SIZE:,} B that nobody follows up; by how"
    " much memory has grown when they were answered",
)

Figures = dict[str, tuple[str, float, Target | None]]  # unit, value and target, by case


def run(run: Run) -> list[Row]:
    scale = run.scale
    figures: dict[str, Figures] = {}
    for peer in run.peers:
        mine = figures[peer.name] = {}
        with _Running(_prepared(run, peer, "crowd")) as broker:
            for count in scale.waiter_counts:
                mine |= wake_all(broker, count)
            for size in scale.record_sizes:
                mine |= take_records(broker, size)
            for count in scale.absent_member_counts:
                mine |= hold_members(broker, count)
        if peer.name == "Tidelog":  # the other takes minutes to make as many topics
            site = _prepared(run, peer, "topics")
            for count in scale.topic_counts:
                mine |= describe_all(site, count)
    return rows_of(figures)


def rows_of(figures: dict[str, Figures]) -> list[Row]:
    tidelog, kafka = figures.get("Tidelog", {}), figures.get("Kafka", {})
    return [
        Row(
            case,
            unit,
            Sample(tidelog[case][1]) if case in tidelog else None,
            Sample(kafka[case][1]) if case in kafka else None,
            target,
        )
        for case, (unit, _, target) in (kafka | tidelog).items()
    ]


def _prepared(run: Run, peer: Peer, name: str) -> Site:
    return peer.prepare(run.directory / f"sizes-{name}-{peer.name}", SETTINGS)


class _Running:
    def __init__(self, site: Site, is_new: bool = True) -> None:
        self._broker = site.spawn()
        self._is_new = is_new

    def __enter__(self) -> RunningBroker:
        self._broker.wait_ready(SECONDS_MAX)
        if self._is_new:
            with Admin(self._broker.host, self._broker.port) as admin:
                admin.create_topic(TOPIC, 1)
                admin.wait_for_leaders(TOPIC, 1)
        return self._broker

    def __exit__(self, *_: object) -> None:
        self._broker.kill()


def wake_all(broker: RunningBroker, count: int) -> Figures:
    address = (broker.host, broker.port)
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(*address))
        end = admin.end_offset(TOPIC, 1)
        asked = fetch_frame(TOPIC, [end], 1 << 20, wait_ms=WAIT_MS)
        poll = select.epoll()
        stack.callback(poll.close)
        for _ in range(count):
            waiter = stack.enter_context(socket.create_connection(address))
            waiter.sendall(asked)
            poll.register(waiter, select.EPOLLIN | select.EPOLLONESHOT)
        with Bystander(*address) as bystander:
            started = time.perf_counter()
            admin.exchange(produce_frame(TOPIC, 0, build_batch(1, 100)))
            answered = 0
            while answered < count:
                if time.perf_counter() - started > SECONDS_MAX:
                    raise BadAnswer(f"{broker.name}: {count - answered} of {count} waiters were not woken")
                answered += len(poll.poll(1, count))
            took_ms = (time.perf_counter() - started) * 1e3
    return {
        f"{count:,} waiters woken": ("ms", took_ms, None),
        f"{count:,} waiters woken, a bystander's longest wait": ("ms", bystander.worst_ms, PROMPT),
    }


def take_records(broker: RunningBroker, size: int) -> Figures:
    frame = produce_frame(TOPIC, 0, build_batch(1, size))
    address = (broker.host, broker.port)
    sent = done = 0
    with Bystander(*address) as bystander, Admin(*address) as admin:
        started = time.perf_counter()
        while done < sent or time.perf_counter() - started < RECORD_SECONDS:
            if time.perf_counter() - started < RECORD_SECONDS:
                admin.socket.sendall(frame)
                sent += 1
            if sent - done >= IN_FLIGHT or time.perf_counter() - started >= RECORD_SECONDS:
                receive_exactly(admin.socket, int.from_bytes(receive_exactly(admin.socket, 4), "big"))
                done += 1
        took = time.perf_counter() - started
    label = f"records of {size / 1e6:g} MB"
    return {
        label: ("MB/s", sent * size / took / 1e6, None),
        f"{label}, a bystander's longest wait": ("ms", bystander.worst_ms, None),
    }


def describe_all(site: Site, count: int) -> Figures:
    """Topics are added to those that the site has, up to `count`."""
    with _Running(site, is_new=False) as broker:
        with Admin(broker.host, broker.port) as admin:
            _add_topics(admin, site, count)
            with Bystander(broker.host, broker.port) as bystander:
                taken = []
                for _ in range(DESCRIPTIONS):
                    started = time.perf_counter()
                    admin.exchange(metadata_frame(None))
                    taken.append((time.perf_counter() - started) * 1e3)
        broker.stop()
    os.sync()
    started = time.perf_counter()
    with _Running(site, is_new=False) as broker:
        start_seconds = time.perf_counter() - started
        broker.stop()
    label = f"{count:,} topics"
    return {
        f"{label}: Metadata of all": ("ms", sorted(taken)[DESCRIPTIONS // 2], None),
        f"{label}: Metadata of all, a bystander's longest wait": ("ms", bystander.worst_ms, PROMPT),
        f"{label}: start after a clean stop": ("s", start_seconds, None),
    }


def _add_topics(admin: Admin, site: Site, count: int) -> None:
    known = {path.name for path in site.log_directory.glob(f"{TOPIC}-*-0")}
    names = [f"{TOPIC}-{number:05d}" for number in range(count)]
    missing = [name for name in names if f"{name}-0" not in known]
    for start in range(0, len(missing), TOPICS_PER_REQUEST):
        admin.create_topics(missing[start : start + TOPICS_PER_REQUEST], 1)


def hold_members(broker: RunningBroker, count: int) -> Figures:
    names = [f"{count}-{number}-".ljust(GROUP_NAME_SIZE, "g") for number in range(count)]
    wait_for_coordinator((broker.host, broker.port), names[:1])
    before = broker.resident_bytes()
    with Admin(broker.host, broker.port) as admin:
        for name in names:
            _ask_to_join(admin, name)
    grown = (broker.resident_bytes() - before) / 1e6
    return {f"{count:,} members that never join, memory grown by": ("MB", grown, None)}


def _ask_to_join(admin: Admin, group: str) -> None:
    """Until the shard of the group is loaded; what it is told then is an id that nobody joins with."""
    deadline = time.monotonic() + SECONDS_MAX
    while (code := error_of(admin.exchange(join_frame(group, "", TOPIC)))) != MEMBER_ID_REQUIRED:
        if time.monotonic() > deadline:
            raise BadAnswer(f"no member id was given: error {code}")
        time.sleep(0.01)
