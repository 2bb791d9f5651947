"""`tidelog pipeline run`: once over the present records, or until it is stopped.

`--once` reads to the present ends of the topics and then loads every day that has records;
`--continuous` runs until SIGINT or SIGTERM; `--day` loads days and starts no query, so that it may run
at night beside a continuous run.

**Invariant:** however it ends, the queries are stopped, the status file says how, and Spark has ended.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    PARTITIONS_MAX,
    BootstrapServer,
    TableFormat,
    TableOrJson,
)
from tidelog.cli.pipeline_options import (
    DEFAULT_DIRECTORY,
    SPARK_LOG,
    Directory,
    Master,
    PipelineName,
    SomeOptions,
    find,
    session,
    split,
)
from tidelog.cli.pipeline_status import line, picture
from tidelog.cli.pipeline_topics import require_topics
from tidelog.cli.screen import console, print_json, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.pipelines.runner import Place, Run
    from tidelog.spark.pipelines.status import RunStatus, StatusFile

LOOK_SECONDS = 1.0
NAP_SECONDS = 0.2
LINE_SECONDS = 10.0  # between two lines without a terminal

Days = list[tuple[date, dict[str, int]]]
Show = Callable[["RunStatus"], None]


def run(
    name: PipelineName,
    once: Annotated[
        bool,
        typer.Option("--once", help="Process the present records: the streams, then every day. The default."),
    ] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Run the streams until Ctrl-C.")] = False,
    days: Annotated[
        list[datetime] | None,
        typer.Option(
            "--day",
            formats=["%Y-%m-%d"],
            help="Only load this day (UTC) into the lake; may be repeated.",
            show_default=False,
        ),
    ] = None,
    replace_days: Annotated[
        bool, typer.Option("--replace", help="Load a day even if retention has deleted some of its records.")
    ] = False,
    directory: Directory = DEFAULT_DIRECTORY,
    master: Master = None,
    create_topics: Annotated[bool, typer.Option("--create-topics", help="Create missing topics.")] = False,
    partitions: Annotated[
        int, typer.Option(min=1, max=PARTITIONS_MAX, help="Partitions of each created topic.")
    ] = 2,
    options: SomeOptions = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> int:
    """Run a pipeline: once over the present records, or until it is stopped."""
    if once + continuous + bool(days) > 1:
        raise BadWord("--once, --continuous and --day cannot be combined; name one")
    pipeline = find(name)
    for_tidelog, for_spark = split(options or [])
    require_topics(pipeline, bootstrap_server, may_create=create_topics, partitions=partitions)
    from tidelog.spark.pipelines.runner import Place

    place = Place(bootstrap_server, str(directory.resolve()), for_tidelog)
    directory.mkdir(parents=True, exist_ok=True)
    job = Job(pipeline, place, is_quiet=format is TableFormat.JSON, may_replace=replace_days)
    mode = "continuous" if continuous else "day" if days else "once"
    log = directory / SPARK_LOG
    with job.booked(mode, master or "local[*]"), session(f"tidelog {name}", master, for_spark, log) as spark:
        if not days:
            job.stream(spark)
        if not continuous and not job.is_stopped:
            job.load(spark, [day.date() for day in days or []])
    job.tell(format)
    return 0


class Failed(Failure):
    """A query failed; the message is its error."""


@dataclass
class Job:
    """One run of this command."""

    pipeline: Pipeline
    place: Place
    is_quiet: bool
    may_replace: bool = False
    is_stopped: bool = False
    loaded: Days = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Days that were not replaced, and why."""
    status: RunStatus = field(init=False)
    _file: StatusFile | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _said: float = -LINE_SECONDS

    @contextmanager
    def booked(self, mode: str, master: str) -> Iterator[None]:
        """Register this run and record how it ended. A load of days is not registered: it may run beside a
        query."""
        from tidelog.spark.pipelines.status import FAILED, STOPPED, AlreadyRuns, StatusFile, begun

        self.status = begun(self.pipeline.name, mode, master, self.place.bootstrap_servers)
        if mode == "day":
            yield
            return
        file = StatusFile(self.place.directory, self.pipeline.name)
        try:
            with file.held():
                self._file = file
                self._write()
                try:
                    with self._kept_fresh():
                        yield
                except BaseException as error:
                    is_interrupt = isinstance(error, KeyboardInterrupt)
                    self._write(state=FAILED, error="interrupted" if is_interrupt else str(error))
                    raise
                self._write(state=STOPPED)
        except AlreadyRuns as error:
            raise Failure(f"{error}; stop it, or name another --dir") from None

    @contextmanager
    def _kept_fresh(self) -> Iterator[None]:
        """Write the status every second, also while Spark starts and while a day is loaded."""
        is_over = threading.Event()

        def write() -> None:
            while not is_over.wait(LOOK_SECONDS):
                with suppress(OSError):  # a full disk fails the run itself, not the status
                    self._write()

        writer = threading.Thread(target=write, name="status", daemon=True)
        writer.start()
        try:
            yield
        finally:
            is_over.set()
            writer.join()

    def stream(self, spark: SparkSession) -> None:
        """Run until all queries have ended, one has failed, or a signal came."""
        from tidelog.spark.pipelines.runner import Run

        is_once = self.status.mode == "once"
        with self._stopped_by_signals():
            running = Run(spark, self.pipeline, self.place, is_once=is_once)
            try:
                with self._shown() as show:
                    self._start(running, show)
                    self._watch(running, show)
            finally:
                running.stop()
        self._look(running)
        if running.failure:
            raise Failed(running.failure)

    def _start(self, running: Run, show: Show) -> None:
        for _ in running.start():
            self._look(running)
            show(self.status)
            if running.failure or self.is_stopped:
                return

    def _watch(self, running: Run, show: Show) -> None:
        looked = -LOOK_SECONDS
        while running.is_active and not running.failure and not self.is_stopped:
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                self._look(running)
                show(self.status)
            time.sleep(NAP_SECONDS)

    def _look(self, running: Run) -> None:
        self._write(queries=tuple(running.look()))

    def _write(self, **changes: object) -> None:
        from tidelog.spark.pipelines.status import now_ms

        with self._lock:
            self.status = replace(self.status, updated_ms=now_ms(), **changes)  # type: ignore[arg-type]
            if self._file is not None:
                self._file.write(self.status)

    def load(self, spark: SparkSession, wanted: Sequence[date]) -> None:
        """Load the given days; without any, every day with records, if no table would lose rows."""
        from tidelog.spark.pipelines.runner import RecordsAreGone, days_present, load_day

        for day in wanted or days_present(spark, self.pipeline, self.place):
            self._write(doing=f"loads {day}")
            self.say(f"loading {day}")
            try:
                rows = load_day(spark, self.pipeline, self.place, day, may_replace=self.may_replace)
                self.loaded.append((day, rows))
            except RecordsAreGone as gone:
                if wanted:
                    raise Failure(f"{gone} (--replace)") from None
                self.left.append(f"{day} stays as it is: {gone}")

    def say(self, words: str) -> None:
        if not self.is_quiet:
            print(words, flush=True)

    def _line(self, status: RunStatus) -> None:
        if time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            self.say(line(status))

    def tell(self, format: TableFormat) -> None:
        """Print the result."""
        if format is TableFormat.JSON:
            days = [{"day": str(day), "rows": rows} for day, rows in self.loaded]
            print_json(asdict(self.status) | {"days": days, "days_left": self.left})
            return
        if self.status.queries:
            console().print(picture(self.status, has_bars=False))
        for words in self.left:
            print(words)
        if self.loaded:
            tables = list(self.loaded[0][1])
            rows = [(str(day), *(counts[table] for table in tables)) for day, counts in self.loaded]
            print_table(("rows of", *tables), rows)
        print(f"tables are in {self.place.lake}/{self.pipeline.name}")

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run, not the process; a second SIGINT is Ctrl-C as usual."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            self.is_stopped = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _shown(self) -> Iterator[Show]:
        screen = console()
        if self.is_quiet or not screen.is_terminal:
            yield self._line
            return
        with Live(console=screen, auto_refresh=False, transient=True) as live:
            note = "" if self.status.mode == "once" else "Ctrl-C stops it"
            yield lambda status: live.update(picture(status, note=note), refresh=True)
