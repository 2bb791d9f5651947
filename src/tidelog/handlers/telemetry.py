"""GetTelemetrySubscriptions and PushTelemetry: clients tell their metrics to the broker (KIP-714).

Kafka serves these only with a plugin that takes the metrics. Here they are always served, kept by
`broker.telemetry` and shown on the metrics page; as long as nothing is subscribed, clients are told that
nothing is wanted.

**Invariant:** what a client pushes is never believed: it is bounded before and after it is unpacked.
"""

from __future__ import annotations

from datetime import timedelta

from tidelog.broker.broker import Broker
from tidelog.broker.telemetry import Push, Telemetry
from tidelog.handlers.request import Request, Result
from tidelog.handlers.uuids import to_bytes, to_uuid
from tidelog.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidelog.protocol.errors import ErrorCode

_ZERO = timedelta(0)
_ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)  # in the order of our preference
_RESERVED_ID = (1).to_bytes(16, "big")  # of Kafka's metadata log


def handle_get_telemetry_subscriptions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: a new client gets an id; all get what is wanted of them and how often. Who asks again
    within the interval is told to wait. *Versions*: 0 only.
    """
    asked = request.decode()
    telemetry = _up_to_date(broker)
    instance_id = to_bytes(asked.client_instance_id) or telemetry.new_instance_id()
    wanted = telemetry.get(instance_id, _selectors(request), request.client, broker.clock.uptime_ms)
    if wanted is None:
        return request.respond(
            error_code=ErrorCode.throttling_quota_exceeded,
            client_instance_id=None,
            subscription_id=0,
            accepted_compression_types=(),
            push_interval=_ZERO,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=(),
        )
    return request.respond(
        error_code=ErrorCode.none,
        client_instance_id=to_uuid(instance_id),
        subscription_id=wanted.subscription_id,
        accepted_compression_types=_ACCEPTED_CODECS,
        push_interval=timedelta(milliseconds=wanted.interval_ms),
        telemetry_max_bytes=broker.settings.number("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=wanted.metrics,
    )


def handle_push_telemetry(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the metrics are unpacked and kept. Who is asked for nothing has nothing to push;
    a connection or an address that pushes too much is told to wait. *Versions*: 0 only.
    """
    asked = request.decode()
    instance_id = to_bytes(asked.client_instance_id)
    if instance_id is None or instance_id == _RESERVED_ID:
        return request.respond(error_code=ErrorCode.invalid_request)
    error = _up_to_date(broker).push(
        instance_id,
        _selectors(request),
        request.client,
        broker.clock.uptime_ms,
        Push(asked.subscription_id, asked.terminating, asked.compression_type, asked.metrics),
        broker.settings.number("telemetry.max.bytes"),
    )
    return request.respond(error_code=error)


def _up_to_date(broker: Broker) -> Telemetry:
    broker.telemetry.update(broker.image.client_metrics, broker.image.client_metrics_epoch)
    return broker.telemetry


def _selectors(request: Request) -> dict[str, str]:
    """Who is speaking, by the names that selectors have for it."""
    client, (name, version) = request.client, request.client.software
    selectors = {
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": client.address,
        "client_source_port": str(client.port),
    }
    if request.client_id is not None:
        selectors["client_id"] = request.client_id
    return selectors
