"""The Spark source and sink, and the pipelines built on them.

**Invariant:** reaches a broker through `client` only, so that any Kafka will do.
"""
