"""`tidelog quota set | list | describe`: how much clients may use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import typer

from tidelog.cli.failure import BadWord
from tidelog.cli.nodes import await_controller
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    DryRun,
    TableFormat,
    TableOrJson,
    Unset,
    examples,
)
from tidelog.cli.remote import check, open_any
from tidelog.cli.screen import print_json, print_table
from tidelog.cli.settings import Operation, parse_changes
from tidelog.cluster.quotas import CLIENT_ID, CONNECTION_RATE, IP, USER, Entity, levels, ordered
from tidelog.protocol import apis
from tidelog.protocol.messages import make

app = typer.Typer(help="Show and change quotas of users, client ids and addresses.")

ANONYMOUS = "ANONYMOUS"  # the user of all who do not authenticate
_UNITS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of the loop's time",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}

User = Annotated[str | None, typer.Option(help="Name of a user.", show_default=False)]
Client = Annotated[str | None, typer.Option(help="A client id.", show_default=False)]
Address = Annotated[str | None, typer.Option(help="An address of clients.", show_default=False)]
AnyUser = Annotated[bool, typer.Option("--user-default", help="All users without a quota of their own.")]
AnyClient = Annotated[bool, typer.Option("--client-default", help="All client ids without one.")]
AnyAddress = Annotated[bool, typer.Option("--ip-default", help="All addresses without one.")]


class Found(NamedTuple):
    """An entity and its quotas."""

    entity: Entity
    quotas: dict[str, float]


@app.command(
    "set",
    epilog=examples(
        "tidelog quota set --client etl producer_byte_rate=10000000",
        "tidelog quota set --user ann --client-default consumer_byte_rate=5000000",
        "tidelog quota set --user-default request_percentage=50 --unset producer_byte_rate",
        "tidelog quota set --ip 10.0.0.7 connection_creation_rate=5",
    ),
)
def set_quotas(
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=NUMBER…", help="New quotas.", show_default=False),
    ] = None,
    user: User = None,
    user_default: AnyUser = False,
    client: Client = None,
    client_default: AnyClient = False,
    ip: Address = None,
    ip_default: AnyAddress = False,
    unset: Unset = None,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Change the quotas of a user, a client id, both, or an address; in effect at once."""
    entity = _entity((user, user_default), (client, client_default), (ip, ip_default))
    values = _values(changes or [], unset or [])
    if not values:
        raise BadWord("nothing to change; write key=number or --unset key")
    await_controller(bootstrap_server)
    _alter(bootstrap_server, entity, values, dry_run)
    if format is TableFormat.JSON:
        print_json({"entity": dict(entity), "quotas": values, "dry_run": dry_run})
        return
    ending = " (dry run: nothing changed)" if dry_run else ""
    for key, value in values.items():
        what = f"{key} unset" if value is None else f"{key}={_number(value)}"
        print(f"{_words(entity)}: {what}{ending}")


@app.command("list", epilog=examples("tidelog quota list", "tidelog quota list --format json"))
def list_all(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, format: TableOrJson = TableFormat.TABLE
) -> None:
    """List all quotas, by user, client id or address."""
    found = sorted(_read(bootstrap_server), key=lambda each: _words(each.entity))
    if format is TableFormat.JSON:
        print_json([{"entity": dict(each.entity), "quotas": each.quotas} for each in found])
    elif not found:
        print("no quotas are set")
    else:
        rows = [
            (_words(entity), key, _number(value), _UNITS.get(key, ""))
            for entity, quotas in found
            for key, value in sorted(quotas.items())
        ]
        print_table(("of", "quota", "value", ""), rows)


