"""The house rules about a single Python file: what each forbids, where, and an example that breaks it.

A rule is a function from one file to the lines that offend. `RULES` lists them with the files they cover and
a bad example; `test_tidy` runs them over the repository, and over their bad examples.

**Invariant:** a rule without a bad example that it catches is not a rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ("base", "protocol", "log", "replication", "cluster", "groups", "transactions", "broker", "handlers")
# What a deterministic core cannot have: clocks, chance, threads, sockets, processes, files.
OUTSIDE_WORLD = frozenset(
    {"time", "datetime", "sched", "random", "secrets"}
    | {"asyncio", "threading", "_thread", "queue", "concurrent", "multiprocessing", "subprocess", "signal"}
    | {"socket", "socketserver", "ssl", "select", "selectors", "http", "urllib", "sqlite3"}
    | {"os", "pathlib", "shutil", "tempfile", "glob", "mmap", "fcntl"}
)
# The doors to it, and to values of it that are not effects.
DOORS = {
    "src/tidelog/base/files.py": frozenset({"os", "fcntl", "mmap"}),
    "src/tidelog/base/reading.py": frozenset({"os", "fcntl"}),
    "src/tidelog/base/descriptors.py": frozenset({"os"}),
    "src/tidelog/base/clock.py": frozenset({"time"}),
}
HARMLESS_NAMES = {"datetime": frozenset({"timedelta"}), "urllib": frozenset({"quote", "unquote"})}
CALLS_OF_CHANCE = frozenset({"uuid1", "uuid4", "urandom"})
QUESTION = re.compile(r"_?(is|are|was|has|have|may|can|woken)_")
BOUND = re.compile(r"_(MAX|MIN|TOGETHER|KEPT|ATTEMPTS)$")
WAIT = re.compile(r"_(SECONDS|WAIT_MS|TIMEOUT_MS)$")
EMPTY_WORDS = frozenset({"manager", "helper", "util", "common", "base", "impl", "service", "info"})
# A wait that is the thing under test, never a wait for a condition: path -> why.
SLEEPS_ALLOWED: dict[str, str] = {}


@dataclass(frozen=True)
class Source:
    """One Python file: where it is and what it says."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return parsed(self.text)

    @property
    def room(self) -> str:
        parts = self.path.split("/")
        return parts[2] if len(parts) > 3 and parts[:2] == ["src", "tidelog"] else ""


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def tracked_files() -> tuple[Path, ...]:
    """The repository's own text files: no caches, no fetched peers, no build results."""
    tops = [path for path in ROOT.iterdir() if path.is_file() and path.name not in (".coverage",)]
    inner = [path for top in ("src", "tests", "bench", "docs", ".ci") for path in (ROOT / top).rglob("*")]
    kept = [path for path in tops + inner if path.is_file() and not is_byproduct(path.relative_to(ROOT))]
    return tuple(sorted(kept))


def is_byproduct(path: Path) -> bool:
    folders = [part for part in path.parent.parts if part != ".ci"]
    return any(
        part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info") for part in folders
    )


@cache
def sources() -> tuple[Source, ...]:
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for path in tracked_files()
        if path.suffix == ".py"
    )


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, module, name in it or "") of every import, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, node.module or "", alias.name) for alias in node.names)


def outside_world(source: Source) -> Iterator[int]:
    doors = DOORS.get(source.path, frozenset())
    for line, module, name in imported_names(source.tree):
        top = module.split(".")[0]
        if top in OUTSIDE_WORLD - doors and name not in HARMLESS_NAMES.get(top, frozenset()):
            yield line


def chance_or_open_files(source: Source) -> Iterator[int]:
    banned = CALLS_OF_CHANCE if source.path in DOORS else CALLS_OF_CHANCE | {"open"}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in banned or called.rpartition(".")[2] in CALLS_OF_CHANCE:
                yield node.lineno


def coroutines(source: Source) -> Iterator[int]:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    return (node.lineno for node in ast.walk(source.tree) if isinstance(node, kinds))


