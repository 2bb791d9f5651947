"""Records without a group: what of transactions is shown."""

from __future__ import annotations

import pytest

from tests.client.scripted import TOPIC, Asked, ScriptedBroker
from tests.client.told_log import ToldLog
from tidelog.cli.reading import Reading, open_cluster
from tidelog.protocol.records import Marker, build_batch, build_control_batch

ABORTED, KEPT = 7, 8


def transactional(offset: int, producer_id: int, value: bytes) -> bytearray:
    return build_batch(
        [(None, value, (), 1_000)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(offset: int, producer_id: int, kind: Marker) -> bytearray:
    return build_control_batch(kind, producer_id, 0, 0, 1_000, base_offset=offset)


@pytest.mark.parametrize(
    ("committed_only", "shown"),
    [(True, [b"kept", b"plain", b"again"]), (False, [b"aborted", b"kept", b"plain", b"again"])],
)
def test_what_was_aborted_is_shown_only_to_who_asks_for_it(committed_only: bool, shown: list[bytes]) -> None:
    log = ToldLog(
        [
            transactional(0, ABORTED, b"aborted"),
            transactional(1, KEPT, b"kept"),
            build_batch([(None, b"plain", (), 1_000)], base_offset=2),
            marker(3, ABORTED, Marker.ABORT),
            marker(4, KEPT, Marker.COMMIT),
            transactional(5, ABORTED, b"again"),
            marker(6, ABORTED, Marker.COMMIT),
        ]
    )
    log.aborted = [(ABORTED, 0)] if committed_only else None

    def list_offsets(asked: Asked) -> bytes:
        row = asked.make(
            "ListOffsetsPartitionResponse",
            partition_index=0,
            error_code=0,
            timestamp=-1,
            offset=7,
            leader_epoch=0,
        )
        topic = asked.make("ListOffsetsTopicResponse", name=TOPIC, partitions=(row,))
        return asked.respond(topics=(topic,))

    with (
        ScriptedBroker(fetch=log.fetch, list_offsets=list_offsets) as broker,
        open_cluster(broker.bootstrap_servers) as cluster,
    ):
        reading = Reading(cluster, TOPIC, {0: 0}, committed_only=committed_only)
        assert [found.record.value for found in reading.records()] == shown
        assert list(reading.records()) == [], "what was read is not read again"