@app.command(
    epilog=examples("tidelog quota describe --client etl", "tidelog quota describe --user ann --ip 10.0.0.7")
)
def describe(
    user: Annotated[str, typer.Option(help="As whom the client authenticates.")] = ANONYMOUS,
    client: Annotated[str, typer.Option(help="Its client id.", show_default=False)] = "",
    ip: Annotated[str, typer.Option(help="Its address.", show_default=False)] = "",
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show the quotas that count for a client: of each the first that is set, and for whom."""
    quotas = dict(_read(bootstrap_server))
    counting: dict[str, tuple[float, Entity]] = {}
    of_address: list[Entity] = [((IP, ip),), ((IP, None),)] if ip else []
    for entity in [*(entity for entity, _ in levels(user, client)), *of_address]:
        for key, value in quotas.get(entity, {}).items():
            counting.setdefault(key, (value, entity))
    if format is TableFormat.JSON:
        print_json(
            {key: {"value": value, "entity": dict(entity)} for key, (value, entity) in counting.items()}
        )
    elif not counting:
        print(f"no quota counts for user {user}, client id {client or '(none)'}")
    else:
        rows = [
            (key, _number(counting[key][0]), unit, _words(counting[key][1]))
            for key, unit in _UNITS.items()
            if key in counting
        ]
        print_table(("quota", "value", "", "set for"), rows)


def _entity(*wanted: tuple[str | None, bool]) -> Entity:
    """Of the names and default options for a user, a client id and an address."""
    entity: dict[str, str | None] = {}
    for (kind, option), (name, is_default) in zip(
        ((USER, "--user"), (CLIENT_ID, "--client"), (IP, "--ip")), wanted, strict=True
    ):
        if name is not None and is_default:
            raise BadWord(f"{option} and {option}-default exclude each other; give one of them")
        if name is not None or is_default:
            entity[kind] = name
    if not entity:
        raise BadWord("nobody is named; give --user, --client or --ip, or one of their -default options")
    return ordered(entity)


def _values(changes: Iterable[str], unset: Iterable[str]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for change in parse_changes(changes, unset):
        if change.operation is Operation.DELETE:
            values[change.key] = None
            continue
        if change.operation is not Operation.SET or change.value is None:
            raise BadWord(f"{change.key}: a quota is one number; write {change.key}=NUMBER")
        try:
            values[change.key] = float(change.value)
        except ValueError:
            raise BadWord(f"{change.key}={change.value}: not a number") from None
    if unknown := [key for key in values if key not in _UNITS]:
        raise BadWord(f"{unknown[0]}: no such quota; there are {', '.join(_UNITS)}")
    return values


def _alter(bootstrap_server: str, entity: Entity, values: dict[str, float | None], dry_run: bool) -> None:
    is_of_address = dict(entity).keys() == {IP}
    for key in values:
        if (key == CONNECTION_RATE) != is_of_address:
            whose = "addresses" if key == CONNECTION_RATE else "users and client ids"
            raise BadWord(f"{_words(entity)}: {key} is a quota of {whose}")
    with open_any(bootstrap_server) as broker:
        types = broker.types(apis.ALTER_CLIENT_QUOTAS)
        ops = [
            make(types.OpData, key=key, value=each or 0.0, remove=each is None)
            for key, each in values.items()
        ]
        parts = [make(types.EntityData, entity_type=kind, entity_name=name) for kind, name in entity]
        entry = make(types.EntryData, entity=tuple(parts), ops=tuple(ops))
        answer = broker.ask(apis.ALTER_CLIENT_QUOTAS, entries=(entry,), validate_only=dry_run)
    for altered in answer.entries:
        check(_words(entity), altered.error_code, altered.error_message)


def _read(bootstrap_server: str) -> list[Found]:
    with open_any(bootstrap_server) as broker:
        answer = broker.ask(apis.DESCRIBE_CLIENT_QUOTAS, components=(), strict=False)
    check("quotas", answer.error_code, answer.error_message)
    return [_found(entry) for entry in answer.entries or ()]


def _found(entry: Any) -> Found:
    entity = ordered({part.entity_type: part.entity_name for part in entry.entity})
    return Found(entity, {value.key: value.value for value in entry.values})


def _words(entity: Entity) -> str:
    """Users before client ids, as people say it."""
    names = {CLIENT_ID: "client"}
    parts = sorted(entity, key=lambda part: part[0] != USER)
    return ", ".join(f"{names.get(kind, kind)} {_name(name)}" for kind, name in parts)


def _name(name: str | None) -> str:
    if name is None:
        return "(default)"
    return name if name.isprintable() else repr(name)


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else str(value)
