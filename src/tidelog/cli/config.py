"""`tidelog config describe | get | set | list`: settings of topics, brokers, groups and client-metrics."""

from __future__ import annotations

import difflib
import re
import textwrap
from html import unescape
from typing import Annotated, Any

import typer

from tidelog.cli.failure import BadWord, Failure, raise_failures
from tidelog.cli.nodes import await_controller
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    DryRun,
    ResourceWord,
    TableFormat,
    TableOrJson,
    Unset,
    examples,
    unique,
)
from tidelog.cli.screen import console, fits_screen, print_json, print_table
from tidelog.cli.settings import (
    Change,
    Operation,
    Resource,
    Setting,
    change_settings,
    list_resources,
    parse_changes,
    parse_resource,
    read_settings,
)

app = typer.Typer(help="Show and change settings of topics, brokers, groups and client-metrics.")

_DOCUMENTATION_WIDTH_MAX = 100  # of a line that is read well
_COLUMNS = ("key", "value", "default", "source", "type", "")


@app.command(
    epilog=examples(
        "tidelog config describe topic/orders",
        "tidelog config describe broker/1 --all",
        "tidelog config describe topic/orders --all --verbose | less",
    )
)
def describe(
    resource: ResourceWord,
    all: Annotated[bool, typer.Option("--all", help="Also settings at their default.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With the meaning of each setting.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show the settings that differ from their default: value, default, source, type."""
    named = parse_resource(resource)
    settings = read_settings(bootstrap_server, named)
    shown = [setting for setting in settings if all or not setting.is_default]
    if format is TableFormat.JSON:
        print_json({"resource": str(named), "settings": [_json(setting, verbose) for setting in shown]})
    elif not shown:
        print(f"{named} has no settings of its own" + ("; --all shows the defaults" if settings else ""))
    else:
        _print_settings(shown, verbose)


@app.command(
    epilog=examples(
        "tidelog config get topic/orders retention.ms",
        "tidelog config get broker/1 log.retention.ms log.retention.hours",
    )
)
def get(
    resource: ResourceWord,
    keys: Annotated[list[str], typer.Argument(metavar="KEY…", help="Names of settings.", show_default=False)],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Print only the value of a setting; several settings as key=value lines."""
    named = parse_resource(resource)
    found = {setting.key: setting for setting in read_settings(bootstrap_server, named, keys)}
    values: dict[str, str | None] = {}
    failures: list[Failure] = []
    for key in unique(keys):
        if key not in found:
            failures.append(_unknown_key(bootstrap_server, named, key))
        elif found[key].is_sensitive and found[key].value is None:
            failures.append(Failure(f"{named}: {key} is a secret; brokers do not return secrets"))
        else:
            values[key] = found[key].value
    if format is TableFormat.JSON and values:
        print_json(values)
    elif len(keys) == 1 and values:
        print(_text(values[keys[0]]))
    else:
        for key, value in values.items():
            print(f"{key}={_text(value)}")
    raise_failures(failures)


@app.command(
    "set",
    epilog=examples(
        "tidelog config set topic/orders retention.ms=3600000 --unset segment.bytes",
        "tidelog config set topic/orders cleanup.policy+=compact --dry-run",
        "tidelog config set broker/default log.retention.ms=86400000",
        "tidelog config set client-metrics/all interval.ms=30000 metrics=org.apache.kafka.",
    ),
)
def set_settings(
    resource: ResourceWord,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE…",
            help="New values; for a list, KEY+=VALUE adds and KEY-=VALUE removes.",
            show_default=False,
        ),
    ] = None,
    unset: Unset = None,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Change settings, all of the named ones or none; in effect at once."""
    named = parse_resource(resource)
    parsed = parse_changes(changes or [], unset or [])
    if not parsed:
        raise BadWord("nothing to change; write key=value or --unset key")
    await_controller(bootstrap_server)
    change(bootstrap_server, named, parsed, dry_run)
    if format is TableFormat.JSON:
        print_json(changes_json(named, parsed, dry_run))
    else:
        print_changes(named, parsed, dry_run)


@app.command("list", epilog=examples("tidelog config list"))
def list_all(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, format: TableOrJson = TableFormat.TABLE
) -> None:
    """List the resources that can have settings, in the form that the other commands accept."""
    resources = list_resources(bootstrap_server)
    if format is TableFormat.JSON:
        print_json([str(resource) for resource in resources])
    else:
        for resource in resources:
            print(resource)


def change(bootstrap_server: str, resource: Resource, changes: list[Change], dry_run: bool) -> None:
    """`change_settings`, with a suggestion for an unknown key. Brokers accept an unknown key that is unset,
    and Kafka's brokers suggest nothing for one that is set."""
    unset = [change.key for change in changes if change.operation is Operation.DELETE]
    if unset and resource.kind == "topic":
        raise_failures(_unknown_keys(bootstrap_server, resource, unset))
    try:
        change_settings(bootstrap_server, resource, changes, dry_run)
    except BadWord as refused:
        if "did you mean" in str(refused) or resource.is_default_broker:
            raise
        raise_failures(_unknown_keys(bootstrap_server, resource, [change.key for change in changes]))
        raise


def _unknown_keys(bootstrap_server: str, resource: Resource, keys: list[str]) -> list[Failure]:
    known = {setting.key for setting in read_settings(bootstrap_server, resource)}
    return [_unknown_key(bootstrap_server, resource, key) for key in keys if key not in known]


def changes_json(resource: Resource, changes: list[Change], dry_run: bool) -> dict[str, Any]:
    """The changes, for JSON output."""

    def of(operation: Operation) -> dict[str, str | None]:
        return {change.key: change.value for change in changes if change.operation is operation}

    return {
        "resource": str(resource),
        "set": of(Operation.SET),
        "appended": of(Operation.APPEND),
        "subtracted": of(Operation.SUBTRACT),
        "unset": list(of(Operation.DELETE)),
        "dry_run": dry_run,
    }


def print_changes(resource: Resource, changes: list[Change], dry_run: bool) -> None:
    """Print one line for each change."""
    ending = " (dry run: nothing changed)" if dry_run else ""
    for change in changes:
        sign = {Operation.SET: "=", Operation.APPEND: "+=", Operation.SUBTRACT: "-="}.get(change.operation)
        what = f"{change.key} unset" if sign is None else f"{change.key}{sign}{change.value}"
        print(f"{resource}: {what}{ending}")


def _unknown_key(bootstrap_server: str, resource: Resource, key: str) -> BadWord:
    known = [setting.key for setting in read_settings(bootstrap_server, resource)]
    near = difflib.get_close_matches(key, known, n=1)
    if resource.is_default_broker:
        return BadWord(f"{resource} has no value for {key}; every broker uses its own value or the default")
    fix = f"did you mean {near[0]}?" if near else f"see 'tidelog config describe {resource} --all'"
    return BadWord(f"{resource} has no setting {key}; {fix}")


def _json(setting: Setting, verbose: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "key": setting.key,
        "value": setting.value,
        "default": setting.default,
        "source": setting.source,
        "type": setting.type,
        "is_default": setting.is_default,
        "is_read_only": setting.is_read_only,
        "is_sensitive": setting.is_sensitive,
        "has_effect": setting.has_effect,
    }
    if verbose:
        facts["synonyms"] = [
            {"key": synonym.key, "value": synonym.value, "source": synonym.source}
            for synonym in setting.synonyms
        ]
        facts["documentation"] = setting.documentation
    return facts


def _row(setting: Setting) -> tuple[str, ...]:
    return (
        setting.key,
        _shown(setting),
        _text(setting.default),
        setting.source_words,
        setting.type,
        ", ".join(_flags(setting)),
    )


def _print_settings(settings: list[Setting], verbose: bool) -> None:
    """Print a table if it fits the terminal; otherwise, and with documentation, a block for each setting."""
    rows = [_row(setting) for setting in settings]
    if not verbose and fits_screen(_COLUMNS, rows):
        print_table(_COLUMNS, rows)
        return
    out = console()
    indented = textwrap.TextWrapper(
        min(out.width, _DOCUMENTATION_WIDTH_MAX), initial_indent="    ", subsequent_indent="    "
    )
    for setting in settings:
        out.print(f"{setting.key} = {_shown(setting)}", style="bold", markup=False, soft_wrap=True)
        print(indented.fill(_facts(setting)))
        if verbose:
            for paragraph in _paragraphs(setting.documentation):
                print(indented.fill(paragraph))
            print()


def _facts(setting: Setting) -> str:
    facts = [setting.type, f"from {setting.source_words}"]
    if not setting.is_default and setting.default is not None:
        facts.append(f"default {setting.default or 'empty'}")
    return ", ".join(facts + _flags(setting))


def _flags(setting: Setting) -> list[str]:
    flags = ["read-only"] if setting.is_read_only else []
    return flags if setting.has_effect else [*flags, "no effect"]


def _paragraphs(documentation: str) -> list[str]:
    """The paragraphs of Kafka's documentation, which is HTML."""
    text = re.sub(r"<(p|br|li|ul|/ul)\s*/?>", "\n", documentation)
    text = unescape(re.sub(r"</?[a-zA-Z][^<>]*>", "", text))
    return [" ".join(line.split()) for line in text.split("\n") if line.strip()]


def _shown(setting: Setting) -> str:
    return "(secret)" if setting.is_sensitive and setting.value is None else _text(setting.value)


def _text(value: str | None) -> str:
    return "" if value is None else value
