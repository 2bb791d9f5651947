"""DescribeAcls, CreateAcls and DeleteAcls: nobody is asked who they are yet, so there is no authorizer, and
this broker says what Kafka says without one."""

from __future__ import annotations

from typing import Any

from tidelog.broker.broker import Broker
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode, MalformedRequest

_UNKNOWN = 0  # of resource types, pattern types, operations and permissions


def handle_describe_acls(broker: Broker, request: Request) -> Result:
    """*Behaviour*: SECURITY_DISABLED; a filter for something unknown closes the connection, as in Kafka.

    *Versions*: 1 adds pattern types; 2 is flexible; 3 adds user resources.
    """
    asked = request.decode()
    _check_known(
        asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    )
    return request.respond(
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured on the broker",
        resources=(),
    )


def handle_create_acls(broker: Broker, request: Request) -> Result:
    """*Behaviour*: SECURITY_DISABLED for each. *Versions*: as DescribeAcls."""
    asked = request.decode()
    for acl in asked.creations:
        _check_known(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    refused = request.make("AclCreationResult", **_disabled())
    return request.respond(results=(refused,) * len(asked.creations))


def handle_delete_acls(broker: Broker, request: Request) -> Result:
    """*Behaviour*: SECURITY_DISABLED for each. *Versions*: as DescribeAcls."""
    asked = request.decode()
    for acl in asked.filters:
        _check_known(acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
    refused = request.make("DeleteAclsFilterResult", matching_acls=(), **_disabled())
    return request.respond(filter_results=(refused,) * len(asked.filters))


def _disabled() -> dict[str, Any]:
    return {
        "error_code": ErrorCode.security_disabled,
        "error_message": "No Authorizer is configured.",
    }


def _check_known(*numbers: int) -> None:
    if _UNKNOWN in numbers:
        raise MalformedRequest("an access control list with an unknown element")