def backtracking_patterns(source: Source) -> Iterator[int]:
    return (line for line, module, _ in imported_names(source.tree) if module == "re")


def set_iteration(source: Source) -> Iterator[int]:
    """Loops over sets, and lists made from them: their order differs from run to run."""
    named_sets = set(names_of_sets(source.tree))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.For | ast.comprehension):
            looped = node.iter
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("list", "tuple", "iter", "next")
            and node.args
        ):
            looped = node.args[0]
        else:
            continue
        if is_set(looped) or ast.unparse(looped) in named_sets:
            yield looped.lineno


def names_of_sets(tree: ast.Module) -> Iterator[str]:
    """Names and attributes that are said to be sets, by annotation or by what they are first given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and re.match(r"(frozen)?set\b", ast.unparse(node.annotation)):
            yield ast.unparse(node.target)
        elif (
            isinstance(node, ast.arg)
            and node.annotation
            and re.match(r"(frozen)?set\b", ast.unparse(node.annotation))
        ):
            yield node.arg
        elif isinstance(node, ast.Assign) and is_set(node.value):
            yield from (ast.unparse(target) for target in node.targets)


def is_set(node: ast.expr) -> bool:
    made = isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset")
    return made or isinstance(node, ast.Set | ast.SetComp)


def missing_docstring(source: Source) -> Iterator[int]:
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield 1


def empty_names(source: Source) -> Iterator[int]:
    if EMPTY_WORDS & words(Path(source.path).stem.split("_")):
        yield 1
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and EMPTY_WORDS & words(re.findall(r"[A-Z][a-z0-9]*", node.name)):
            yield node.lineno


def words(parts: list[str]) -> set[str]:
    return {part.lower().removesuffix("s") for part in parts}


def sleeps(source: Source) -> Iterator[int]:
    from_time = {name for _, module, name in imported_names(source.tree) if module in ("time", "asyncio")}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.path not in SLEEPS_ALLOWED:
            called = ast.unparse(node.func)
            yields_only = bool(node.args) and ast.unparse(node.args[0]) == "0"
            if (
                called in ("time.sleep", "asyncio.sleep") or called in from_time & {"sleep"}
            ) and not yields_only:
                yield node.lineno


def names_that_claim_nothing(source: Source) -> Iterator[int]:
    """`test_append` says what is touched; `test_a_torn_tail_is_cut` says what is true."""
    for node in ast.walk(source.tree):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and re.fullmatch(r"test_[^_]*(_[^_]*)?", node.name):
            yield node.lineno


def writes_to_a_log(source: Source) -> Iterator[int]:
    """Assignments to `log.field` and to items of it, and deletions."""
    for node in ast.walk(source.tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                field = each.value if isinstance(each, ast.Subscript) else each
                if isinstance(field, ast.Attribute) and re.search(r"(^|\.)_?log$", ast.unparse(field.value)):
                    yield each.lineno


def beside_the_log(source: Source) -> bool:
    return in_core(source) and source.path != "src/tidelog/log/log.py"


def bounds_without_reason(source: Source) -> Iterator[int]:
    return without_reason(source, BOUND)


def waits_without_reason(source: Source) -> Iterator[int]:
    return without_reason(source, WAIT)


def without_reason(source: Source, name_pattern: re.Pattern[str]) -> Iterator[int]:
    """Constants of a module by their names, with no comment on their line and no text below."""
    lines = source.text.splitlines()
    for node, follower in pairwise([*source.tree.body, ast.Pass()]):
        if isinstance(node, ast.Assign):
            names = [ast.unparse(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            names = [ast.unparse(node.target)]
        else:
            continue
        is_meant = any(name_pattern.search(name) for name in names)
        is_told = isinstance(follower, ast.Expr) and isinstance(follower.value, ast.Constant)
        if is_meant and not is_told and "#" not in "".join(lines[node.lineno - 1 : node.end_lineno]):
            yield node.lineno


def questions_that_act(source: Source) -> Iterator[int]:
    """Assignments to fields inside a function whose name asks something."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef) or not QUESTION.match(node.name):
            continue
        for inner in ast.walk(node):
            targets: list[ast.expr] = []
            if isinstance(inner, ast.Assign | ast.Delete):
                targets = inner.targets
            elif isinstance(inner, ast.AnnAssign | ast.AugAssign):
                targets = [inner.target]
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each.value if isinstance(each, ast.Subscript) else each, ast.Attribute):
                        yield each.lineno


