"""Shell completion of topics, brokers and resources, with names from the broker.

**Invariant:** an error while completing prints nothing and ends quickly.
"""

from __future__ import annotations

from collections.abc import Callable

import typer
from confluent_kafka.admin._metadata import ClusterMetadata

from tidelog.cli.connection import open_admin
from tidelog.cli.settings import DEFAULT_BROKER, KINDS

NAMES_TIMEOUT_S = 1.0


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    return _quietly(lambda: [name for name in _topics(context) if name.startswith(incomplete)])


def complete_resource(context: typer.Context, incomplete: str) -> list[str]:
    kind, separator, _ = incomplete.partition("/")
    if not separator:
        return [f"{known}/" for known in KINDS if known.startswith(incomplete)]
    names: Callable[[], list[str]] = {
        "topic": lambda: _topics(context),
        "broker": lambda: [DEFAULT_BROKER, *map(str, _metadata(context).brokers)],
    }.get(kind, list)
    return _quietly(lambda: [f"{kind}/{name}" for name in names() if f"{kind}/{name}".startswith(incomplete)])


def _topics(context: typer.Context) -> list[str]:
    return sorted(_metadata(context).topics)


def _metadata(context: typer.Context) -> ClusterMetadata:
    admin = open_admin(context.params["bootstrap_server"])
    metadata: ClusterMetadata = admin.list_topics(timeout=NAMES_TIMEOUT_S)
    return metadata


def _quietly(names: Callable[[], list[str]]) -> list[str]:
    try:
        return names()
    except Exception:  # completion must never print errors
        return []
