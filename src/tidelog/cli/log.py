"""`tidelog log dump | verify`: shows what is in a file of a log directory, and says what is wrong in it.

**Invariant:** reads only; where there is damage, the exit code is 1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tidelog.base.limits import MIB
from tidelog.base.reading import ReadOnlyFile, ReadOnlyFolder
from tidelog.cli.failure import BadWord, Failure, raise_failures
from tidelog.cli.jsonlines import text_of
from tidelog.cli.options import TableFormat, TableOrJson, examples, unique
from tidelog.cli.screen import print_json, print_table, size_text
from tidelog.log.check.dump import Dump, dump_checkpoint, dump_file
from tidelog.log.check.findings import Findings, WrongPath
from tidelog.log.check.verification import Verification
from tidelog.log.format.names import (
    CLEANED_OFFSETS,
    DELETED_SUFFIX,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    LOG_SUFFIX,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
)

app = typer.Typer(help="Look into the files of a log directory, without a broker.")

CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANED_OFFSETS, LEADER_EPOCHS)
PROGRESS_SIZE_MIN = 64 * MIB  # less is read before a bar is seen


@app.command(
    epilog=examples(
        "tidelog log dump data/orders-0/00000000000000000000.log",
        "tidelog log dump data/orders-0/00000000000000000000.log --records --format json",
        "tidelog log dump data/recovery-point-offset-checkpoint",
    )
)
def dump(
    segment: Annotated[
        str, typer.Argument(metavar="FILE", help="A segment, an index, a snapshot or a checkpoint.")
    ],
    records: Annotated[bool, typer.Option("--records", help="Of a .log, show each record.")] = False,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Print the content of a segment's files or of a checkpoint."""
    found = _read(segment, records)
    rows = [tuple(map(_shown, row)) for row in found.rows]
    if format is TableFormat.JSON:
        for row in rows:
            print_json(dict(zip(found.columns, row, strict=True)))
    else:
        print_table([column.replace("_", " ") for column in found.columns], map(_words, rows))
    if found.problem is not None:
        raise Failure(f"{segment}: {found.problem}")


@app.command(
    epilog=examples("tidelog log verify data", "tidelog log verify data/orders-0 data/orders-1")
    + "\n\nExit code 0: all is well; 1: problems were found; 2: not a log directory."
)
def verify(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIRECTORY…", help="A log directory, or a partition's folder.", show_default=False
        ),
    ],
    format: TableOrJson = TableFormat.TABLE,
) -> int:
    """Check every batch, index, snapshot and checkpoint; say what a broker would do about what is wrong."""
    findings = Findings()
    checks, failures = _open(unique(directories), findings)
    if not checks:
        raise_failures(failures)
    in_use = [path for path, check in checks.items() if check.is_in_use]
    for path in in_use:
        print(f"tidelog: {path} is in use by a broker: what it writes now may look torn", file=sys.stderr)
    started = time.monotonic()
    with _progress(sum(check.size for check in checks.values())) as findings.on_progress:
        for check in checks.values():
            check.run()
    if format is TableFormat.JSON:
        print_json(_verdict_json(findings, in_use))
    else:
        _print_verdict(findings, time.monotonic() - started)
    raise_failures(failures)
    return 1 if findings.problems else 0


def _open(directories: list[str], findings: Findings) -> tuple[dict[str, Verification], list[Failure]]:
    checks: dict[str, Verification] = {}
    failures: list[Failure] = []
    for path in directories:
        try:
            checks[path] = Verification(ReadOnlyFolder(path), findings)
        except WrongPath as problem:
            failures.append(BadWord(f"{path}: {problem}"))
    return checks, failures


@contextmanager
def _progress(size: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal, for logs that are worth one; takes the bytes that were read."""
    terminal = Console(stderr=True)
    columns = (
        TextColumn("verify"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    is_shown = terminal.is_terminal and size >= PROGRESS_SIZE_MIN
    with Progress(*columns, console=terminal, disable=not is_shown, transient=True) as progress:
        task = progress.add_task("verify", total=size)
        yield lambda read: progress.advance(task, read)


def _verdict_json(findings: Findings, in_use: list[str]) -> dict[str, object]:
    return {
        "partitions": findings.partitions,
        "segments": findings.segments,
        "batches": findings.batches,
        "records": findings.records,
        "size": findings.size,
        "gaps": findings.gaps,
        "in_use": in_use,
        "problems": [problem._asdict() for problem in findings.problems],
    }


def _print_verdict(findings: Findings, seconds: float) -> None:
    for problem in findings.problems:
        print(problem)
    counts = [
        _counted(findings.partitions, "partition"),
        _counted(findings.segments, "segment"),
        f"{findings.batches} batches",
        _counted(findings.records, "record"),
        f"{size_text(findings.size)}, read in {seconds:.1f} s",
    ]
    print(f"{_counted(len(findings.problems), 'problem')} in {', '.join(counts)}")
    if findings.gaps:
        print(
            f"{_counted(findings.gaps, 'gap')} in the offsets of sealed segments, as compaction leaves them"
        )


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}" + ("" if count == 1 else "s")


def _read(path: str, records: bool) -> Dump:
    name = os.path.basename(path)
    suffix = os.path.splitext(name.removesuffix(DELETED_SUFFIX))[1]
    if suffix not in SEGMENT_SUFFIXES and name not in CHECKPOINTS:
        raise BadWord(
            f"{path}: not a file this can read; name a {', '.join(SEGMENT_SUFFIXES)} file or a checkpoint"
        )
    if records and suffix != LOG_SUFFIX:
        raise BadWord(f"--records: only a .log file holds records, {name} does not")
    try:
        with ReadOnlyFile(path) as file:
            return dump_checkpoint(file) if name in CHECKPOINTS else dump_file(file, suffix, records)
    except WrongPath as problem:
        raise BadWord(f"{path}: {problem}") from None
    except OSError as error:
        raise BadWord(f"{path}: {error.strerror}") from None


def _shown(cell: object) -> object:
    """As JSON can hold it: keys, values and headers of records are bytes."""
    if isinstance(cell, list):
        return [_shown(each) for each in cell]
    return text_of(cell) if isinstance(cell, bytes) else cell


def _words(row: tuple[object, ...]) -> list[object]:
    return ["null" if cell is None else cell for cell in row]
