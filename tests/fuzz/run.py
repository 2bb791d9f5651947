"""One target under atheris, in a process of its own: `python -m tests.fuzz.run <target> <words>`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["tidelog.protocol", "tidelog.handlers", "tidelog.log"]):
    from tests.fuzz.targets import TARGETS


def main(target: str, words: list[str]) -> None:
    atheris.Setup([target, *words], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
