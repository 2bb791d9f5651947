"""Patterns by which members subscribe, in RE2: linear time, whatever a client sends.

**Invariant:** a pattern is matched once per change of the topics, however many groups use it. The
broker's internal topics never match.
"""

from __future__ import annotations

from collections import OrderedDict

import re2

from tidelog.base.limits import PATTERN_LENGTH_MAX, PATTERNS_KEPT_MAX
from tidelog.groups.turn import Refused, Topics
from tidelog.protocol.errors import ErrorCode

_OWN_PREFIX = "__"


class Patterns:
    def __init__(self) -> None:
        self._matched: OrderedDict[str, tuple[int, tuple[str, ...]]] = OrderedDict()
        self._options = re2.Options()
        self._options.log_errors = False

    def check(self, pattern: str) -> None:
        """Raise Refused for an invalid or too long pattern."""
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise Refused(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex has {len(pattern)} characters; the limit is {PATTERN_LENGTH_MAX}.",
            )
        try:
            re2.compile(pattern, self._options)
        except re2.error as problem:
            reason = problem.args[0].decode() if isinstance(problem.args[0], bytes) else str(problem)
            raise Refused(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
            ) from None

    def match(self, pattern: str, topics: Topics) -> tuple[str, ...]:
        """The names of the topics that match completely, in order."""
        known = self._matched.get(pattern)
        if known is not None and known[0] == topics.epoch:
            return known[1]
        compiled = re2.compile(pattern, self._options)
        found = tuple(
            sorted(
                name
                for name in topics.names()
                if not name.startswith(_OWN_PREFIX) and compiled.fullmatch(name) is not None
            )
        )
        self._matched[pattern] = topics.epoch, found
        self._matched.move_to_end(pattern)
        while len(self._matched) > PATTERNS_KEPT_MAX:
            self._matched.popitem(last=False)
        return found
