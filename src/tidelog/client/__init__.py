"""A client for what confluent-kafka does not give: raw record batches, in and out, on blocking sockets.

`cluster` finds topics, leaders and offsets; `reader` and `sender` move batches; `connection`, `security`,
`exchange` and `metadata` are what they stand on; `fetch` and `produce` are the two codecs by hand.

**Invariant:** depends on `protocol` alone, so that it runs inside a Spark worker.
"""
