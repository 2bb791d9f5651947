"""One setting: its name, type, default, bounds and meaning, and how its text is parsed and formatted.

**Invariant:** a value that is out of range or of the wrong type never passes `parse`; the error names
the key, the value and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from tidelog.base.limits import SETTING_SIZE_MAX

INT16_MAX = 2**15 - 1  # of what Kafka's types of settings hold
INT32_MAX = 2**31 - 1  # the same
INT64_MAX = 2**63 - 1  # the same
NAME_LENGTH_MAX = 100  # no suggestion for a longer unknown name

Value = int | float | str | bool | tuple[str, ...]


class InvalidSetting(Exception):
    """An unusable key or value; the message can be shown to users."""


class UnknownSetting(InvalidSetting):
    """Unknown setting."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class OutOfBounds(InvalidSetting):
    """A number that is too small or too large."""


class Kind(Enum):
    """The type of a setting's value, by Kafka's numbers."""

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
    """Whether and where a broker setting may be changed at run time."""

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
    excluded: tuple[int, ...] = ()  # numbers within the bounds that are not allowed
    read: Callable[[str], object] | None = None  # a reader of `forms`; raises ValueError
    change: Change = Change.NEVER
    has_effect: bool = True

    @property
    def is_secret(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        return self.change is not Change.NEVER

    def parse(self, text: str) -> Value:
        if len(text) > SETTING_SIZE_MAX or len(text.encode()) > SETTING_SIZE_MAX:
            raise self._refuse(f"{text[:20]}…", f"at most {SETTING_SIZE_MAX} bytes")
        text = text.strip()
        match self.kind:
            case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
                self._check_form(_words(text))
                return self._checked_choice(text)
            case Kind.LIST:
                return self._parse_list(_words(text))
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
        return text

    def _check_form(self, words: list[str]) -> None:
        text = ",".join(words)
        try:
            if self.read is not None:
                self.read(text)
        except ValueError as problem:
            raise self._refuse(text, str(problem)) from None

    def _parse_list(self, words: list[str]) -> tuple[str, ...]:
        if self.read is None and "" in words:
            raise self._refuse(",".join(words), "a value between two commas, and after the last")
        self._check_form(words)
        return tuple(self._checked_choice(word) for word in words if word)

    def _parse_number(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or "_" in text:
            raise self._refuse(text, "a whole number")
        ceiling = _CEILINGS[self.kind]
        low = -ceiling - 1 if self.minimum is None else self.minimum
        high = ceiling if self.maximum is None else self.maximum
        if not low <= number <= high or number in self.excluded:
            other = "".join(f", other than {number}" for number in self.excluded)
            raise OutOfBounds(str(self._refuse(text, f"a number from {low} to {high}{other}")))
        self._checked_choice(str(number))
        return number

    def _parse_fraction(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = None
        if number is None or "_" in text or not text.isascii():
            raise self._refuse(text, "a number")
        low = float("-inf") if self.minimum is None else self.minimum
        high = float("inf") if self.maximum is None else self.maximum
        if not low <= number <= high:  # also rejects NaN
            raise self._refuse(text, f"a number from {low} to {high}")
        return number

    def format(self, value: Value | None) -> str | None:
        """The text that clients are shown, in Kafka's format; None for a secret."""
        if value is None or self.is_secret:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return repr(value).replace("e+", "E") if isinstance(value, float) else str(value)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text else []


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: a suggestion, if a known name differs by one letter.

    Clients can send unknown names by the ten thousand, so this is one lookup, without comparing all names.
    """
    if len(name) > NAME_LENGTH_MAX:
        return ""
    misspelt = _misspelt(tuple(known))
    near = next((misspelt[part] for part in _with_a_letter_less(name) if part in misspelt), None)
    return f"; did you mean {near}?" if near else ""


def similar_name(name: str, known: Iterable[str]) -> str:
    """A suggestion by overall similarity. Slow: for users who wait for an answer, never for requests."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


@cache
def _misspelt(known: tuple[str, ...]) -> dict[str, str]:
    """The known names by their spellings with at most one letter missing."""
    found = {next(_with_a_letter_less(name)): name for name in known}
    for name in known:
        for part in _with_a_letter_less(name):
            found.setdefault(part, name)
    return found


def _with_a_letter_less(name: str) -> Iterator[str]:
    letters = "".join(filter(str.isalnum, name.lower()))
    yield letters
    for place in range(len(letters)):
        yield letters[:place] + letters[place + 1 :]
