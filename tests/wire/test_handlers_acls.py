"""Access control lists without an authorizer, as Kafka answers about them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    Harness,
    parts,
)
from tidelog.protocol.errors import MalformedRequest

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


ACL = {
    "resource_type": 2,
    "resource_name": "topic",
    "resource_pattern_type": 3,
    "principal": "User:ann",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@VERSIONS
def test_there_are_no_acls_without_an_authorizer(harness: Harness, version: int) -> None:
    answer = harness.ask(DESCRIBE_ACLS, version, **FILTER)
    assert (answer.error_code, answer.resources) == (ErrorCode.security_disabled, ())
    assert answer.error_message == "No Authorizer is configured on the broker"


@VERSIONS
def test_each_acl_to_be_made_is_refused(harness: Harness, version: int) -> None:
    acl = parts(CREATE_ACLS, version).AclCreation
    odd = acl(**ACL | {"principal": "", "resource_name": "", "operation": 99})
    results = harness.ask(CREATE_ACLS, version, creations=(acl(**ACL), odd)).results
    expected = (ErrorCode.security_disabled, "No Authorizer is configured.")
    assert [(result.error_code, result.error_message) for result in results] == [expected] * 2
    assert harness.ask(CREATE_ACLS, version, creations=()).results == ()


@VERSIONS
def test_each_filter_of_acls_to_be_deleted_is_refused(harness: Harness, version: int) -> None:
    one = parts(DELETE_ACLS, version).DeleteAclsFilter(**FILTER)
    results = harness.ask(DELETE_ACLS, version, filters=(one, one)).filter_results
    expected = (ErrorCode.security_disabled, "No Authorizer is configured.", ())
    assert [(r.error_code, r.error_message, r.matching_acls) for r in results] == [expected] * 2


@VERSIONS
@pytest.mark.parametrize("place", range(4))
def test_an_unknown_element_of_an_acl_closes_the_connection(
    harness: Harness, version: int, place: int
) -> None:
    name = ("resource_type", "resource_pattern_type", "operation", "permission_type")[place]
    bad = parts(CREATE_ACLS, version).AclCreation(**ACL | {name: 0})
    with pytest.raises(MalformedRequest):
        harness.ask(CREATE_ACLS, version, creations=(bad,))
    name = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")[place]
    with pytest.raises(MalformedRequest):
        harness.ask(DESCRIBE_ACLS, version, **FILTER | {name: 0})
    bad = parts(DELETE_ACLS, version).DeleteAclsFilter(**FILTER | {name: 0})
    with pytest.raises(MalformedRequest):
        harness.ask(DELETE_ACLS, version, filters=(bad,))
