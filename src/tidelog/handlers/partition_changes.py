"""Changes of many partitions that an administrator asks for: written in pieces that the store takes at once.

**Invariant:** a piece that is refused because a leader has changed an ISR meanwhile is decided anew from what
is there then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.broker.broker import Broker, OnOutcome
from tidelog.broker.control import ELECTIONS_TOGETHER
from tidelog.cluster.elections import Elected
from tidelog.cluster.store import Outcome, Refused
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.request import Result

ATTEMPTS_MAX = 8  # to change what leaders may be changing
Place = tuple[str, int]  # topic and partition
Row = TypeVar("Row")


def change_partitions(
    broker: Broker,
    places: Iterable[Place],
    decide: Callable[[Place], Elected | Row],
    write: Callable[[list[Elected], OnOutcome], None],
    row_of: Callable[[Outcome], Row],
    deadline_ms: int,
    answer: Callable[[dict[Place, Row]], bytes],
) -> Result:
    """Write what is decided for these partitions; `answer` gets what is known of each by the deadline."""
    wanted = list(places)
    pieces = [wanted[at : at + ELECTIONS_TOGETHER] for at in range(0, len(wanted), ELECTIONS_TOGETHER)]

    def answer_all(parts: list[dict[Place, Row]]) -> bytes:
        return answer({place: row for part in parts for place, row in part.items()})

    gathering: Gathering[dict[Place, Row]] = Gathering(broker, deadline_ms, len(pieces), {}, answer_all)

    def ask(position: int, piece: list[Place], told: dict[Place, Row], attempts_left: int) -> None:
        decided: dict[Place, Elected] = {}
        for place in piece:
            found = decide(place)
            if isinstance(found, Elected):
                decided[place] = found
            else:
                told[place] = found
        if not decided:
            gathering.put(position, told)
            return

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Refused) and attempts_left:
                ask(position, list(decided), told, attempts_left - 1)
            else:
                gathering.put(position, told | dict.fromkeys(decided, row_of(outcome)))

        write(list(decided.values()), on_outcome)

    for position, piece in enumerate(pieces):
        ask(position, piece, {}, ATTEMPTS_MAX)
    return gathering.result()
