"""What Kafka's `TransactionsCommand` says, as rows."""

from __future__ import annotations

from tests.compat.java.shell import PACKAGE, Shell

TOOL = f"{PACKAGE}.TransactionsCommand"

Row = dict[str, str]


def rows(shell: Shell, *words: str) -> list[Row]:
    """By the words at the head; a cell that is empty at the end is not there."""
    heads, *lines = [line.split() for line in shell.run(TOOL, *words) if line.strip()]
    return [dict(zip(heads, line, strict=False)) for line in lines]


def listed(shell: Shell, name: str, *words: str) -> list[Row]:
    return [row for row in rows(shell, "list", *words) if row["TransactionalId"] == name]


def described(shell: Shell, name: str) -> Row:
    (row,) = rows(shell, "describe", "--transactional-id", name)
    return row
