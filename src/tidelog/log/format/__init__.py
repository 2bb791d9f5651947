"""Kafka's formats on disk: file names, index entries, checkpoints, snapshots, metadata. Bytes <-> values.

**Invariant:** pure. A decoder takes bytes and returns values, an encoder the reverse; nothing here opens a
file or knows a log. Every layout is written down once, here: the log, its checker and Spark use the same.
"""
