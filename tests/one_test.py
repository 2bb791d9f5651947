"""One test of the suite by itself, for a bug that it must find: `python -m tests.one_test
tests.log.test_markers:test_a_name argument=value`.

**Invariant:** it ends with `FOUND` if a claim of the test does not hold, and never because the test could not
be run.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FOUND = 3


def main(name: str, *given: str) -> int:
    module, _, function = name.partition(":")
    test = getattr(import_module(module), function)
    values: dict[str, Any] = {
        key: ast.literal_eval(value) for key, value in (each.split("=") for each in given)
    }
    wanted = inspect.signature(test).parameters
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        values |= {"tmp_path": Path(folder)} if "tmp_path" in wanted else {}
        values |= {"monkeypatch": patch} if "monkeypatch" in wanted else {}
        try:
            test(**values)
        except AssertionError as failure:
            print(f"{name}: {failure!r}")
            return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
