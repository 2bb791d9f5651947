"""The options that several commands share, written once, and how examples stand below a help text."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidelog.cli.names import complete_resource, complete_topic


class TableFormat(StrEnum):
    """How a command that answers with facts prints them."""

    TABLE = "table"
    JSON = "json"


class RecordFormat(StrEnum):
    """How records are written or read: bare lines, or one JSON object a line."""

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
    typer.Option("--unset", metavar="KEY", help="Back to the default (may be repeated).", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Have the broker check it, change nothing.")]

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
PARTITIONS_MAX = 100_000  # of one topic; this and the next are librdkafka's bounds
REPLICAS_MAX = 10_000


def unique(names: list[str]) -> list[str]:
    """Each name once, in the order given."""
    return list(dict.fromkeys(names))


def examples(*lines: str) -> str:
    """The text below a help: an example a line."""
    head = "Examples:" if len(lines) > 1 else "Example:"
    return "\n".join([head, *(f"$ {line}" for line in lines)])
