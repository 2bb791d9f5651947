"""Whether a server goes on: until its owner stops it, or until it has failed and its owner must.

**Invariant:** what has ended does not begin again.
"""

from __future__ import annotations

import asyncio


class Life:
    def __init__(self) -> None:
        self.is_stopping = False
        self.failed = asyncio.Event()
        self.failure = ""  # why it cannot go on

    def fail(self, reason: str) -> None:
        self.failure = reason
        self.failed.set()
