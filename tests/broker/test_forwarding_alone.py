"""Frames for other brokers: whom they go to, and what those who sent them hear."""

from __future__ import annotations

import pytest

from tests.broker.parts import Controlled
from tidelog.base.limits import FORWARD_WAIT_MS
from tidelog.broker.control_plane import forwarding as module
from tidelog.broker.peers import FORWARD, PeerSend

FRAME = bytes(range(20))


class Sending:
    """Broker 1 of three, none of which is the controller."""

    def __init__(self) -> None:
        self.plane = Controlled(node_ids=(1, 2, 3))
        self.forwarding = self.plane.forwarding
        self.heard: list[bytes | None] = []
        self.served = 0

    def send(self) -> None:
        self.forwarding.send(FRAME, self.hear, self.serve)

    def hear(self, answer: memoryview | None) -> None:
        self.heard.append(None if answer is None else bytes(answer))

    def serve(self) -> None:
        self.served += 1

    def sent(self) -> list[PeerSend]:
        effects = self.plane.kernel.outbox.take_effects()
        return [effect for effect in effects if isinstance(effect, PeerSend)]

    def pass_time(self, ms: int) -> None:
        self.plane.kernel.clock.uptime_ms += ms
        self.forwarding.tick()


@pytest.fixture
def sending() -> Sending:
    return Sending()


def number_of(frame: PeerSend) -> bytes:
    return bytes(frame.frame[8:12])


def test_a_frame_waits_for_a_controller_and_goes_to_it(sending: Sending) -> None:
    sending.send()
    assert sending.sent() == []
    sending.plane.elect_other(3)
    sending.pass_time(1)
    (sent,) = sending.sent()
    assert (sent.node_id, sent.lane) == (3, FORWARD)
    assert bytes(sent.frame[:8] + sent.frame[12:]) == b"\0\0\0\x14" + FRAME[:4] + FRAME[8:]


def test_who_becomes_the_controller_meanwhile_serves_it_here(sending: Sending) -> None:
    sending.send()
    sending.plane.stand()
    sending.pass_time(1)
    assert sending.served == 1 and sending.sent() == []


def test_what_is_forwarded_is_bounded_and_more_is_answered_here(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FORWARDED_BYTES_MAX", 2 * len(FRAME))
    parked = [sending.forwarding.forward(memoryview(FRAME), 7, lambda: b"here") for _ in range(3)]
    assert [each.is_gone for each in parked] == [False, False, True]
    assert parked[2].early == b"here"


def test_who_waits_for_a_topic_hears_when_the_image_has_it_or_the_time_is_over(sending: Sending) -> None:
    heard: list[str] = []
    sending.forwarding.when_known("t", lambda: heard.append("t"))
    sending.forwarding.when_known("other", lambda: heard.append("other"))
    sending.plane.image.topics["t"] = None  # type: ignore[assignment]  # that it is there is enough
    sending.pass_time(1)
    assert heard == ["t"]
    sending.pass_time(FORWARD_WAIT_MS)
    assert heard == ["t", "other"]
