"""A reader and writer of Java `.properties` files, so that Kafka's own `server.properties` works unchanged.

Comments (`#`, `!`), continuation lines (a backslash at the end), `=`, `:` or white space between key and
value, and Java's escapes. The last of several values for a key wins, as in Java.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidelog.cli.failure import BadWord

_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY_SPECIAL = re.compile(r"[\\\s=:#!]")
_SPECIAL = re.compile(r"[\\\t\n\r\f]|^ ")
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str) -> dict[str, str]:
    """The keys and values of the file at `path`."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read(), path)
    except OSError as error:
        raise BadWord(f"--config {path}: {error.strerror}; name a readable .properties file") from None
    except UnicodeDecodeError:
        raise BadWord(f"--config {path}: not UTF-8; save the file as UTF-8 or use \\uXXXX escapes") from None


def parse_properties(text: str, name: str) -> dict[str, str]:
    """The keys and values in `text`; `name` is used in error messages."""
    properties: dict[str, str] = {}
    for line_number, line in _logical_lines(text):
        matched = _KEY.match(line)
        assert matched is not None, "every part of the pattern may be empty"
        key, value = matched.groups()
        if not key:
            raise BadWord(f"{name}, line {line_number}: no key before {line.strip()!r}; write key=value")
        properties[_unescape(key, name, line_number)] = _unescape(value, name, line_number)
    return properties


def write_properties(path: Path, properties: Mapping[str, str], heading: str) -> None:
    """Write a file for `read_properties`, readable only by its owner because it may have passwords."""
    lines = [f"# {heading}"]
    lines += [f"{_escape(key, _KEY_SPECIAL)}={_escape(value, _SPECIAL)}" for key, value in properties.items()]
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("\n".join(lines) + "\n")


def _escape(text: str, special: re.Pattern[str]) -> str:
    named = {character: f"\\{name}" for name, character in _NAMED_ESCAPES.items()}
    return special.sub(lambda found: named.get(found[0], f"\\{found[0]}"), text)


def parse_setting(word: str) -> tuple[str, str]:
    """One `key=value` from the command line."""
    key, separator, value = word.partition("=")
    if not separator or not key.strip():
        raise BadWord(f"-o {word}: not a setting; write -o key=value")
    return key.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and with continuations joined, each with the number of its first line."""
    parts: list[str] = []
    first_number = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(" \t\f")
        if not parts:
            if not line or line[0] in "#!":
                continue
            first_number = number
        if _is_continued(line):
            parts.append(line[:-1])
            continue
        yield first_number, "".join(parts) + line
        parts.clear()
    if parts:
        yield first_number, "".join(parts)


def _is_continued(line: str) -> bool:
    """Whether the line ends in an odd number of backslashes; an even number is escaped backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, name: str, line_number: int) -> str:
    def replace(found: re.Match[str]) -> str:
        escape = found.group(1)
        if escape == "u":
            raise BadWord(f"{name}, line {line_number}: \\u needs four hexadecimal digits")
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _NAMED_ESCAPES.get(escape, escape)

    return _ESCAPE.sub(replace, text)
