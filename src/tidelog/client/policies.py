"""Whether a topic may have gaps: from its `cleanup.policy`, as a broker reports it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tidelog.client.exchange import DESCRIBE_CONFIGS, KioExchange
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

_TOPIC = 2
_KEY = "cleanup.policy"


def policy_exchange(topic: str) -> KioExchange:
    return KioExchange(DESCRIBE_CONFIGS, lambda types: _build(types, topic))


def _build(types: ModuleType, topic: str) -> Any:
    wanted = make(
        types.DescribeConfigsResource, resource_type=_TOPIC, resource_name=topic, configuration_keys=(_KEY,)
    )
    return make(
        types.DescribeConfigsRequest,
        resources=(wanted,),
        include_synonyms=False,
        include_documentation=False,
    )


def says_compact(answer: Any) -> bool:
    """Whether the answer has compact in it; a broker without an answer has not said so."""
    return any(
        result.error_code == ErrorCode.none and config.name == _KEY and "compact" in (config.value or "")
        for result in answer.results
        for config in result.configs
    )
