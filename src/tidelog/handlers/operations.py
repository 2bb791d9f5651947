"""What anybody may do while there are no rules about it, as clients are told: bits by the number of the
operation."""

from __future__ import annotations

NO_OPERATIONS = -(2**31)  # they were not asked for
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
TOPIC_OPERATIONS = 0b1101_1111_1000
