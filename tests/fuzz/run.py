"""One target under atheris, in a process of its own: `python -m tests.fuzz.run <target> <words>`.

**Invariant:** the process cannot have more than MEMORY_MAX of memory, so that whoever reserves by an
announced length, as kio's native reader would, is caught doing it.
"""

from __future__ import annotations

import gc
import resource
import sys

import atheris

with atheris.instrument_imports(include=["tidelog"]):
    from tests.fuzz.targets import TARGETS

MEMORY_MAX = 2 * 1024 * 1024 * 1024


def main(target: str, words: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    gc.freeze()
    atheris.Setup([target, *words], TARGETS[target].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
