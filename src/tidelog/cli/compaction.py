"""The warning that a topic with cleanup.policy=compact is not compacted.

The broker stores the setting, because tools require such topics, and warns in its log. Users of the command
line do not see that log.

**Invariant:** no warning about brokers that compact.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tidelog.cli.remote import open_any
from tidelog.cluster.features import NAME

_POLICY = "cleanup.policy"


def warn_of_compaction(bootstrap_server: str, topic: str, values: Iterable[tuple[str, str | None]]) -> None:
    """Warn on stderr after settings of a topic were changed to these values."""
    if not any(key == _POLICY and "compact" in (value or "") for key, value in values):
        return
    with open_any(bootstrap_server) as broker:
        is_tidelog = any(feature.name == NAME for feature in broker.versions.supported_features)
    if is_tidelog:
        print(
            f"tidelog: topic {topic!r}: {_POLICY}=compact is stored, without effect: nothing is compacted; "
            "watch the size of the topic",
            file=sys.stderr,
        )
