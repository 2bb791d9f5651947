"""Which brokers coordinate groups and transactional ids.

A coordinator is looked up when its first request is sent, and again after `forget`: when it has refused a
request, or cannot be reached.

**Invariant:** at most `KNOWN_MAX` names are remembered.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.client.attempts import Attempts
from tidelog.client.codes import name_of, passes
from tidelog.client.errors import ConnectionLost, Refused
from tidelog.client.exchange import FIND_COORDINATORS, KioExchange
from tidelog.client.properties import Address
from tidelog.client.routes import Routes
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

GROUP, TRANSACTION = 0, 1
KNOWN_MAX = 10_000  # names; a client has some hundred
_WORDS = {GROUP: "group", TRANSACTION: "transactional id"}


class Coordinators:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._known: dict[tuple[int, str], Address] = {}

    def find(self, kind: int, names: Collection[str], attempts: Attempts) -> dict[str, Address]:
        """The coordinator of each name; ConnectionLost if one has none at the moment."""
        unknown = sorted({name for name in names if (kind, name) not in self._known})
        if unknown:
            if len(self._known) + len(unknown) > KNOWN_MAX:
                self._known.clear()
                unknown = sorted(set(names))
            self._look_up(kind, tuple(unknown), attempts)
        return {name: self._known[kind, name] for name in names}

    def forget(self, kind: int, names: Collection[str]) -> None:
        for name in names:
            self._known.pop((kind, name), None)

    def _look_up(self, kind: int, names: tuple[str, ...], attempts: Attempts) -> None:
        exchange = KioExchange(
            FIND_COORDINATORS,
            lambda types: make(types.FindCoordinatorRequest, key_type=kind, coordinator_keys=names),
        )
        for row in self._routes.ask(exchange, attempts).coordinators:
            if row.error_code != ErrorCode.none:
                message = f"{_WORDS[kind]} {row.key}: FindCoordinator: {name_of(row.error_code)}"
                if passes(row.error_code):
                    raise ConnectionLost(message)
                raise Refused(message, row.error_code)
            self._known[kind, row.key] = (row.host, row.port)
        missing = [name for name in names if (kind, name) not in self._known]
        if missing:
            raise ConnectionLost(f"{_WORDS[kind]} {missing[0]}: missing in the answer to FindCoordinator")
