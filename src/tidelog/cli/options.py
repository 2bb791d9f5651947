"""The options that several commands share, written once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


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

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
