"""`tidelog cluster restored`: declares that the coordination store was restored from a backup.

**Invariant:** nothing is written without a confirmation or --yes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tidelog.base.setting import InvalidSetting
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.options import TableFormat, TableOrJson
from tidelog.cli.properties import parse_setting, read_properties
from tidelog.cli.screen import print_json

_WARNING = """\
Use this only after the coordination store (ZooKeeper, or tidelog-store.sqlite) was restored from a backup.
All brokers must be stopped. No partition will have a leader until all its replicas are back: then the
longest log leads. Topics, settings and users are those of the backup. What brokers hold of newer topics is
kept in folders that end with -stray."""


def restored(
    config: Annotated[
        Path | None, typer.Option(help="The server.properties of one of the brokers.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="A setting; overrides the file.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Declare that the coordination store was restored from a backup, so that brokers start with it again."""
    if config is None and not settings:
        raise BadWord(
            "no store named; name the broker's settings: --config FILE, or -o zookeeper.connect=HOST:PORT"
        )
    properties = read_properties(str(config)) if config is not None else {}
    properties |= dict(map(parse_setting, settings or []))
    if not yes:
        _ask()
    from tidelog.server.locks import StartFailed
    from tidelog.server.restoring import declare_restored

    try:
        found = asyncio.run(declare_restored(properties))
    except InvalidSetting as problem:
        raise BadWord(str(problem)) from None
    except StartFailed as problem:
        raise Failure(str(problem)) from None
    if format is TableFormat.JSON:
        print_json(found._asdict())
        return
    print(f"cluster {found.cluster_id}: restoration {found.generation} recorded")
    print(f"{found.topic_count} topics with {found.partition_count} partitions recover with their replicas")
    names = ", ".join(map(str, found.broker_ids))
    print(f"start all brokers now ({names}), then see 'tidelog cluster health'")


def _ask() -> None:
    typer.echo(_WARNING, err=True)
    try:
        is_sure = typer.confirm("Was the store restored, and are all brokers stopped?", err=True)
    except typer.Abort:
        raise Failure("nothing was written: not confirmed; --yes writes without asking") from None
    if not is_sure:
        raise Failure("nothing was written")
