"""One API in one version, for a scenario to ask about."""

from __future__ import annotations

from typing import Any

from tests.differential.entities import build, parts, request
from tests.differential.pair import Pair


class Case:
    def __init__(self, pair: Pair, api_key: int, version: int) -> None:
        self.pair = pair
        self.api_key = api_key
        self.version = version

    def make(self, part: str, /, **values: Any) -> Any:
        """A part of the request; values that this version does not have are left out."""
        return build(getattr(parts(self.api_key, self.version), part), **values)

    def ask(self, scenario: str, /, **values: Any) -> tuple[Any, Any]:
        """Both answers, their differences noted."""
        entity = request(self.api_key, self.version, **values)
        return self.pair.ask(scenario, self.api_key, self.version, entity)

    def fresh(self, stem: str = "fresh") -> str:
        """A topic name that no other case uses."""
        return f"{stem}-{self.api_key}-{self.version}"
