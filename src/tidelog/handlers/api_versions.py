"""ApiVersions: the table of APIs, and which features are finalized."""

from __future__ import annotations

from tidelog.base.limits import SOFTWARE_NAME_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.handlers.features import features_told
from tidelog.handlers.request import Request, Result
from tidelog.protocol.apis import API_VERSIONS, APIS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, Api
from tidelog.protocol.errors import ErrorCode

# Told to clients only while somebody wants their metrics: librdkafka says a line about it at every start.
TELEMETRY_APIS = (GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key)


def handle_api_versions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: lists the table, and notes what software the client is. *Versions*: 3 adds the client's
    name and features, 4 the fix of feature ranges."""
    asked = request.decode()
    if request.version >= 3:
        name, software_version = asked.client_software_name, asked.client_software_version
        if not _is_software_name(name) or not _is_software_name(software_version):
            return request.respond(error_code=ErrorCode.invalid_request, api_keys=())
        request.client.software = (
            name[:SOFTWARE_NAME_LENGTH_MAX],
            software_version[:SOFTWARE_NAME_LENGTH_MAX],
        )
    return _list(broker, request, APIS, ErrorCode.none)


def refuse_api_versions(broker: Broker, request: Request) -> bytes:
    """The answer to a version that is not served: those of ApiVersions itself, in version 0 (KIP-511)."""
    return _list(broker, request, (API_VERSIONS,), ErrorCode.unsupported_version)


def _is_software_name(text: str) -> bool:
    """Letters and digits, with dashes and dots among them (KIP-511)."""
    ends = (text[:1] + text[-1:]).isalnum()
    return ends and text.isascii() and text.replace("-", "").replace(".", "").isalnum()


def _list(broker: Broker, request: Request, apis: tuple[Api, ...], error: ErrorCode) -> bytes:
    rows = tuple(
        request.make(
            "ApiVersion",
            api_key=api.key,
            min_version=api.oldest_version if api.advertised_version is None else api.advertised_version,
            max_version=api.newest_version,
        )
        for api in apis
        if api.key not in TELEMETRY_APIS or broker.image.client_metrics
    )
    return request.respond(error_code=error, api_keys=rows, **features_told(broker, request))
