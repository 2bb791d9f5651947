"""What open transactions have written into a journal: of each producer the last entry of each key.

| what comes                       | then                                                                |
|----------------------------------|---------------------------------------------------------------------|
| a batch of a transaction         | its entries are pending                                             |
| an entry outside of transactions | pending ones of its key are dropped: it stands behind them          |
| a marker that commits            | its producer's entries count; older ones of others, of the same     |
|                                  | keys, are dropped                                                   |
| a marker that aborts             | its producer's entries are dropped                                  |

**Invariant:** of the entries of a key the last one in the log counts, whatever the order of the markers.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.decision import Entry


class Pending:
    def __init__(self) -> None:
        self._by_producer: dict[int, dict[bytes, tuple[int, Entry]]] = {}
        self._place = 0  # of the last entry, in the order of the log

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, key: bytes) -> bool:
        return any(key in own for own in self._by_producer.values())

    def keys(self) -> set[bytes]:
        return {key for own in self._by_producer.values() for key in own}

    def add(self, producer_id: int, entries: Iterable[Entry]) -> None:
        own = self._by_producer.setdefault(producer_id, {})
        for entry in entries:
            self._place += 1
            own[entry.key] = (self._place, entry)

    def overwrite(self, keys: Iterable[bytes]) -> None:
        """Something was written outside of transactions."""
        for key in keys:
            for own in self._by_producer.values():
                own.pop(key, None)

    def end(self, producer_id: int, is_commit: bool) -> list[Entry]:
        """A producer's transaction has ended; what counts now."""
        own = self._by_producer.pop(producer_id, {})
        if not is_commit:
            return []
        for key, (place, _) in own.items():
            for other in self._by_producer.values():
                if key in other and other[key][0] < place:
                    del other[key]
        return [entry for _, entry in own.values()]
