"""Rounds of compaction beside a broker: in a process of their own, or in a test on a thread of this one.

**Invariant:** whatever becomes of a round, the broker goes on.
"""
