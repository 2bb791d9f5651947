"""Heartbeats of many members, one connection each, evenly spaced in time and never hurried."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.group_frames import error_of
from bench.load.members import Member
from bench.load.pipeline import BadAnswer, Span


@dataclass(frozen=True)
class Beats:
    span: Span
    latencies: list[int]


def beat(members: Sequence[Member], frames: Sequence[bytes], per_second: float, seconds: float) -> Beats:
    """All members in turn, `per_second` in all; latencies are nanoseconds from the send to the answer.

    A member that still waits when its turn comes has its turn later, as its client would.
    """
    poll = select.epoll()
    by_descriptor = {member.socket.fileno(): member for member in members}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    sent_at: dict[int, int] = {}
    latencies: list[int] = []
    clock = time.perf_counter_ns
    cpu_before, started = time.process_time(), clock()
    interval, due, place = round(1e9 / per_second), started, 0
    end = started + round(seconds * 1e9)
    while clock() < end or sent_at:
        for descriptor, _ in poll.poll(max(due - clock(), 0) / 1e9):
            if (answer := by_descriptor[descriptor].receive()) is not None:
                latencies.append(clock() - sent_at.pop(descriptor))
                if error := error_of(answer):
                    raise BadAnswer(f"a heartbeat was answered with error {error}")
        while due <= clock() < end:
            if not members[place].is_waiting:
                sent_at[members[place].socket.fileno()] = clock()
                members[place].send(frames[place])
            place = (place + 1) % len(members)
            due += interval
        if clock() >= end:
            due = end + round(1e9)
    poll.close()
    return Beats(Span(len(latencies), (clock() - started) / 1e9, time.process_time() - cpu_before), latencies)
