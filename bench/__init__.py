"""Benchmarks: Tidelog and Apache Kafka side by side in one run.

`peers` starts the brokers, `load` makes the load, `cases` are the questions asked, `report` is the
answer. `python -m bench` runs all of them.

**Invariant:** both brokers get the same bytes over the same kind of connection, and neither runs while
the other is measured.
"""
