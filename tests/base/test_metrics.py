"""Histograms, their quantiles, and the text that Prometheus reads, checked by its own parser."""

from __future__ import annotations

from math import ceil, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tidelog.base.metrics import (
    DURATION_BOUNDS_NS,
    MILLISECOND_NS,
    RECENT_TURNS,
    Family,
    Histogram,
    Recent,
    histogram_lines,
    labels_of,
    number,
    summary_lines,
)

BOUNDS = (10, 20, 40)


def parsed(text: str) -> Metric:
    (metric,) = text_string_to_metric_families(text)
    return metric


def test_a_value_on_a_bound_is_in_the_bucket_below_it() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0, 10, 11, 20, 21, 40, 41, 10**12):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2, 2]
    assert (histogram.count, histogram.sum) == (8, 143 + 10**12)


def test_the_bounds_of_durations_rise_from_microseconds_to_seconds() -> None:
    assert list(DURATION_BOUNDS_NS) == sorted({*DURATION_BOUNDS_NS})
    assert (DURATION_BOUNDS_NS[0], DURATION_BOUNDS_NS[-1]) == (10_000, 10_000_000_000)


def recent_of(*values: int) -> Recent:
    recent = Recent(Histogram(BOUNDS))
    for value in values:
        recent.histogram.observe(value)
    return recent


@given(st.lists(st.integers(1, 40), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_lies_in_the_bucket_of_the_value_that_has_it(values: list[int], share: float) -> None:
    exact = sorted(values)[ceil(share * len(values)) - 1]
    low = max(bound for bound in (0, *BOUNDS) if bound < exact)
    high = min(bound for bound in BOUNDS if bound >= exact)
    assert low <= recent_of(*values).quantile(share) <= high


def test_a_quantile_of_nothing_is_zero_and_one_beyond_the_bounds_is_the_last_of_them() -> None:
    assert recent_of().quantile(0.99) == 0
    assert recent_of(10**9).quantile(0.5) == BOUNDS[-1]


def test_quantiles_forget_what_was_seen_long_ago() -> None:
    recent = recent_of(35, 35, 35)
    for _ in range(RECENT_TURNS):
        assert recent.quantile(0.5) > 20
        recent.turn()
    assert recent.quantile(0.5) == 0
    recent.histogram.observe(5)
    assert 0 < recent.quantile(1.0) <= 10
    assert recent.histogram.count == 4


HOSTILE = 'a"b\\c\nd{}=,\\n # HELP ÿ\u202e'


@given(st.text() | st.just(HOSTILE))
def test_any_label_value_comes_back_as_it_was(value: str) -> None:
    value = value.replace("\r", "")  # the parser splits lines there, which Prometheus does not
    value = "".join(value.splitlines())
    family = Family("x_total", "counter", "A help text.")
    metric = parsed(family.head() + family.sample(7, labels_of(("topic", value))))
    (sample,) = metric.samples
    assert (sample.labels, sample.value) == ({"topic": value}, 7)


def test_line_ends_quotes_and_backslashes_are_escaped() -> None:
    assert labels_of(("a", 'x\ny"z\\')) == '{a="x\\ny\\"z\\\\"}'
    assert "\n" not in labels_of(("a", "x\ny"))
    head = Family("x", "gauge", "one\ntwo\\").head()
    assert head == "# HELP x one\\ntwo\\\\\n# TYPE x gauge\n"
    assert parsed(head + "x 1\n").documentation == "one\ntwo\\"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "1"),
        (False, "0"),
        (2**63, str(2**63)),
        (0.5, "0.5"),
        (1e-05, "1e-05"),
        (inf, "+Inf"),
        (-inf, "-Inf"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert number(value) == text
    assert parsed(f"x {text}\n").samples[0].value == value


def test_not_a_number_is_written_so() -> None:
    assert number(nan) == "NaN"


def test_the_buckets_of_a_histogram_add_up() -> None:
    histogram = Histogram((MILLISECOND_NS, 5 * MILLISECOND_NS))
    for milliseconds in (1, 2, 3, 100):
        histogram.observe(milliseconds * MILLISECOND_NS)
    family = Family("x_seconds", "histogram", "How long.")
    metric = parsed(family.head() + "".join(histogram_lines(family, histogram, [("request", "Fetch")])))
    assert metric.type == "histogram"
    buckets = {sample.labels["le"]: sample.value for sample in metric.samples if "le" in sample.labels}
    assert buckets == {"0.001": 1, "0.005": 3, "+Inf": 4}
    rest = {sample.name: sample.value for sample in metric.samples if "le" not in sample.labels}
    assert rest == {"x_seconds_sum": 0.106, "x_seconds_count": 4}
    assert all(sample.labels["request"] == "Fetch" for sample in metric.samples)


def test_a_summary_has_its_quantiles_as_they_were_spelled() -> None:
    family = Family("x_ms", "summary", "How long.")
    lines = summary_lines(family, recent_of(5, 15), ["0.50", "0.999"], [], 1)
    metric = parsed(family.head() + "".join(lines))
    assert metric.type == "summary"
    told = {sample.labels.get("quantile", sample.name): sample.value for sample in metric.samples}
    assert (told["x_ms_sum"], told["x_ms_count"], told["0.50"]) == (20, 2, 10)
    assert 10 < told["0.999"] <= 20
