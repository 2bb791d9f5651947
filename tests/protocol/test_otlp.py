"""OTLP metrics: the numbers and labels that are read, and that no bytes can do harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.otlp_samples import (
    distribution,
    field,
    fixed,
    gauge,
    label,
    metrics,
    number_field,
    point,
    sum_of,
)
from tests.protocol.reference import mutations
from tidelog.base.limits import OTLP_LABELS_MAX
from tidelog.protocol import otlp
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.otlp import Point, decode_metrics

SAMPLE = metrics(
    gauge("a.rate", point(1.5, {"node": 3, "topic": "t"}), point(2, {"is_last": True})),
    sum_of("a.total", point(7, {"x": -1, "y": 0.5}), temporality=1),
    resource={"client_rack": "east"},
)


def test_gauges_and_sums_are_read_with_their_labels() -> None:
    rack = ("client_rack", "east")
    assert decode_metrics(SAMPLE) == [
        Point("a.rate", (rack, ("node", "3"), ("topic", "t")), 1.5, 1_000, False, False),
        Point("a.rate", (rack, ("is_last", "true")), 2, 1_000, False, False),
        Point("a.total", (rack, ("x", "-1"), ("y", "0.5")), 7, 1_000, True, True),
    ]


@pytest.mark.parametrize(("kind", "attributes_field"), [(9, 9), (10, 1), (11, 7)])
def test_of_a_distribution_the_count_and_the_sum_are_read(kind: int, attributes_field: int) -> None:
    held = field(1, distribution(4, 10.5, attributes_field, {"k": "v"})) + number_field(2, 1)
    points = decode_metrics(metrics(field(1, "d") + field(kind, held)))
    assert points == [
        Point("d.count", (("k", "v"),), 4, 2_000, True, True),
        Point("d.sum", (("k", "v"),), 10.5, 2_000, True, True),
    ]


def test_a_sum_may_be_cumulative_or_go_down() -> None:
    (point_,) = decode_metrics(metrics(sum_of("s", point(1), temporality=2, monotonic=False)))
    assert (point_.is_counter, point_.is_delta) == (False, False)


def test_a_name_behind_its_numbers_is_the_name() -> None:
    (read,) = decode_metrics(metrics(field(5, field(1, point(1))) + field(1, "late")))
    assert read.name == "late"


def test_fields_that_are_not_known_are_skipped() -> None:
    odd = field(99, b"x") + number_field(98, 2**63) + fixed(97, bytes(8)) + b"\xad\x06" + bytes(4)
    inner = metrics(odd + gauge("g", odd + point(5) + odd))
    assert [read.value for read in decode_metrics(odd + inner + odd)] == [5]


def test_a_label_of_the_point_counts_before_the_resource_s() -> None:
    (read,) = decode_metrics(metrics(gauge("g", point(1, {"k": "mine"})), resource={"k": "theirs", "": "x"}))
    assert read.labels == (("k", "mine"),)


def test_names_and_labels_are_cut_to_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "OTLP_LABELS_MAX", 2)
    attributes: dict[str, str | int | bool | float] = {"c": "3", "b": "v" * 1_000, "a": "1"}
    (read,) = decode_metrics(metrics(gauge("n" * 1_000, point(1, attributes))))
    assert read.name == "n" * 256
    assert read.labels == (("a", "1"), ("b", "v" * 256))


def test_nothing_is_read_of_nothing() -> None:
    assert decode_metrics(b"") == decode_metrics(metrics()) == decode_metrics(metrics(field(1, "n"))) == []


@pytest.mark.parametrize(
    "bad",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\x80" * 11,
        b"\x09\x01",
        metrics(field(1, b"\xff\xfe") + field(5, b"")),
        metrics(gauge("g", field(7, label("k", "v")[:-1]))),
        b"not at all",
    ],
)
def test_bytes_that_are_no_message_are_refused(bad: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_metrics(bad)


def test_the_number_of_fields_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "OTLP_FIELDS_MAX", 1_000)
    with pytest.raises(CorruptBatch, match="more than 1000 fields"):
        decode_metrics(b"\x08\x01" * 1_001)
    with pytest.raises(CorruptBatch, match="more than 1000 fields"):
        decode_metrics(metrics(gauge("g", *[point(1)] * 500)))
    resource: dict[str, str | int | bool | float] = {str(number): number for number in range(OTLP_LABELS_MAX)}
    own = metrics(gauge("g", *[point(1, {"k": "v"})] * 50), resource=resource)
    with pytest.raises(CorruptBatch, match="more than 1000 fields"):  # with those that each inherits
        decode_metrics(own)


@pytest.mark.parametrize(("kind", "each"), [(5, 1), (7, 1), (9, 2), (10, 2), (11, 2)])
def test_the_number_of_points_is_bounded(monkeypatch: pytest.MonkeyPatch, kind: int, each: int) -> None:
    monkeypatch.setattr(otlp, "OTLP_POINTS_MAX", 100)

    def several(count: int) -> bytes:
        return metrics(field(1, "m") + field(kind, field(1, b"") * count))

    assert len(decode_metrics(several(100 // each))) == 100
    with pytest.raises(CorruptBatch, match="more than 100 points"):
        decode_metrics(several(100 // each + 1))
    with pytest.raises(CorruptBatch, match="more than 100 points"):
        decode_metrics(several(99 // each) + several(2))


def test_the_labels_of_a_resource_are_looked_at_once_and_not_for_each_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    told = otlp._told

    def counted(labels: list[tuple[str, str]]) -> otlp.Labels:
        looked_at.append(len(labels))
        return told(labels)

    monkeypatch.setattr(otlp, "_told", counted)
    resource = metrics(gauge("g", *[point(1)] * 100), resource={f"label{n}": n for n in range(1_000)})
    points = decode_metrics(resource)
    assert len(points) == 100 and looked_at == [1_000]
    assert all(each.labels is points[0].labels for each in points)


@given(data=st.data())
def test_mutated_messages_are_read_or_refused(data: st.DataObject) -> None:
    mutated = SAMPLE
    for _ in range(data.draw(st.integers(1, 3))):
        mutated = data.draw(mutations(mutated))
    try:
        points = decode_metrics(mutated)
    except CorruptBatch:
        return
    assert len(points) <= len(mutated)
