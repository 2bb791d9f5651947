"""`tidelog demo`: from clicks to a report, with the broker killed in between.

The day of a web shop and its machines is generated from a seed. Half of it is in the topics when two Spark
pipelines start; the other half is sent while they run, and meanwhile the broker is killed with SIGKILL and
started again. In the end every table is compared with a computation in plain Python from the records
that were sent. `tidelog demo kills` is a demonstration without Spark: see `demo_kills`.

Records are sent in the order of their arrival, some minutes of the day at a time, each portion acknowledged
before the next: no partition is ever further ahead than a stream tolerates.

**Invariant:** however it ends, no process is left behind, and no file but the report unless `--dir` is given.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidelog.cli.demo_check import Finding, checked
from tidelog.cli.demo_kills import kills
from tidelog.cli.demo_truth import Sent
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.options import TableFormat, TableOrJson, examples
from tidelog.cli.pipeline_options import SPARK_LOG, find, session
from tidelog.cli.pipeline_topics import Sending, last_whole_day, require_topics
from tidelog.cli.screen import console, print_json
from tidelog.testing.process import BrokerDidNotStart, BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.generated import Record
    from tidelog.spark.pipelines.runner import Place, Run

PIPELINES = ("activity", "metrics")
REPORT_FOLDER = Path("tidelog-demo")
OPENS_AT, OPEN_HOURS = 5, 16  # so that every session ends on the same day
PEOPLE, HOSTS = 400, 12
PORTION_MS = 2 * 60_000
SECOND_HALF_SECONDS = 25.0
DEAD_SECONDS = 1.0
LOOK_SECONDS = 1.0

app = typer.Typer(help="Run a complete example: broker, pipelines, a kill, a check of all records, a report.")
app.command("kills", epilog=examples("tidelog demo kills", "tidelog demo kills --records 100000 --kills 5"))(
    kills
)


@app.callback(
    invoke_without_command=True,
    epilog=examples("tidelog demo", "tidelog demo --events 200000 --dir ./everything", "tidelog demo kills"),
)
def demo(
    context: typer.Context,
    events: Annotated[int, typer.Option(min=1_000, help="Records of each pipeline.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated day.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            file_okay=False,
            help="Keep everything here: logs, lake, checkpoints, report.",
            show_default=f"only the report stays, in ./{REPORT_FOLDER}",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Stop with an error after this time.")
    ] = 900.0,
    format: TableOrJson = TableFormat.TABLE,
) -> int:
    """Run two pipelines over a generated day, kill the broker, and check every table."""
    if context.invoked_subcommand is not None:
        return 0
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise BadWord(f"--dir {directory}: not empty; name an empty or a new folder")
    for name in PIPELINES:
        find(name)
    began = time.monotonic()
    with _at_most(timeout), _working_directory(directory) as work:
        report = directory / "report" if directory else REPORT_FOLDER
        outcome = Demo(work, report, seed, events, is_quiet=format is TableFormat.JSON).run()
    outcome.seconds = time.monotonic() - began
    if format is TableFormat.JSON:
        print_json(outcome.facts())
    else:
        outcome.tell()
    return 0 if outcome.is_well else 1


@dataclass
class Outcome:
    findings: list[Finding]
    pages: list[Path]
    pictures: list[Path]
    killed_after: int
    restart_seconds: float
    seconds: float = 0.0

    @property
    def is_well(self) -> bool:
        return all(finding.is_well for finding in self.findings)

    def facts(self) -> dict[str, Any]:
        return {
            "is_complete": self.is_well,
            "killed_after": self.killed_after,
            "restart_seconds": round(self.restart_seconds, 3),
            "seconds": round(self.seconds, 1),
            "checks": [asdict(finding) | {"is_well": finding.is_well} for finding in self.findings],
            "reports": [str(path) for path in self.pages],
            "pictures": [str(path) for path in self.pictures],
        }

    def tell(self) -> None:
        console().print(self._table())
        verdict = "nothing is missing, no table has a row twice" if self.is_well else "THE RESULTS ARE WRONG"
        console().print(f"[bold]{verdict}[/bold]")
        for page in self.pages:
            print(f"report: {page}")
        folders = sorted({str(picture.parent) for picture in self.pictures})
        print(f"plots:  {len(self.pictures)} PNG files in {', '.join(folders)}")
        print(f"in {self.seconds:.0f} s")

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("")
        for column in ("expected", "found", "doubled"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("")
        for finding in self.findings:
            numbers = number(finding.expected), number(finding.found), number(finding.doubled)
            table.add_row(finding.what, *numbers, "ok" if finding.is_well else "[red]WRONG")
        return table


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


class Demo:
    """One demonstration, from the empty directory to the report."""

    def __init__(self, work: Path, report: Path, seed: int, events: int, *, is_quiet: bool) -> None:
        self._work = work
        self._report = report
        self._is_quiet = is_quiet
        self._day = last_whole_day().date()
        opens = datetime(self._day.year, self._day.month, self._day.day, OPENS_AT, tzinfo=UTC)
        self._records = {
            name: list(find(name).generate(seed, people, events, opens, timedelta(hours=OPEN_HOURS)))
            for name, people in zip(PIPELINES, (PEOPLE, HOSTS), strict=True)
        }

    def run(self) -> Outcome:
        with _progress(self._is_quiet) as progress:
            self._show = Shown(progress)
            try:
                with BrokerProcess(self._work / "broker") as broker:
                    return self._with_broker(broker)
            except BrokerDidNotStart as error:
                raise Failure(f"the broker did not start: {error}") from None

    def _with_broker(self, broker: BrokerProcess) -> Outcome:
        say = self._show.say
        say(f"broker started in {broker.start_seconds:.2f} s at {broker.bootstrap_servers}")
        for name in PIPELINES:
            require_topics(find(name), broker.bootstrap_servers, may_create=True, partitions=2)
        everything = sorted(
            (record for records in self._records.values() for record in records), key=lambda record: record[3]
        )
        halves = everything[: len(everything) // 2], everything[len(everything) // 2 :]
        producer = Production(broker, Sending(broker.bootstrap_servers), self._show, len(everything))
        producer.send(halves[0])
        say(f"sent the first half of the day: {len(halves[0]):,} records")
        with session(
            "tidelog demo", "local[2]", {"spark.driver.memory": "1g"}, self._work / SPARK_LOG
        ) as spark:
            say("Spark started")
            place = self._place(broker)
            self._stream(spark, place, producer, halves[1])
            self._load(spark, place)
            self._clear_report()
            pages = [find(name).report(spark, place.lake, self._report) for name in PIPELINES]
            sent = [Sent.of(self._records[name]) for name in PIPELINES]
            say("comparing")
            findings = list(checked(spark, place, *sent))
        pictures = sorted(path for name in PIPELINES for path in self._report.glob(f"{name}-*.png"))
        return Outcome(findings, pages, pictures, producer.killed_after, producer.restart_seconds)

    def _clear_report(self) -> None:
        """Remove an earlier demo's plots: the busiest series may be others now."""
        for name in PIPELINES:
            for picture in self._report.glob(f"{name}-*.png"):
                picture.unlink()

    def _place(self, broker: BrokerProcess) -> Place:
        from tidelog.spark.pipelines.runner import Place

        return Place(broker.bootstrap_servers, str(self._work.resolve()))

    def _stream(
        self, spark: SparkSession, place: Place, producer: Production, records: Sequence[Record]
    ) -> None:
        """Run both pipelines to the end, while the second half is sent."""
        from tidelog.spark.pipelines.runner import Run

        runs = {name: Run(spark, find(name), place, is_once=False) for name in PIPELINES}
        try:
            for name, run in runs.items():
                for _ in run.start():
                    self._show.look(runs)
                self._show.say(f"pipeline {name}: {len(run.look())} streaming queries run")
            producer.send(records, runs, pace_seconds=SECOND_HALF_SECONDS)
            self._show.say("all records sent; waiting for the queries")
            for name, run in runs.items():
                self._finish(name, run, runs)
        finally:
            for run in runs.values():
                run.stop()

    def _finish(self, name: str, run: Run, runs: dict[str, Run]) -> None:
        while any(query.lag != 0 for query in self._show.look(runs)[name]):
            time.sleep(LOOK_SECONDS)
        run.settle()
        self._show.look(runs)
        rows = sum(query.rows for query in run.look())
        self._show.say(f"pipeline {name}: {rows:,} rows read, nothing left")

    def _load(self, spark: SparkSession, place: Place) -> None:
        from tidelog.spark.pipelines.runner import load_day

        for name in PIPELINES:
            rows = load_day(spark, find(name), place, self._day)
            self._show.say(
                f"pipeline {name}: {self._day} loaded, {sum(rows.values()):,} rows in {len(rows)} tables"
            )


