"""Kafka's numbers for what goes wrong in a group."""

INCONSISTENT_GROUP_PROTOCOL = 23
NON_EMPTY_GROUP = 68
FENCED_INSTANCE_ID = 82
