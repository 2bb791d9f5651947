"""What clients push (KIP-714) as Prometheus families: `kafka_client_` and the name of the metric.

    org.apache.kafka.producer.node.request.latency.avg  ->  kafka_client_producer_node_request_latency_avg

Every series says which client it is of: its instance id, client id and software. What the client calls its
labels comes after that, and cannot take the place of it.

**Invariant:** names and labels are anybody's; what comes out is always well formed, each series once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.base.metrics import Family, labels_of
from tidelog.broker.telemetry import ClientMetric

PREFIX = "kafka_client_"
KAFKA_PREFIX = "org.apache.kafka."
MEANING = "Pushed by clients."
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def client_pieces(rows: Iterable[ClientMetric], series_per_piece: int) -> Iterator[str]:
    """The text of the families, in pieces of so many series."""
    names: dict[str, str] = {}  # a name is made legal once, not for each of its thousand series
    families: dict[str, list[ClientMetric]] = {}
    for place, row in enumerate(rows):
        if place % series_per_piece == 0:
            yield ""  # nothing to say yet, but others may have their turn
        name = names.get(row.name) or names.setdefault(row.name, family_name(row.name))
        families.setdefault(name, []).append(row)
    for name, of_family in sorted(families.items()):
        family = Family(name, _kind(of_family), MEANING)
        yield family.head()
        values = {series_labels(row): row.value for row in of_family}
        samples = [family.sample(value, labels) for labels, value in values.items()]
        for start in range(0, len(samples), series_per_piece):
            yield "".join(samples[start : start + series_per_piece])


def _kind(rows: list[ClientMetric]) -> str:
    """Clients may disagree; then nothing is promised."""
    kinds = {row.is_counter for row in rows}
    return "untyped" if len(kinds) > 1 else "counter" if rows[0].is_counter else "gauge"


def family_name(name: str) -> str:
    return PREFIX + _legal(name.removeprefix(KAFKA_PREFIX))


def series_labels(row: ClientMetric) -> str:
    labels = {
        "client_instance_id": row.client_instance_id,
        "client_id": row.client_id,
        "client_software_name": row.software_name,
        "client_software_version": row.software_version,
    }
    for name, value in row.labels:
        legal = _legal(name).lstrip("_") or "label"
        labels.setdefault(f"label_{legal}" if legal[0].isdigit() else legal, value)
    return labels_of(*labels.items())


def _legal(name: str) -> str:
    return "".join(letter if letter in _LEGAL else "_" for letter in name)
