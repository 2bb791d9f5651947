"""What a partition counts since its log was opened, for metrics.

**Invariant:** a counter never falls: what is counted has happened.
"""

from __future__ import annotations


class PartitionCounters:
    __slots__ = (
        "append_count",
        "appended_size",
        "failed_read_count",
        "read_count",
        "record_count",
        "refused_count",
        "sent_size",
    )

    def __init__(self) -> None:
        self.append_count = 0
        self.record_count = 0
        self.appended_size = 0
        self.refused_count = 0
        self.read_count = 0
        self.failed_read_count = 0
        self.sent_size = 0

    def note_appended(self, record_count: int, size: int) -> None:
        self.append_count += 1
        self.record_count += record_count
        self.appended_size += size

    def note_refused(self) -> None:
        self.refused_count += 1

    def note_read(self, size: int, is_failed: bool) -> None:
        """A consumer is answered: so many bytes, or an error."""
        self.read_count += 1
        self.failed_read_count += is_failed
        self.sent_size += size

    def add(self, others: PartitionCounters) -> None:
        for name in PartitionCounters.__slots__:
            setattr(self, name, getattr(self, name) + getattr(others, name))
