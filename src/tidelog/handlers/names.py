"""What a topic may be called, by Kafka's rules, and what to say of one that is not there."""

from __future__ import annotations

from tidelog.base.limits import TOPIC_NAME_LENGTH_MAX
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import INTERNAL_TOPICS

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def name_problem(name: str) -> str | None:
    """Why a topic cannot have that name, or None. No more of it is quoted than a topic's name can have."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        quoted = f"{name[:TOPIC_NAME_LENGTH_MAX]}…"
        return f"Topic name is invalid: the length of '{quoted}' is longer than {TOPIC_NAME_LENGTH_MAX}"
    if not _LEGAL.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def missing_error(topic: str | bytes, is_known: bool) -> ErrorCode:
    """For a partition that is not there: is it the topic's id that nobody has, or only its index?"""
    if isinstance(topic, str) or is_known:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.unknown_topic_id
