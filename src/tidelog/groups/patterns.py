"""Patterns that members subscribe by, in RE2: linear time, whatever a client sends.

**Invariant:** a pattern is matched once against the topics there are, however many groups have it. The
broker's own topics match nothing.
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
        """Refused if that is no pattern, or one that is too long."""
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise Refused(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex has {len(pattern)} characters; {PATTERN_LENGTH_MAX} are taken.",
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
        """The names of the topics that match as a whole, in order."""
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
