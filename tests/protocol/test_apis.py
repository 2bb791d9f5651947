"""The table of APIs, against kio's schemas and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.index import load_request_schema

from tidelog.protocol.apis import APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api, Operation, Resource, api_table

KNOWN = (*APIS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
# ApiVersions lists APIs in the order of their keys, and so does the table.
UNGUARDED = {"ApiVersions", "GetTelemetrySubscriptions", "PushTelemetry"}


def test_keys_and_names_are_unique_and_in_order() -> None:
    keys = [api.key for api in APIS]
    assert keys == sorted(set(keys))
    assert len({api.name for api in KNOWN}) == len({api.key for api in KNOWN}) == len(KNOWN)


@pytest.mark.parametrize("api", KNOWN, ids=lambda api: api.name)
def test_a_row_is_as_kafka_s_schema_has_it(api: Api) -> None:
    for version in range(api.oldest_version, api.newest_version + 1):
        schema = load_request_schema(api.key, version)
        assert schema.__name__ == f"{api.name}Request"
        assert schema.__flexible__ == (version >= api.flexible_version)


def test_all_but_a_few_apis_ask_for_rights() -> None:
    assert {api.name for api in APIS if not api.rights} == UNGUARDED
    changing = {Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE, Operation.DELETE}
    for api in APIS:
        if api.is_controllers and api.name != "ListPartitionReassignments":
            assert changing & {operation for _, operation in api.rights}, api.name


def test_a_narrowed_row_is_the_same_api_in_fewer_versions() -> None:
    row = APIS[0].narrowed(3, 12)
    assert (row.key, row.name, row.flexible_version) == (APIS[0].key, APIS[0].name, APIS[0].flexible_version)
    assert (row.oldest_version, row.newest_version) == (3, 12)


def test_the_table_says_what_a_row_has() -> None:
    rights = ((Resource.TOPIC, Operation.DESCRIBE_CONFIGS), (Resource.CLUSTER, Operation.ALTER))
    rows = [
        Api(7, "Old", 3, 5, 4, rights, True, advertised_version=0),
        Api(8, "Young", 0, 0, 1),
    ]
    assert api_table(rows).splitlines()[2:] == [
        "| 7 | Old | 3 to 5, advertised from 0 | 4 | controller | topic: describe configs, cluster: alter |",
        "| 8 | Young | 0 |  |  |  |",
    ]


def test_the_page_about_the_protocol_shows_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "protocol.md"
    assert api_table(APIS) in page.read_text("utf-8")
