"""The house rules that a program can check.

First the rules about single files (`tidy_rules`), each run over the repository and over an example that
breaks it; then those about the repository as a whole: words, sizes, dead files, links, decisions.
"""

from __future__ import annotations

import ast
import configparser
import re
import statistics
import tomllib
from pathlib import Path

import pytest

from tests.tidy_knowledge import (
    FIELDS,
    FIELDS_MAX,
    IMPORTS,
    IMPORTS_MAX,
    LINES_MAX,
    LONG_FILES,
    UNBUILT,
    cycles,
    field_counts,
    import_counts,
    imports_of,
    over,
    unbuilt,
)
from tests.tidy_rules import (
    ROOT,
    RULES,
    Rule,
    Source,
    imported_names,
    in_package,
    in_tests,
    sources,
    tracked_files,
)
from tests.tidy_words import WORDS, word_counts

PACKAGE = ROOT / "src" / "tidelog"
ROOMS_THAT_USERS_IMPORT = ("client", "spark", "testing")
FILE_LINES_MEDIAN_MAX = 250
FUNCTION_LINES = 25
LEFT_UNDONE = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|(?i:\bphase 2\b|\bplaceholder)")
PRIVATE_ADDRESS = re.compile(
    r"/(?:home|Users|root)/\w|\bindex-url\b|https?://[^\s)\"']*(?:artifactory|nexus|registry|/simple\b|pypi\.)"
)


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
    assert sorted(over(line_counts, LINES_MAX)) == sorted(LONG_FILES), "a longer file wants a reason"
    written = [count for path, count in line_counts.items() if not path.endswith("__init__.py")]
    assert statistics.median(written) <= FILE_LINES_MEDIAN_MAX


def test_classes_and_files_know_no_more_than_they_did() -> None:
    package = [source for source in sources() if in_package(source)]
    assert over(field_counts(package), FIELDS_MAX) == FIELDS
    assert over(import_counts(package), IMPORTS_MAX) == IMPORTS


def test_parts_of_a_broker_are_built_alone_by_their_tests() -> None:
    parts = [source for source in sources() if source.path.startswith("src/tidelog/broker/")]
    wiring = "src/tidelog/broker/broker.py"
    tests = [source for source in sources() if source.path.startswith("tests/broker/")]
    assert unbuilt([part for part in parts if part.path != wiring], tests) == list(UNBUILT)


def test_no_part_of_a_broker_is_left_out_of_the_contract_about_the_whole() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    listed = contracts["importlinter:contract:wiring"]["source_modules"].split()
    found = {path.stem for path in (PACKAGE / "broker").iterdir() if (path / "__init__.py").exists()}
    found |= {path.stem for path in (PACKAGE / "broker").glob("*.py")} - {"__init__", "broker"}
    assert sorted(listed) == sorted(f"tidelog.broker.{name}" for name in found)


def test_hard_words_become_fewer() -> None:
    prose = [path for path in tracked_files() if path.suffix in (".py", ".md") and is_prose(path)]
    assert word_counts(path.read_text("utf-8") for path in prose) == WORDS


def is_prose(path: Path) -> bool:
    folder = path.relative_to(ROOT).parts[0]
    return folder in ("src", "docs") or path.name in ("README.md", "ARCHITECTURE.md")


def test_a_hard_word_is_noticed_wherever_a_line_ends() -> None:
    counts = word_counts(["Whoever looks in\nvain is told of\tit.", "marshall, anewer"])
    assert {word: count for word, count in counts.items() if count} == {
        "whoever": 1,
        "in vain": 1,
        "(?:tell|tells|told) of": 1,
    }


def test_no_modules_import_each_other() -> None:
    modules = {module_name(source.path): source for source in sources() if in_package(source)}
    assert cycles({name: imports_of(source, modules) for name, source in modules.items()}) == []


def test_what_is_measured_of_knowledge_can_go_red() -> None:
    class_ = "class A:\n    def f(self):\n        self.a, self.b = 1, 2\n        self.a += 1\n"
    assert field_counts([Source("a.py", class_)]) == {"a.py: A": 2}
    imports = "import os\nfrom tidelog.log import a\nfrom tidelog.base.files import File, Directory\n"
    assert import_counts([Source("a.py", imports)]) == {"a.py": 2}
    parts = [Source("a.py", "class A: pass"), Source("b.py", "class B(NamedTuple): pass")]
    assert unbuilt(parts, [Source("t.py", "A")]) == ["a.py"] and unbuilt(parts, [Source("t.py", "A()")]) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]


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
    unreached = modules.keys() - reached - rooms
    assert sorted(unreached) == []


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
    return {"tidelog", "tidelog.__main__"} | {name.split(":")[0] for name in named}


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
            files = [path.stem for path in room.rglob("*.py")]
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
