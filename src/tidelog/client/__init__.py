"""A client for what confluent-kafka does not give: raw record batches.

**Invariant:** depends on `protocol` alone, so that it runs inside a Spark worker.
"""
