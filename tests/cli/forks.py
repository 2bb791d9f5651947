"""The `tidelog` command from a process that has imported all of it and forks for each: to import it takes
longer than most of the commands do.

    outcome = run(["topic", "list"], environment, b"")

**Invariant:** each command has a process of its own, with the words, surroundings and standard files that it
was given, as if a shell had started it. The process that forks ends with the one that asks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

TIMEOUT_S = 240.0  # below the limit of a test
ASKED_SIZE_MAX = 1 << 17


@dataclass(frozen=True, slots=True)
class Outcome:
    exit_code: int
    out: str
    error: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(words: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> Outcome:
    """What became of the command."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        said.write(stdin)
        said.seek(0)
        asked = json.dumps([list(words), dict(environment), os.getcwd()]).encode() + b"\n"
        forks = _forks()
        socket.send_fds(forks, [asked], [said.fileno(), out.fileno(), error.fileno()])
        try:
            exit_code = int(forks.recv(16))
        except TimeoutError:
            forks.close()
            _forks.cache_clear()  # or the next one would hear of this one's end
            raise
        out.seek(0)
        error.seek(0)
        return Outcome(exit_code, out.read().decode(), error.read().decode())


@cache
def _forks() -> socket.socket:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with far:
        subprocess.Popen([sys.executable, "-m", __name__, str(far.fileno())], pass_fds=[far.fileno()])
    near.settimeout(TIMEOUT_S)
    return near


def _serve(asking: socket.socket) -> int:
    """Returns in a child only, with what is to be its exit code."""
    while True:
        asked, files, _, _ = socket.recv_fds(asking, ASKED_SIZE_MAX, 3)
        while asked and not asked.endswith(b"\n"):
            asked += asking.recv(ASKED_SIZE_MAX)
        if not asked:
            os._exit(0)
        child = os.fork()
        if child == 0:
            return _carry_out(asked, files)
        for file in files:
            os.close(file)
        asking.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _carry_out(asked: bytes, files: Sequence[int]) -> int:
    from tidelog.cli.main import main

    words, environment, folder = json.loads(asked)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["tidelog", *words]
    return main()


if __name__ == "__main__":
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # as `main` has it
    import tidelog.cli.commands  # noqa: F401

    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
