"""A client for what confluent-kafka lacks: raw record batches, in and out, on blocking sockets.

`cluster` finds topics, leaders and offsets; `reader` and `sender` move batches; `connection`, `security`,
`exchange` and `metadata` are their foundation; `fetch` and `produce` are two hand-written codecs.

**Invariant:** depends on `protocol` alone, so that it runs inside a Spark worker.
"""
