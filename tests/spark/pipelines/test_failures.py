"""What is left of Spark's long errors."""

from __future__ import annotations

from tidelog.spark.pipelines.failures import LINE_MAX, explained

WRAPPED = """[STREAM_FAILED] Query [id = 9a83, runId = 055a] terminated with exception: {} SQLSTATE: XXKST
=== Streaming Query ===
Identifier: metrics.live [id = 9a83, runId = 055a]
tidelog.client.errors.Refused: not of this error
"""
OURS = """Job aborted: Task 0 in stage 5.0 failed 1 times: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "worker.py", line 1, in main
ValueError: first
During handling of the above exception, another exception occurred:
tidelog.client.errors.DamagedBatch: clicks-1: batch at offset 17 is damaged; see docs
\tat org.apache.spark.Task"""


def test_what_the_source_says_of_topic_and_offset_is_what_is_told() -> None:
    assert explained(WRAPPED.format(OURS)) == "clicks-1: batch at offset 17 is damaged; see docs"


def test_an_error_of_other_python_code_keeps_its_name() -> None:
    assert explained(WRAPPED.format("x\nTraceback\nValueError: bad thing\n\tat y")) == "ValueError: bad thing"


def test_an_error_of_spark_is_told_without_its_wrapping() -> None:
    assert explained(WRAPPED.format("Python worker failed.")) == "Python worker failed."


def test_it_is_one_line_that_is_never_empty_nor_endless() -> None:
    assert explained("") and explained("\n\n")
    assert len(explained(WRAPPED.format("word " * 1000))) == LINE_MAX
