"""Reading groups from the partition that had them: not before it is closed, and then to its end."""

from __future__ import annotations

from pathlib import Path

from tests.broker.shards import groups_broker
from tidelog.base.decision import Entry
from tidelog.broker.data_plane.group_moves import Arrival
from tidelog.cluster.features import GROUPS_LEVEL
from tidelog.cluster.paths import FEATURES
from tidelog.cluster.store import ReadNodes, StoreRequest
from tidelog.groups.facts import offset_entry
from tidelog.groups.records import CLOSED_KEY, CLOSED_VALUE, NO_ID, CommittedOffset
from tidelog.protocol.records import build_pairs


def offset(group_id: str, value: int) -> Entry:
    return offset_entry(group_id, "t", 0, CommittedOffset(value, -1, "", 0, -1, NO_ID))


def batch(base_offset: int, *entries: Entry) -> bytes:
    data = build_pairs(list(entries), 0)
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def everybody(group_id: str) -> bool:
    return bool(group_id)


def arriving(tmp_path: Path) -> Arrival:
    shard = groups_broker(tmp_path).broker.coordinators.loaded()[0]
    arrival = Arrival(shard, 3)
    arrival.start_over(0)
    return arrival


def test_a_source_that_is_not_closed_is_read_on(tmp_path: Path) -> None:
    arrival = arriving(tmp_path)
    arrival.take(batch(0, offset("a", 1)), 1, everybody)
    assert arrival.unwritten is None and not arrival.is_idle
    arrival.take(b"", 1, everybody)
    assert arrival.unwritten is None and arrival.is_idle


def test_all_that_was_committed_when_it_was_closed_is_read(tmp_path: Path) -> None:
    """The journal may be written anew meanwhile: then the record that closes it comes before others."""
    arrival = arriving(tmp_path)
    arrival.take(batch(5, offset("a", 1), Entry(CLOSED_KEY, CLOSED_VALUE)), 9, everybody)
    assert arrival.unwritten is None
    arrival.take(batch(7, offset("a", 2), offset("b", 3)), 20, everybody)
    assert arrival.unwritten is not None
    assert list(arrival.unwritten) == [
        (entry.key, entry.value)
        for entry in (offset("a", 2), Entry(CLOSED_KEY, CLOSED_VALUE), offset("b", 3))
    ]


def test_a_source_that_begins_later_now_is_read_from_there(tmp_path: Path) -> None:
    arrival = arriving(tmp_path)
    arrival.take(batch(0, offset("a", 1), Entry(CLOSED_KEY, CLOSED_VALUE)), 9, everybody)
    arrival.start_over(9)
    arrival.take(b"", 9, everybody)
    assert arrival.unwritten is None


def test_what_the_store_has_of_a_move_is_read_as_it_is_now(tmp_path: Path) -> None:
    """A new session may show an older node: groups would be moved again, over what was committed since."""
    harness = groups_broker(tmp_path, offsets_topic_num_partitions="4")
    broker, image = harness.broker, harness.broker.image
    image.feature_levels["tidelog.version"], image.groups_moved = GROUPS_LEVEL, frozenset()
    broker.outbox.take_effects()
    broker.coordinators.tick()
    effects = broker.outbox.take_effects()
    readings = [each.action for each in effects if isinstance(each, StoreRequest)]
    assert readings and {*readings} == {ReadNodes((FEATURES,), is_synced=True)}
