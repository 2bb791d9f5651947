"""The one line of a failed query that says what is wrong.

Spark wraps an error of a source or a sink in its own errors, with stack traces of two languages. The message
of the source or sink has topic, partition, offset and what to do: only that is kept.

**Invariant:** one line, never empty.
"""

from __future__ import annotations

import re

LINE_MAX = 600  # characters of one line of a message
_FRAME = re.compile(r"^=== Streaming Query ===", re.MULTILINE)
_OURS = re.compile(r"^(?:tidelog|pyspark_tidelog)[\w.]*\.\w+: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit|Interrupt)): (.+)$", re.MULTILINE)
_WRAPPING = re.compile(r"^\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: ")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\s*")


def explained(text: str) -> str:
    """The essential message of a failed query's exception."""
    told = _FRAME.split(text, maxsplit=1)[0]
    if ours := _OURS.findall(told):
        return shortened(ours[-1])
    if raised := _RAISED.findall(told):
        kind, words = raised[-1]
        return shortened(f"{kind}: {words}")
    lines = _WRAPPING.sub("", told).strip().splitlines()
    return shortened(lines[0] if lines else "it ended without saying why")


def shortened(words: str) -> str:
    plain = " ".join(_SQL_STATE.sub(" ", words).split())
    return plain if len(plain) <= LINE_MAX else plain[: LINE_MAX - 1] + "…"
