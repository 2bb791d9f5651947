"""The topics of measurements and what is in them.

| topic | key | value (JSON; times in milliseconds) |
|---|---|---|
| `metrics.measurements` | series | name, tags {name: value}, value, time |
| `metrics.aggregates` | series | name, tags (sorted), start, end, count, sum, min, max, p50, p95, p99 |
| `metrics.late` | as it came | a measurement that arrived too late for its window, with headers |
| `metrics.dead-letters` | as it came | a record that cannot be read, with headers that say why |

A series is `name{tag=value,…}` with its tags sorted. The timestamp of a record is its arrival; `time` is
when it was measured.
"""

MEASUREMENTS = "metrics.measurements"
AGGREGATES = "metrics.aggregates"
LATE = "metrics.late"
DEAD_LETTERS = "metrics.dead-letters"
TOPICS_IN = (MEASUREMENTS,)
TOPICS_OUT = (AGGREGATES, LATE, DEAD_LETTERS)
