"""The target of `tidelog group reset`: one of its options, parsed.

A time is milliseconds or ISO 8601 (in UTC unless it says otherwise) for `--to-time`, or a duration before now
(`1h30m`, or `PT1H30M` as in Kafka's tool).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tidelog.cli.failure import BadWord
from tidelog.cli.group_file import read_offsets
from tidelog.cli.group_members import Partition

_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d{1,6})D)?(?:T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:\.\d{1,3})?)S)?)?"
)
_SHORT_DURATION = re.compile(
    r"(?:(?P<d>\d{1,6})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,3})?)s)?"
)
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


@dataclass(frozen=True, slots=True)
class Target:
    """`number` is the offset, the shift or the timestamp; `offsets` are those of the file."""

    kind: Literal["earliest", "latest", "current", "offset", "time", "shift", "file"]
    number: int = 0
    offsets: dict[Partition, int] | None = None


def parse_target(group: str, **options: Any) -> Target:
    """The one option that is given, among those named by the keywords."""
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    words = ["--" + name.replace("_", "-") for name in (given if len(given) > 1 else options)]
    if len(given) != 1:
        problem = f"only one of {' and '.join(words)}" if given else f"one of {', '.join(words)}"
        raise BadWord(f"no target for the reset: {problem}")
    ((name, value),) = given.items()
    match name:
        case "to_earliest":
            return Target("earliest")
        case "to_latest":
            return Target("latest")
        case "to_current":
            return Target("current")
        case "to_offset":
            return Target("offset", value)
        case "shift_by":
            return Target("shift", value)
        case "to_time":
            return Target("time", parse_time(value, _now_ms()))
        case "by_duration":
            return Target("time", max(_now_ms() - parse_duration(value), 0))
        case _:
            return Target("file", offsets=read_offsets(Path(value), group))


def parse_time(word: str, now_ms: int) -> int:
    """A timestamp in ms that is not in the future."""
    if re.fullmatch(r"\d{1,15}", word):
        timestamp_ms = int(word)
    else:
        try:
            moment = datetime.fromisoformat(word)
        except ValueError:
            raise BadWord(
                f"--to-time {word}: not a time; write milliseconds or 2026-01-31T12:00:00 (UTC)"
            ) from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        timestamp_ms = int(moment.timestamp() * 1000)
    if timestamp_ms > now_ms:
        raise BadWord(f"--to-time {word}: is in the future; write --to-latest for the end")
    return timestamp_ms


def parse_duration(word: str, option: str = "--by-duration") -> int:
    """A duration in milliseconds."""
    matched = _ISO_DURATION.fullmatch(word) or _SHORT_DURATION.fullmatch(word)
    parts = {} if matched is None else {unit: part for unit, part in matched.groupdict().items() if part}
    if not parts:
        raise BadWord(f"{option} {word}: not a duration; write 5m, 1h30m, 7d, or PT5M as in ISO 8601")
    return sum(round(float(part) * _UNITS_MS[unit]) for unit, part in parts.items())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
