"""What transactional producers of a simulated cluster meant, were told, and what readers have seen of it.

Every record of a transaction names it, and has an amount; the amounts of a transaction add up to nothing, as
between the accounts of a bank.

| a committed reader sees records of a transaction | allowed                                    |
|--------------------------------------------------|--------------------------------------------|
| whose commit nobody has asked for                | never                                      |
| that was told as aborted                         | never                                      |
| that was told as committed                       | in the end all of them, each once          |
| whose end has no answer                          | in the end all of them, each once, or none |

**Invariant:** a record that was seen at an offset is always seen there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.cluster_clients import Spot
from tests.sim.cluster_clock import Violation

LATE = b"late"


class Deal:
    """One transaction as its producer sees it."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.values: list[tuple[Spot, bytes]] = []
        self.has_offset = False
        self.is_commit_sent = False
        self.is_told: bool | None = None  # committed, or not

    def __str__(self) -> str:
        return f"{self.name}|{self.number}"

    @property
    def may_show(self) -> bool:
        return self.is_commit_sent and self.is_told is not False

    def fill(self, accounts: Iterable[Spot], amounts: Iterable[int]) -> None:
        """With a record for each account; the last one evens it out."""
        accounts = list(accounts)
        paid = list(amounts)[: len(accounts) - 1]
        for place, (spot, amount) in enumerate(zip(accounts, [*paid, -sum(paid)], strict=True)):
            self.values.append((spot, b"%s|%d|%d" % (str(self).encode(), place, amount)))


class Ledger:
    def __init__(self) -> None:
        self.deals: dict[str, Deal] = {}
        self._numbers: dict[str, int] = {}
        self._seen: dict[Spot, dict[int, bytes]] = {}
        self._places: dict[tuple[Spot, bytes], int] = {}
        self._offsets: dict[str, int] = {}  # of each group the highest that was told as committed

    def new_deal(self, name: str) -> Deal:
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        deal = Deal(name, number)
        self.deals[str(deal)] = deal
        return deal

    def tell(self, deal: Deal, is_committed: bool) -> None:
        deal.is_told = is_committed
        if is_committed and deal.has_offset:
            self._offsets[deal.name] = max(deal.number, self._offsets.get(deal.name, 0))
        shown = [value for spot, value in deal.values if (spot, value) in self._places]
        if not is_committed and shown:
            raise Violation(f"{deal} was told as aborted, and {shown} was read")

    # What readers see.

    def on_read(self, spot: Spot, offset: int, value: bytes) -> None:
        seen = self._seen.setdefault(spot, {})
        if seen.setdefault(offset, value) != value:
            raise Violation(f"{spot} had {seen[offset]!r} at {offset}, and now {value!r}")
        if self._places.setdefault((spot, value), offset) != offset:
            raise Violation(f"{spot} has {value!r} at {self._places[spot, value]} and at {offset}")
        if value.startswith(LATE):
            raise Violation(f"{value!r} was sent after the end of its transaction was told, and is in {spot}")
        if b"|" in value:
            deal = self.deals[b"|".join(value.split(b"|")[:2]).decode()]
            if not deal.may_show:
                raise Violation(f"{spot} shows {value!r}, commit asked for: {deal.is_commit_sent}")

    def is_known(self, spot: Spot, value: bytes) -> bool:
        return (spot, value) in self._places

    # Offsets of groups: each group is one producer's, and its offset the number of a transaction.

    def offset_told(self, name: str) -> int:
        """What a coordinator may not fall below from now on."""
        return self._offsets.get(name, 0)

    def on_offset(self, name: str, told_before: int, number: int) -> None:
        if number < told_before:
            raise Violation(f"the offset of {name} was {told_before}, and is {number}")
        deal = self.deals.get(f"{name}|{number}")
        if number and (deal is None or not deal.has_offset or not deal.may_show):
            raise Violation(f"the offset of {name} is {number}, which nobody has committed")

    # The end.

    def check(self) -> None:
        """Everything has been read."""
        for deal in self.deals.values():
            shown = [value for spot, value in deal.values if (spot, value) in self._places]
            if shown and len(shown) < len(deal.values):
                raise Violation(f"{deal} is torn: of {deal.values} only {shown} is there")
            if deal.is_told and not shown and deal.values:
                raise Violation(f"{deal} was told as committed, and nothing of it is there")
            if shown and not deal.may_show:
                raise Violation(f"{deal} was not committed, and {shown} is there")
        values = (value for seen in self._seen.values() for value in seen.values() if b"|" in value)
        total = sum(int(value.rpartition(b"|")[2]) for value in values)
        if total:
            raise Violation(f"the accounts have {total} together")

    @property
    def committed_count(self) -> int:
        return sum(deal.is_told is True for deal in self.deals.values())

    @property
    def aborted_count(self) -> int:
        return sum(deal.is_told is False for deal in self.deals.values())
