"""Options shared by several commands, and the format of examples below a help text."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidelog.cli.names import complete_resource, complete_topic


class TableFormat(StrEnum):
    """The output format of a command that prints facts."""

    TABLE = "table"
    JSON = "json"


class RecordFormat(StrEnum):
    """The format of records: bare lines, or one JSON object a line."""

    TEXT = "text"
    JSON = "json"


BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar="TIDELOG_BOOTSTRAP_SERVER",
        help="Any broker of the cluster.",
    ),
]
TableOrJson = Annotated[
    TableFormat, typer.Option("--format", help="A table for people or JSON for programs.")
]
TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="Name of a topic.", show_default=False, autocompletion=complete_topic
    ),
]
TopicNames = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC…", help="Names of topics.", show_default=False, autocompletion=complete_topic
    ),
]
ResourceWord = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="topic/NAME, broker/ID, broker/default, group/NAME or client-metrics/NAME.",
        show_default=False,
        autocompletion=complete_resource,
    ),
]
Unset = Annotated[
    list[str] | None,
    typer.Option(
        "--unset", metavar="KEY", help="Reset to the default (may be repeated).", show_default=False
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the broker check the change, change nothing.")]

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
PARTITIONS_MAX = 100_000  # of one topic; this and the next are librdkafka's bounds
REPLICAS_MAX = 10_000  # of one partition


def unique(names: list[str]) -> list[str]:
    """Each name once, in the order given."""
    return list(dict.fromkeys(names))


def examples(*lines: str) -> str:
    """The examples below a help text, one per line."""
    head = "Examples:" if len(lines) > 1 else "Example:"
    return "\n".join([head, *(f"$ {line}" for line in lines)])
