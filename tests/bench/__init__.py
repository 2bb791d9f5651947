"""The benchmark harness: the parts of it that judge."""
