"""Bytes to messages and back: frames, requests, responses, record batches and records.

**Invariant:** no I/O and no state of a broker; everything here is a function of its arguments.
"""