def in_a_broker(source: Source) -> bool:
    return source.room in (*CORE, "server")


def in_core(source: Source) -> bool:
    return source.room in CORE


def faces_patterns_from_the_wire(source: Source) -> bool:
    return source.room in ("handlers", "groups")


def in_package(source: Source) -> bool:
    return source.path.startswith("src/")


def in_tests(source: Source) -> bool:
    return source.path.startswith("tests/")


def anywhere(source: Source) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    claim: str
    covers: Callable[[Source], bool]
    offences: Callable[[Source], Iterator[int]]
    bad_example: str
    bad_path: str = "src/tidelog/log/example.py"


RULES = [
    Rule("the core imports nothing of the outside world", in_core, outside_world, "import os.path"),
    Rule(
        "the core imports no clock, even inside a function",
        in_core,
        outside_world,
        "def f():\n from time import time",
    ),
    Rule(
        "the core makes no chance and opens no files",
        in_core,
        chance_or_open_files,
        "import uuid\nuuid.uuid4()",
    ),
    Rule("files are opened in base/files alone", in_core, chance_or_open_files, "with open('x') as f: pass"),
    Rule("the core has no coroutines", in_core, coroutines, "async def f(): pass"),
    Rule(
        "patterns from the wire never meet re",
        faces_patterns_from_the_wire,
        backtracking_patterns,
        "import re",
        "src/tidelog/groups/example.py",
    ),
    Rule("the core never loops over a set", in_core, set_iteration, "for x in {1, 2}: pass"),
    Rule("nor over a name that is a set", in_core, set_iteration, "a: set[int] = f()\nb = [x for x in a]"),
    Rule(
        "nor makes a list of an attribute that is one", in_core, set_iteration, "self.a = set()\nlist(self.a)"
    ),
    Rule("a log's fields are set by the log alone", beside_the_log, writes_to_a_log, "log.end_offset = 5"),
    Rule("nor its lists changed", beside_the_log, writes_to_a_log, "del self.log.segments[1:], self.x"),
    Rule("a bound has its reason beside it", in_package, bounds_without_reason, "QUEUED_MAX = 5"),
    Rule("so has a portion of work", in_package, bounds_without_reason, "CHANGES_TOGETHER = 100"),
    Rule("and a wait of a broker", in_a_broker, waits_without_reason, "LOOK_SECONDS = 0.5"),
    Rule(
        "a question changes nothing", in_package, questions_that_act, "def is_over(self):\n self.next_ms = 5"
    ),
    Rule("nor what it keeps", in_package, questions_that_act, "def may_push(self):\n self.counts[0] += 1"),
    Rule("every module opens with a docstring", anywhere, missing_docstring, "x = 1"),
    Rule("no class is called Manager and the like", anywhere, empty_names, "class LogManager: pass"),
    Rule("no file is called utils and the like", anywhere, empty_names, "", "src/tidelog/log/log_utils.py"),
    Rule(
        "tests await conditions and do not sleep",
        in_tests,
        sleeps,
        "import time\ntime.sleep(1)",
        "tests/test_x.py",
    ),
    Rule("nor by another name", in_tests, sleeps, "from asyncio import sleep\nsleep(1)", "tests/test_x.py"),
    Rule(
        "a test's name is a claim",
        in_tests,
        names_that_claim_nothing,
        "def test_append(): pass",
        "tests/test_x.py",
    ),
]
