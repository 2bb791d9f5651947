"""`tidelog log dump`: shows what is in a file of a log directory, whole or damaged.

**Invariant:** reads only; a damaged file is shown up to the damage, and the exit code is 1.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidelog.cli.dump import Dump, dump_checkpoint, dump_file
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.options import TableFormat, TableOrJson
from tidelog.cli.screen import print_json, print_table
from tidelog.log.checkpoint import HIGH_WATERMARKS, LEADER_EPOCHS, LOG_START_OFFSETS, RECOVERY_POINTS

app = typer.Typer(help="Look into the files of a log directory.")

CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, LEADER_EPOCHS)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@app.callback()
def log() -> None:
    """Makes `dump` a verb of its own; with a single command typer would drop the word."""


@app.command()
def dump(
    segment: Annotated[
        str, typer.Argument(metavar="FILE", help="A segment, an index, a snapshot or a checkpoint.")
    ],
    records: Annotated[bool, typer.Option("--records", help="Of a .log, show each record.")] = False,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Print the content of a segment's files or of a checkpoint."""
    found = _read(segment, records)
    if format is TableFormat.JSON:
        for row in found.rows:
            print_json(dict(zip(found.columns, row, strict=True)))
    else:
        print_table([column.replace("_", " ") for column in found.columns], map(_words, found.rows))
    if found.problem is not None:
        raise Failure(f"{segment}: {found.problem}")


def _read(path: str, records: bool) -> Dump:
    name = os.path.basename(path)
    suffix = os.path.splitext(name.removesuffix(".deleted"))[1]
    if suffix not in SUFFIXES and name not in CHECKPOINTS:
        raise BadWord(f"{path}: not a file this can read; name a {', '.join(SUFFIXES)} file or a checkpoint")
    if records and suffix != ".log":
        raise BadWord(f"--records: only a .log file holds records, {name} does not")
    try:
        if name in CHECKPOINTS:
            return dump_checkpoint(path)
        return dump_file(path, suffix, records)
    except OSError as error:
        raise BadWord(f"{path}: {error.strerror}") from None


def _words(row: tuple[object, ...]) -> list[object]:
    return ["null" if cell is None else cell for cell in row]
