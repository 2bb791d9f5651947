"""`tidelog group delete`: deletes groups with all their offsets, or only their offsets of some topics."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.connection import explain, open_admin
from tidelog.cli.failure import Failure, raise_failures
from tidelog.cli.group_coordinators import GroupCoordinators, no_such_group, succeeded
from tidelog.cli.group_members import Group, Partition
from tidelog.cli.group_options import GroupNames, TopicWords, parse_topic
from tidelog.cli.group_reset import has_members
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    unique,
)
from tidelog.cli.outcomes import await_all, failed_json
from tidelog.cli.remote import check
from tidelog.cli.screen import print_json, print_table
from tidelog.protocol.errors import ErrorCode


def delete(
    names: GroupNames,
    topic: TopicWords = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Delete groups without members; with --topic, only their offsets of that topic."""
    names = unique(names)
    if topic:
        gone, failures = _delete_offsets(bootstrap_server, names, topic)
        if gone:
            _print_offsets(gone, format)
        raise_failures(failures)
        return
    admin = open_admin(bootstrap_server)
    done, failed = await_all(
        admin.delete_consumer_groups(names, request_timeout=ANSWER_TIMEOUT_S),
        lambda name, error: _explain(name, error, bootstrap_server),
    )
    if format is TableFormat.JSON:
        print_json({"deleted": list(done), "failed": failed_json("group", failed)})
    elif done:
        print("deleted " + ", ".join(done))
    raise_failures(list(failed.values()))


def _explain(name: str, error: KafkaException, bootstrap_server: str) -> Failure:
    code = error.args[0].code()
    try:
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return no_such_group(bootstrap_server, name)
        if code == KafkaError.NON_EMPTY_GROUP:
            with GroupCoordinators(bootstrap_server) as coordinators:
                group = coordinators.describe([name])[name]
            if isinstance(group, Group) and group.members:
                return has_members(group, "delete")
    except Failure:  # print the known failures and the groups deleted so far
        pass
    return Failure(f"group {name!r}: {explain(error, bootstrap_server)}")


def _delete_offsets(
    bootstrap_server: str, names: list[str], words: list[str]
) -> tuple[list[tuple[str, Partition, int]], list[Failure]]:
    """The deleted offsets, and the failures."""
    wanted = [parse_topic(word) for word in words]
    gone: list[tuple[str, Partition, int]] = []
    failures: list[Failure] = []
    with GroupCoordinators(bootstrap_server) as coordinators:
        for name, answer in coordinators.committed(names).items():
            try:
                chosen = _chosen(succeeded(answer), wanted)
                if not chosen:
                    raise _nothing_committed(coordinators, bootstrap_server, name, words)
                for place, error_code in coordinators.delete_offsets(name, chosen).items():
                    _check(name, place, error_code)
                    gone.append((name, place, chosen[place]))
            except Failure as failure:
                failures.append(failure)
    return sorted(gone), failures


def _chosen(
    committed: dict[Partition, int], wanted: list[tuple[str, tuple[int, ...] | None]]
) -> dict[Partition, int]:
    return {
        place: offset
        for place, offset in committed.items()
        if any(
            place.topic == topic and place.number in (numbers or (place.number,)) for topic, numbers in wanted
        )
    }


def _nothing_committed(
    coordinators: GroupCoordinators, bootstrap_server: str, name: str, words: list[str]
) -> Failure:
    if coordinators.describe([name])[name] is None:
        return no_such_group(bootstrap_server, name)
    return Failure(
        f"group {name!r} has no committed offsets in {', '.join(words)}; see 'tidelog group lag {name}'"
    )


def _check(name: str, place: Partition, error_code: ErrorCode) -> None:
    if error_code is ErrorCode.group_subscribed_to_topic:
        raise Failure(
            f"group {name!r} has members subscribed to {place.topic!r}; stop them, then delete its offsets"
        )
    check(f"group {name!r}, partition {place.number} of {place.topic!r}", error_code, None)


def _print_offsets(gone: list[tuple[str, Partition, int]], format: TableFormat) -> None:
    columns = ("group", "topic", "partition", "deleted_offset")
    rows: list[tuple[Any, ...]] = [(name, place.topic, place.number, offset) for name, place, offset in gone]
    if format is TableFormat.JSON:
        print_json({"deleted_offsets": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table([column.replace("_", " ") for column in columns], rows)
