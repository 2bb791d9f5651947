"""Who hears of a fact, and in which order."""

from __future__ import annotations

from tidelog.broker.signal import Signal


def test_listeners_hear_in_the_order_in_which_they_were_connected() -> None:
    signal: Signal[int] = Signal()
    heard: list[tuple[str, int]] = []
    signal.connect(lambda fact: heard.append(("first", fact)), lambda fact: heard.append(("second", fact)))
    signal.connect(lambda fact: heard.append(("third", fact)))
    signal.emit(5)
    signal.emit(6)
    assert heard == [(who, fact) for fact in (5, 6) for who in ("first", "second", "third")]


def test_a_signal_that_nobody_hears_harms_nothing() -> None:
    Signal[int]().emit(5)
