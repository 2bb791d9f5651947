"""The house rules that a program can check, each with an example that breaks it.

A rule is a function from one Python file to the lines that offend. `RULES` lists them with the files they
cover and a bad example: the first test runs every rule over the repository, the second shows that every
rule can go red. Rules about the repository as a whole (dead files, links, sizes) follow below.
"""

from __future__ import annotations

import ast
import re
import statistics
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tidelog"
CORE = ("base", "protocol", "log", "replication", "cluster", "groups", "transactions", "broker", "handlers")
ROOMS_THAT_USERS_IMPORT = ("client", "spark", "testing")
FILE_LINES_MAX = 500
FILE_LINES_MEDIAN_MAX = 250
FUNCTION_LINES = 25

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
    "src/tidelog/base/clock.py": frozenset({"time"}),
}
HARMLESS_NAMES = {"datetime": frozenset({"timedelta"})}
CALLS_OF_CHANCE = frozenset({"uuid1", "uuid4", "urandom"})
EMPTY_WORDS = frozenset({"manager", "helper", "util", "common", "base", "impl", "service", "info"})
LEFT_UNDONE = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|(?i:\bphase 2\b|\bplaceholder)")
PRIVATE_ADDRESS = re.compile(
    r"/(?:home|Users|root)/\w|\bindex-url\b|https?://[^\s)\"']*(?:artifactory|nexus|registry|/simple\b|pypi\.)"
)
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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.claim)
def test_the_repository_keeps_the_rule(rule: Rule) -> None:
    covered = [source for source in sources() if rule.covers(source)]
    assert covered
    assert [f"{source.path}:{line}" for source in covered for line in rule.offences(source)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.claim)
def test_the_rule_can_go_red(rule: Rule) -> None:
    example = Source(rule.bad_path, rule.bad_example)
    assert rule.covers(example)
    assert list(rule.offences(example))


def test_nothing_is_left_undone() -> None:
    assert LEFT_UNDONE.search("# TODO: later") and LEFT_UNDONE.search("a Placeholder for now")
    assert lines_matching(LEFT_UNDONE) == []


def test_no_file_names_a_private_path_or_registry() -> None:
    assert PRIVATE_ADDRESS.search("/home/somebody/x") and PRIVATE_ADDRESS.search("--index-url x")
    assert PRIVATE_ADDRESS.search("https://mirror.example/artifactory/api") and not PRIVATE_ADDRESS.search(
        "/homes"
    )
    checkout = re.compile(re.escape(str(ROOT)) + r"\b")
    assert lines_matching(PRIVATE_ADDRESS) + lines_matching(checkout) == []


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files():
        if path == Path(__file__).resolve() or path.name == "LICENSE" or not is_text(path):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


def is_text(path: Path) -> bool:
    return path.suffix in (
        "",
        ".py",
        ".md",
        ".txt",
        ".toml",
        ".svg",
        ".xml",
        ".java",
        ".properties",
        ".typed",
    )


def test_files_stay_small() -> None:
    line_counts = {source.path: source.text.count("\n") for source in sources() if in_package(source)}
    assert {path: count for path, count in line_counts.items() if count > FILE_LINES_MAX} == {}
    written = [count for path, count in line_counts.items() if not path.endswith("__init__.py")]
    assert statistics.median(written) <= FILE_LINES_MEDIAN_MAX


def test_nine_functions_in_ten_stay_short() -> None:
    sizes = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in sources()
        if in_package(source)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert sum(size <= FUNCTION_LINES for size in sizes) >= 0.9 * len(sizes)


def test_every_file_is_reached_from_an_entry_point() -> None:
    modules = {module_name(source.path): source for source in sources() if in_package(source)}
    used_by_tests = {
        name
        for source in sources()
        if not in_package(source)
        for name in modules_named_in(source, modules)
        if name.split(".")[1:2] and name.split(".")[1] in ROOMS_THAT_USERS_IMPORT
    }
    reached = reachable(entry_points() | used_by_tests, modules)
    rooms = {name for name, source in modules.items() if source.path.endswith("__init__.py")}
    assert sorted(modules.keys() - reached - rooms) == []


def test_a_file_that_nothing_imports_is_noticed() -> None:
    modules = {
        "tidelog.cli.main": Source("a.py", "from tidelog.log import segment\n"),
        "tidelog.log.segment": Source("b.py", ""),
        "tidelog.log.lonely": Source("c.py", "import tidelog.log.lonelier"),
        "tidelog.log.lonelier": Source("d.py", "import tidelog.log.lonely"),
    }
    assert reachable({"tidelog.cli.main"}, modules) == {"tidelog.cli.main", "tidelog.log.segment"}


def module_name(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def entry_points() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [*project["scripts"].values(), *project["entry-points"]["pytest11"].values()]
    return {"tidelog"} | {name.split(":")[0] for name in named}


def modules_named_in(source: Source, modules: dict[str, Source]) -> set[str]:
    """What the file imports, and what it names in a string to run as `python -m <module>`."""
    imports = {
        name for _, module, inner in imported_names(source.tree) for name in (module, f"{module}.{inner}")
    }
    strings = {
        node.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and type(node.value) is str
    }
    return (imports | strings) & modules.keys()


def reachable(starts: set[str], modules: dict[str, Source]) -> set[str]:
    reached: set[str] = set()
    waiting = sorted(starts & modules.keys())
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            parents = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)} & modules.keys()
            waiting += sorted(modules_named_in(modules[name], modules) | parents)
    return reached


def test_a_room_s_tests_mirror_its_files() -> None:
    strangers = []
    for source in sources():
        folder, _, name = source.path.rpartition("/")
        room = PACKAGE / folder.removeprefix("tests/")
        if in_tests(source) and name.startswith("test_") and folder != "tests" and room.is_dir():
            subject = name.removeprefix("test_").removesuffix(".py")
            files = [path.stem for path in room.glob("*.py")]
            if not any(subject == file or subject.startswith(f"{file}_") for file in files):
                strangers.append(source.path)
    assert strangers == []


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def test_links_between_our_documents_resolve() -> None:
    broken = []
    for page in [path for path in tracked_files() if path.suffix == ".md"]:
        for match in LINK.finditer(without_code(page.read_text("utf-8"))):
            target = next(group for group in match.groups() if group)
            if not re.match(r"[a-z]+:", target) and not resolves(page, target):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_a_link_to_nowhere_is_noticed() -> None:
    page = ROOT / "docs" / "disk.md"
    assert resolves(page, "disk.md#checkpoints") and resolves(page, "../LICENSE")
    assert not resolves(page, "nowhere.md") and not resolves(page, "#nowhere")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def resolves(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not anchor or path.suffix != ".md":
        return path.exists()
    return path.exists() and anchor in {
        slug(line) for line in path.read_text("utf-8").splitlines() if line[:1] == "#"
    }


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


def test_every_decision_is_numbered_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")
    index = (folder / "README.md").read_text("utf-8")
    assert [page for page in pages if f"({page})" not in index] == []
    assert [page[:5] for page in pages] == [f"{number:04}-" for number in range(1, len(pages) + 1)]
