"""The verdicts of the benchmark's report: what counts as reached, and what never may."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.arena import Sample, median_sample
from bench.cases.latency import percentile
from bench.report import NOTES_MARK, Report, Row, Target, figure


def row(tidelog: float | None, kafka: float | None, target: Target | None) -> Row:
    return Row(
        "case",
        "msg/s",
        None if tidelog is None else Sample(tidelog),
        None if kafka is None else Sample(kafka),
        target,
    )


def test_a_rate_that_is_the_named_multiple_of_kafkas_is_reached() -> None:
    assert row(130, 100, Target(ratio_min=1.3)).verdict == "reached"


def test_a_rate_below_the_named_multiple_is_missed() -> None:
    assert row(129, 100, Target(ratio_min=1.3)).verdict == "missed"


def test_a_latency_above_the_named_fraction_is_missed() -> None:
    target = Target(ratio_max=0.6)
    assert row(60, 100, target).verdict == "reached"
    assert row(61, 100, target).verdict == "missed"


@pytest.mark.parametrize(
    ("tidelog", "kafka", "verdict"),
    [(0.4, 5.0, "reached"), (0.6, 60.0, "missed"), (0.4, 3.0, "missed")],
)
def test_a_target_with_two_bounds_needs_both(tidelog: float, kafka: float, verdict: str) -> None:
    assert row(tidelog, kafka, Target(ratio_max=0.1, tidelog_max=0.5)).verdict == verdict


@pytest.mark.parametrize("target", [Target(ratio_min=1.3), Target(ratio_max=0.6)])
def test_without_a_kafka_figure_a_ratio_is_never_reached(target: Target) -> None:
    assert row(1e9, None, target).verdict == "missed"
    assert row(0, None, target).verdict == "missed"


def test_without_a_tidelog_figure_nothing_is_reached() -> None:
    assert row(None, 100, Target(tidelog_max=5)).verdict == "missed"


def test_a_bound_on_tidelog_alone_needs_no_kafka_figure() -> None:
    assert row(1.2, None, Target(tidelog_max=1.3)).verdict == "reached"
    assert row(1.4, None, Target(tidelog_max=1.3)).verdict == "missed"


def test_a_row_without_a_target_has_no_verdict() -> None:
    assert row(1, 100, None).verdict == ""


def test_the_tally_counts_verdicts() -> None:
    rows = [row(2, 1, Target(ratio_min=1)), row(1, 2, Target(ratio_min=1)), row(1, 2, None)]
    assert Report(3, "Kafka", [], rows).tally() == "1 targets reached, 1 missed"


def test_the_table_shows_figures_ratio_target_and_verdict() -> None:
    line = "| case | 1.50 M msg/s | 1.00 M msg/s |  | 1.50 | ≥ 1.3 × | reached |"
    assert line in Report(3, "Kafka", [], [row(1.5e6, 1e6, Target(ratio_min=1.3))]).markdown()


def test_notes_below_the_mark_outlive_a_new_run(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    Report(3, "Kafka", [], [row(1, 2, None)]).write(path)
    path.write_text(path.read_text() + "## Profile\nwhere the time goes\n")
    Report(3, "Kafka", [], [row(77, 2, None)]).write(path)
    written = path.read_text()
    assert written.endswith("## Profile\nwhere the time goes\n")
    assert "77.0 msg/s" in written
    assert written.count(NOTES_MARK) == 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1_430_000, "msg/s", "1.43 M msg/s"), (9_300, "msg/s", "9.30 k msg/s"), (271.4, "µs", "271 µs")],
)
def test_figures_have_three_digits(value: float, unit: str, text: str) -> None:
    assert figure(value, unit) == text


def test_a_median_takes_each_part_apart_and_the_most_of_the_disturbance() -> None:
    samples = [Sample(1, 0.5, 0.1, 0.7), Sample(9, 0.1, 0.2, 0), Sample(3, 0.3, 0.9, 0)]
    assert median_sample(samples) == Sample(3, 0.3, 0.2, 0.7)


def test_a_disturbed_run_says_so_in_its_results() -> None:
    quiet = Row("case", "msg/s", Sample(1, others_share=0.1), Sample(1))
    disturbed = Row("case", "msg/s", Sample(1), Sample(1, others_share=0.6))
    assert "measure again" not in Report(3, "Kafka", [], [quiet]).markdown()
    assert "1 cases ran while other processes" in Report(3, "Kafka", [], [quiet, disturbed]).markdown()


def test_a_row_tells_the_disturbance_of_either_side() -> None:
    disturbed = Row("case", "msg/s", Sample(1, others_share=0.1), Sample(1, others_share=0.6))
    assert disturbed.others_share == 0.6


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 1001))
    assert percentile(values, 0.5) == 501
    assert percentile(values, 0.999) == 1000
