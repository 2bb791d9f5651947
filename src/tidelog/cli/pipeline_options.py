"""Options shared by the pipeline commands, and the start of Spark.

**Invariant:** Spark is imported only when a command needs it; without it, one line says what to
install.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.base.extras import install_command
from tidelog.cli.failure import BadWord, Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.pipeline import Pipeline

PACKAGES = ("pyspark", "pyarrow", "pandas", "numba", "matplotlib")
STDERR = 2
SPARK_LOG = "spark.log"
DEFAULT_DIRECTORY = Path("tidelog-pipelines")


def complete_pipeline(incomplete: str) -> list[str]:
    try:
        return [name for name in registry() if name.startswith(incomplete)]
    except Failure:
        return []


PipelineName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of a pipeline; 'list' has them.",
        show_default=False,
        autocompletion=complete_pipeline,
    ),
]
Directory = Annotated[
    Path,
    typer.Option(
        "--dir",
        file_okay=False,
        help="Folder of the lake, the checkpoints and the status; on a cluster all nodes need access.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where Spark runs: local[2], spark://host:7077, …", show_default="all local cores"
    ),
]
SomeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        metavar="NAME=VALUE",
        help="An option of source and sink (kafka.…) or of Spark (spark.…); may be repeated.",
        show_default=False,
    ),
]


def registry() -> Mapping[str, Pipeline]:
    """All pipelines; raises a one-line Failure if Spark is not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(f"pipelines need Spark ({', '.join(missing)} missing); {install_command('spark')}")
    from tidelog.spark.pipelines.registry import PIPELINES

    return PIPELINES


def find(name: str) -> Pipeline:
    pipelines = registry()
    if name not in pipelines:
        raise BadWord(f"no pipeline {name!r}; choose one of {', '.join(pipelines)}")
    return pipelines[name]


def split(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the source and the sink, and settings of Spark."""
    pairs = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise BadWord(f"-o {word}: not an option; write -o name=value")
        pairs[name] = value
    spark = {name: value for name, value in pairs.items() if name.startswith("spark.")}
    return {name: value for name, value in pairs.items() if name not in spark}, spark


@contextmanager
def session(
    app_name: str, master: str | None, settings: Mapping[str, str], log: Path
) -> Iterator[SparkSession]:
    """A Spark session that ends with the block. The stderr of Spark and its workers goes to `log`."""
    from pyspark.errors import PySparkException

    from tidelog.spark import session as open_session
    from tidelog.spark.java import JavaMissing
    from tidelog.spark.pipelines.failures import explained
    from tidelog.spark.pipelines.runner import LOCAL_SETTINGS, SETTINGS
    from tidelog.spark.session import declared_master, is_local_master

    said = declared_master(dict(settings) | ({"spark.master": master} if master else {}))
    defaults = SETTINGS | (LOCAL_SETTINGS if is_local_master(said or "local") else {})
    try:
        with _stderr_to(log):
            spark = open_session(app_name, master=master, config=defaults | dict(settings))
    except JavaMissing as missing:
        raise Failure(str(missing)) from None
    except PySparkException as error:
        raise Failure(f"Spark did not start: {explained(str(error))}; see {log}") from None
    try:
        yield spark
    except PySparkException as error:
        raise Failure(f"{explained(str(error))}; see {log}") from None
    finally:
        spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the stderr of processes started in the block, for their whole life."""
    sys.stderr.flush()
    before = os.dup(STDERR)
    with path.open("ab") as file:
        os.dup2(file.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(before, STDERR)
        os.close(before)
