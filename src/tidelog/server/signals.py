"""Which signals end a process of ours as it should end."""

from __future__ import annotations

from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, Signals, getsignal


def ending_signals() -> list[Signals]:
    """That of a closed terminal too, unless it is ignored: nohup does that."""
    return [SIGTERM, SIGINT] if getsignal(SIGHUP) is SIG_IGN else [SIGTERM, SIGINT, SIGHUP]
