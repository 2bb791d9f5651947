"""Whatever broke something once, and every seed, is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, check_what_is_left

FOLDER = Path(__file__).parent
INPUTS = sorted([*(FOLDER / "seeds").glob("*.bin"), *(FOLDER / "crashes").glob("*.bin")])


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_an_input_of_the_fuzzer_breaks_nothing(path: Path) -> None:
    TARGETS[path.name.split("-")[0]](path.read_bytes())
    check_what_is_left()


def test_every_target_has_seeds() -> None:
    assert {path.name.split("-")[0] for path in INPUTS} == {*TARGETS}