@dataclass
class Production:
    """Sends the day, and kills the broker while the second half is sent."""

    broker: BrokerProcess
    sending: Sending
    show: Shown
    total: int
    killed_after: int = 0
    restart_seconds: float = 0.0

    def send(
        self, records: Sequence[Record], runs: dict[str, Run] | None = None, pace_seconds: float = 0.0
    ) -> None:
        portions = list(in_portions(records))
        looked = time.monotonic()
        for index, portion in enumerate(portions):
            self.sending.send(portion)
            if runs and index == len(portions) // 2:
                self._kill()
            self.sending.flush()
            self.show.sent(self.sending.acknowledged, self.total)
            time.sleep(pace_seconds / len(portions))
            if runs and time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                self.show.look(runs)

    def _kill(self) -> None:
        """Kill the broker while records are under way."""
        self.killed_after = self.sending.acknowledged
        self.broker.kill()
        time.sleep(DEAD_SECONDS)
        started = time.monotonic()
        self.broker.start()
        self.restart_seconds = time.monotonic() - started
        self.show.say(
            f"broker killed (SIGKILL) after {self.killed_after:,} records; "
            f"{DEAD_SECONDS:.0f} s later restarted in {self.restart_seconds:.2f} s"
        )


def in_portions(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Portions of records that arrive within some minutes of one another."""
    portion: list[Record] = []
    for record in records:
        if portion and record[3] - portion[0][3] >= PORTION_MS:
            yield portion
            portion = []
        portion.append(record)
    if portion:
        yield portion


@dataclass
class Shown:
    """The output: permanent lines, and progress bars on a terminal."""

    progress: Progress
    tasks: dict[str, TaskID] = field(default_factory=dict)

    def say(self, words: str) -> None:
        self.progress.console.print(words, markup=False)

    def sent(self, count: int, total: int) -> None:
        self._bar("sent", count, total, "")

    def look(self, runs: dict[str, Run]) -> dict[str, Any]:
        """The progress of all queries; raises a Failure if one has failed."""
        found = {}
        for name, run in runs.items():
            if failure := run.failure:
                raise Failure(f"pipeline {name}: {failure}")
            found[name] = queries = run.look()
            rows, lag = sum(query.rows for query in queries), sum(query.lag or 0 for query in queries)
            speed = sum(query.rows_per_second for query in queries)
            self._bar(name, rows, rows + lag, f"{speed:,.0f} rows/s, lag {lag:,}")
        return found

    def _bar(self, name: str, done: int, total: int, words: str) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(name, words="")
        self.progress.update(self.tasks[name], completed=done, total=max(total, 1), words=words)


@contextmanager
def _progress(is_quiet: bool) -> Iterator[Progress]:
    out = console()
    out.quiet = is_quiet
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.completed:>10,.0f}"),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, disable=not out.is_terminal, transient=True) as progress:
        yield progress


@contextmanager
def _working_directory(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    made = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise a Failure in the block after that many seconds."""

    over = Failure(f"not done after {seconds:.0f} s; allow more time with --timeout")
    rung: list[int] = []

    def give_up(number: int, frame: FrameType | None) -> None:
        rung.append(number)
        raise over

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception:
        if rung:  # the JVM bridge may have turned the alarm into another error
            raise over from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
