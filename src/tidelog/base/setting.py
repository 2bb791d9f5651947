"""One setting: its name, type, default, bounds and meaning, and how its text is read and written.

**Invariant:** a value that is out of range or of the wrong type never gets past `parse`; the error names
the key, the value and what would be right.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Value = int | float | str | bool | tuple[str, ...]


class InvalidSetting(Exception):
    """A key or value that cannot be used; the message is fit to print."""


class UnknownSetting(InvalidSetting):
    """A key that there is not."""


class OutOfBounds(InvalidSetting):
    """A number that is one, and too small or too large."""


class Kind(Enum):
    """What a setting's text stands for, by Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_CEILINGS = {Kind.INT: INT32_MAX, Kind.SHORT: INT16_MAX, Kind.LONG: INT64_MAX}


class Change(Enum):
    """How a broker's setting may be changed while it runs."""

    NEVER = "read-only"
    PER_BROKER = "per-broker"
    ANYWHERE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Value | None
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""  # what each of the words of a list must look like
    change: Change = Change.NEVER
    has_effect: bool = True

    @property
    def is_secret(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Value:
        text = text.strip()
        match self.kind:
            case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
                return self._checked_choice(text)
            case Kind.LIST:
                return tuple(self._checked_choice(part.strip()) for part in text.split(",") if part.strip())
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._refuse(text, "true or false")
                return self._checked_choice(text.lower()) == "true"
            case Kind.DOUBLE:
                return self._parse_fraction(text)
            case _:
                return self._parse_number(text)

    def _refuse(self, text: str, expected: str) -> InvalidSetting:
        shown = "[hidden]" if self.is_secret else text
        return InvalidSetting(f"{self.name}={shown}: expected {expected}")

    def _checked_choice(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise self._refuse(text, f"one of {', '.join(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise self._refuse(text, f"words that look like {self.pattern}")
        return text

    def _parse_number(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise self._refuse(text, "a whole number") from None
        ceiling = _CEILINGS[self.kind]
        low = -ceiling - 1 if self.minimum is None else self.minimum
        high = ceiling if self.maximum is None else self.maximum
        if not low <= number <= high:
            raise OutOfBounds(str(self._refuse(text, f"a number from {low} to {high}")))
        self._checked_choice(str(number))
        return number

    def _parse_fraction(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise self._refuse(text, "a number") from None
        low = float("-inf") if self.minimum is None else self.minimum
        high = float("inf") if self.maximum is None else self.maximum
        if not low <= number <= high:  # also false of a NaN
            raise self._refuse(text, f"a number from {low} to {high}")
        return number

    def format(self, value: Value | None) -> str | None:
        """The text that clients are shown: as Kafka writes it, and nothing of a secret."""
        if value is None or self.is_secret:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return repr(value).replace("e+", "E") if isinstance(value, float) else str(value)


def nearest_name(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name[:200], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
