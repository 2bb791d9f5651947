"""`tidelog pipeline list | run | status | generate | report`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidelog.cli.failure import Failure
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    PARTITIONS_MAX,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    examples,
)
from tidelog.cli.pipeline_options import (
    DEFAULT_DIRECTORY,
    SPARK_LOG,
    Directory,
    Master,
    PipelineName,
    SomeOptions,
    find,
    registry,
    session,
    split,
)
from tidelog.cli.pipeline_run import run
from tidelog.cli.pipeline_status import print_status
from tidelog.cli.pipeline_topics import Sending, last_whole_day, require_topics
from tidelog.cli.screen import console, print_json, print_table

app = typer.Typer(help="Run prepared Spark pipelines: from topics to topics and tables.")

SEND_SLICE = 5_000


@app.command("list", epilog=examples("tidelog pipeline list", "tidelog pipeline list --format json"))
def list_all(format: TableOrJson = TableFormat.TABLE) -> None:
    """List the pipelines: what each does, the topics it reads and writes, its tables."""
    pipelines = registry().values()
    if format is TableFormat.JSON:
        print_json(
            [
                {
                    "pipeline": pipeline.name,
                    "summary": pipeline.summary,
                    "topics_in": pipeline.topics_in,
                    "topics_out": pipeline.topics_out,
                    "tables": dict(pipeline.tables),
                }
                for pipeline in pipelines
            ]
        )
        return
    for pipeline in pipelines:
        console().print(f"{pipeline.name}: {pipeline.summary}", style="bold", markup=False)
        print("  reads   " + ", ".join(pipeline.topics_in))
        print("  writes  " + ", ".join(pipeline.topics_out))
        for index, (table, meaning) in enumerate(pipeline.tables.items()):
            print(f"  {'' if index else 'tables':<7} {table:<13} {meaning}")
        print()


app.command(
    epilog=examples(
        "tidelog pipeline run activity --once --create-topics",
        "tidelog pipeline run activity --day 2026-01-31 --dir /data/shop",
        "tidelog pipeline run metrics --continuous --master spark://host:7077 --dir /shared/metrics",
        "tidelog pipeline run metrics --once -o maxOffsetsPerTrigger=100000 -o spark.driver.memory=2g",
    )
)(run)


@app.command(
    epilog=examples("tidelog pipeline status", "tidelog pipeline status --dir /data/shop --format json")
)
def status(directory: Directory = DEFAULT_DIRECTORY, format: TableOrJson = TableFormat.TABLE) -> None:
    """Show the runs of a directory: whether they are alive, rows per second, lag, the last error."""
    from tidelog.spark.pipelines.status import statuses

    found = statuses(directory)
    if format is TableFormat.JSON:
        print_json([asdict(one) for one in found])
    elif not found:
        raise Failure(f"{directory}: no pipeline has run here; name its directory with --dir")
    else:
        print_status(found)


@app.command(
    epilog=examples(
        "tidelog pipeline generate activity --events 1000000 --seed 7 --create-topics",
        "tidelog pipeline generate metrics --start 2026-01-31 --hours 12 --users 50",
    )
)
def generate(
    name: PipelineName,
    events: Annotated[int, typer.Option(min=1, help="Number of records.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated records.")] = 1,
    users: Annotated[int, typer.Option(min=1, help="Number of users, or of measured hosts.")] = 500,
    start: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Time of the first record, UTC.",
            show_default="yesterday",
        ),
    ] = None,
    hours: Annotated[float, typer.Option(min=0.1, help="Hours covered by the records.")] = 24.0,
    create_topics: Annotated[bool, typer.Option("--create-topics", help="Create missing topics.")] = False,
    partitions: Annotated[
        int, typer.Option(min=1, max=PARTITIONS_MAX, help="Partitions of each created topic.")
    ] = 2,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Fill the topics of a pipeline with realistic records."""
    pipeline = find(name)
    require_topics(pipeline, bootstrap_server, may_create=create_topics, partitions=partitions)
    begin = (start or last_whole_day()).replace(tzinfo=UTC)
    sending = Sending(bootstrap_server)
    records = pipeline.generate(seed, users, events, begin, timedelta(hours=hours))
    counts: dict[str, int] = dict.fromkeys(pipeline.topics_in, 0)
    with _bar(is_quiet=format is TableFormat.JSON) as progress:
        task = progress.add_task(name, total=events)
        for number, record in enumerate(records):
            counts[record[0]] += 1
            sending.send([record])
            if number % SEND_SLICE == 0:
                progress.update(task, completed=sending.acknowledged)
        sending.flush()
        progress.update(task, completed=sending.acknowledged)
    if format is TableFormat.JSON:
        print_json({"pipeline": name, "start_ms": int(begin.timestamp() * 1000), "topics": counts})
    else:
        print_table(("topic", "records"), list(counts.items()))


def _bar(*, is_quiet: bool) -> Progress:
    out = console()
    out.quiet = is_quiet
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out, disable=not out.is_terminal)


@app.command(
    epilog=examples("tidelog pipeline report activity", "tidelog pipeline report metrics --to ./report")
)
def report(
    name: PipelineName,
    directory: Directory = DEFAULT_DIRECTORY,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the report.", show_default="DIR/report")
    ] = None,
    master: Master = None,
    options: SomeOptions = None,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Draw a page with plots (HTML and PNG) from the tables of the lake."""
    pipeline = find(name)
    from tidelog.spark.pipelines.runner import Place

    place = Place("", str(directory.resolve()))
    if not (Path(place.lake) / name).is_dir():
        raise Failure(
            f"{directory}: no tables of {name} in the lake; fill it with 'tidelog pipeline run {name}'"
        )
    _, settings = split(options or [])
    with session(f"tidelog {name} report", master, settings, directory / SPARK_LOG) as spark:
        page = pipeline.report(spark, place.lake, to or directory / "report")
    pictures = sorted(str(path) for path in page.parent.glob(f"{name}-*.png"))
    if format is TableFormat.JSON:
        print_json({"page": str(page), "pictures": pictures})
    else:
        print("\n".join([str(page), *pictures]))
