"""ApiVersions, in every version, as kio reads the answers."""

from __future__ import annotations

from struct import Struct

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import API_VERSIONS, Harness, decode_answer
from tidelog.handlers.api_versions import TELEMETRY_APIS
from tidelog.protocol.apis import APIS

HEADER = Struct(">hhih")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_the_table(harness: Harness, version: int) -> None:
    answer = harness.ask(API_VERSIONS, version, client_software_name="x", client_software_version="1")
    assert answer.error_code == 0
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    table = {api.key: (api.oldest_version if api.key else 0, api.newest_version) for api in APIS}
    assert told == {key: versions for key, versions in table.items() if key not in TELEMETRY_APIS}
    harness.broker.image.client_metrics["all"] = {"metrics": "*"}
    answer = harness.ask(API_VERSIONS, version, client_software_name="x", client_software_version="1")
    assert {row.api_key for row in answer.api_keys} == {*table}, "somebody wants the metrics of clients now"


@pytest.mark.parametrize("version", [5, 99, 2**15 - 1, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(harness: Harness, version: int) -> None:
    harness.send_frame(HEADER.pack(API_VERSIONS, version, 77, -1) + b"whatever comes behind")
    (frame,) = harness.answers()
    answer = decode_answer(API_VERSIONS, 0, frame, 77)
    assert answer.error_code == ErrorCode.unsupported_version
    told = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    assert told == [(API_VERSIONS, 0, 4)]


@pytest.mark.parametrize("version", [3, 4])
def test_a_client_tells_what_software_it_is(harness: Harness, version: int) -> None:
    assert harness.client.software == ("unknown", "unknown")
    values = {"client_software_name": "librdkafka", "client_software_version": "2.3.0-rc1"}
    assert harness.ask(API_VERSIONS, version, **values).error_code == 0
    assert harness.client.software == ("librdkafka", "2.3.0-rc1")
    values = {"client_software_name": "n" * 30_000, "client_software_version": "1"}
    assert harness.ask(API_VERSIONS, version, **values).error_code == 0
    assert len(harness.client.software[0]) == 128


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version"),
    [("", "1"), ("x", ""), ("-x", "1"), ("x-", "1"), ("a b", "1"), ("é", "1"), ("x", "1."), ("x\n", "1")],
)
def test_a_software_name_that_is_none_is_refused(
    harness: Harness, version: int, name: str, software_version: str
) -> None:
    values = {"client_software_name": name, "client_software_version": software_version}
    answer = harness.ask(API_VERSIONS, version, **values)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())
    assert (answer.finalized_features_epoch, answer.supported_features) == (-1, ())
    assert harness.client.software == ("unknown", "unknown")
