"""Bytes to messages and back: frames, requests, responses, record batches and records.

**Invariant:** no I/O and no broker state; everything here is a function of its arguments.
"""
