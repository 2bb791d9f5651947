"""The command that a message about a missing package ends with."""

from __future__ import annotations

import shlex
from importlib import metadata

import pytest

from tidelog.base.extras import install_command


@pytest.mark.parametrize(("extra", "package"), [("cluster", "kazoo"), ("spark", "pyspark")])
def test_packages_are_named_that_an_index_has(extra: str, package: str) -> None:
    words = shlex.split(install_command(extra))
    assert words[:2] == ["pip", "install"]
    assert any(word.startswith(package) for word in words[2:])
    assert "tidelog" not in install_command(extra)


def test_a_tree_that_was_never_installed_has_a_command_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", nothing)
    assert install_command("spark") == "pip install '.[spark]' in a checkout of Tidelog"
