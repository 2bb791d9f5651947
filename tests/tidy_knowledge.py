"""How much a file and a class know: what a program can measure of it.

A monster is what knows too much, however few lines it has. `FIELDS` and `IMPORTS` are ratchets: what is over
the bound is named with its number, which may fall and must not rise.

**Invariant:** an entry that is no longer needed, or is higher than it must be, is red as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

from tests.tidy_rules import Source, imported_names

FIELDS_MAX = 20
FIELDS = {
    "src/tidelog/base/config.py: TopicSettings": 24,  # one for each setting that is asked for often
    "src/tidelog/broker/broker.py: Broker": 37,  # the parts, and nothing else
    "src/tidelog/spark/options.py: ReadOptions": 23,  # one for each option
}
IMPORTS_MAX = 20
IMPORTS = {
    "src/tidelog/broker/broker.py": 41,  # wiring: every part
    "src/tidelog/broker/data_plane/coordinators.py": 24,
    "src/tidelog/broker/data_plane/group_moves.py": 24,
    "src/tidelog/broker/data_plane/hosting.py": 21,
    "src/tidelog/handlers/table.py": 46,  # the table: every file of handlers
    "src/tidelog/server/serve.py": 21,  # wiring: every part of the shell
}
# Parts of a broker that are tested with a whole broker around them only; the list may become shorter.
UNBUILT = (
    "src/tidelog/broker/data_plane/coordinators.py",
    "src/tidelog/broker/data_plane/fetching.py",
    "src/tidelog/broker/data_plane/hosting.py",
    "src/tidelog/broker/data_plane/logs.py",
    "src/tidelog/broker/data_plane/marker_writes.py",
    "src/tidelog/broker/data_plane/replicas.py",
    "src/tidelog/broker/data_plane/transacting.py",
    "src/tidelog/broker/data_plane/transactions.py",
    "src/tidelog/broker/data_plane/verifying.py",
)
LINES_MAX = 500
LONG_FILES: dict[str, str] = {}


def over(counts: Mapping[str, int], bound: int) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count > bound}


def field_counts(sources: Iterable[Source]) -> dict[str, int]:
    """By class: what its instances have, whoever sets it."""
    return {
        f"{source.path}: {node.name}": len(set(fields_of(node)))
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }


def fields_of(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.FunctionDef):
            yield from (name for inner in ast.walk(each) for name in assigned_to_self(inner))


def assigned_to_self(node: ast.AST) -> Iterator[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                yield each.attr


def import_counts(sources: Iterable[Source]) -> dict[str, int]:
    """By file: the modules of ours that it imports."""
    return {
        source.path: len({module for _, module, _ in imported_names(source.tree) if is_ours(module)})
        for source in sources
    }


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "tidelog"


def unbuilt(parts: Iterable[Source], tests: Iterable[Source]) -> list[str]:
    """The files that have classes of behaviour, none of which the tests construct or derive from."""
    called = {
        ast.unparse(each).split("[")[0]
        for source in tests
        for node in ast.walk(source.tree)
        for each in ([node.func] if isinstance(node, ast.Call) else getattr(node, "bases", ()))
    }
    made = {source.path: {node.name for node in source.tree.body if is_part(node)} for source in parts}
    return sorted(path for path, classes in made.items() if classes and not classes & called)


def is_part(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """A class with behaviour: no tuple, protocol, error or enumeration, and no job that a part hands out."""
    if not isinstance(node, ast.ClassDef):
        return False
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    return not bases & {"NamedTuple", "Protocol", "Exception", "Enum", "Job", "Parked"}


def imports_of(source: Source, modules: Mapping[str, Source]) -> set[str]:
    """The modules of ours that a file imports: of `from tidelog.log import segment` the inner one."""
    named = ((f"{module}.{name}", module) for _, module, name in imported_names(source.tree))
    return {inner if inner in modules else module for inner, module in named} & modules.keys()


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, also where it is for type checking alone (Tarjan)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            place = stack.index(module)
            ring = sorted(stack[place:])
            del stack[place:]
            if len(ring) > 1:
                found.append(ring)

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found
