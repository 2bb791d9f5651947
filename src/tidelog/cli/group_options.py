"""Arguments of several `tidelog group` commands: names of groups, `--topic T[:p,p]`."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from confluent_kafka.admin._metadata import ClusterMetadata

from tidelog.cli.connection import no_such_topic
from tidelog.cli.failure import BadWord
from tidelog.cli.group_coordinators import list_groups
from tidelog.cli.group_members import Partition
from tidelog.cli.names import complete_topic

_TOPIC_WORD = re.compile(r"([^:]+)(?::(\d{1,9}(?:,\d{1,9})*))?")


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    try:
        listed, _ = list_groups(context.params["bootstrap_server"])
    except Exception:  # completion must never print errors
        return []
    return [found.group for found in listed if found.group.startswith(incomplete)]


GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="Name of a group.", show_default=False, autocompletion=complete_group
    ),
]
GroupNames = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP…", help="Names of groups.", show_default=False, autocompletion=complete_group
    ),
]
SomeGroupNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP…", help="Names of groups.", show_default=False, autocompletion=complete_group
    ),
]
TopicWords = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="T[:p,p]",
        help="A topic, or some of its partitions (may be repeated).",
        show_default=False,
        autocompletion=complete_topic,
    ),
]


def parse_topic(word: str) -> tuple[str, tuple[int, ...] | None]:
    """The topic, and its partitions if some are named."""
    matched = _TOPIC_WORD.fullmatch(word)
    if matched is None:
        raise BadWord(f"--topic {word}: not a topic; write topic, or topic:0,1 for some of its partitions")
    return matched[1], None if matched[2] is None else tuple(map(int, matched[2].split(",")))


def partitions_of(words: list[str], metadata: ClusterMetadata) -> list[Partition]:
    """All partitions that the words name; raises a Failure if one does not exist."""
    named: set[Partition] = set()
    for word in words:
        topic, numbers = parse_topic(word)
        if topic not in metadata.topics:
            raise no_such_topic(topic)
        existing = metadata.topics[topic].partitions
        for number in existing if numbers is None else numbers:
            if number not in existing:
                raise BadWord(f"--topic {word}: {topic!r} has partitions 0 to {len(existing) - 1}")
            named.add(Partition(topic, number))
    return sorted(named)
