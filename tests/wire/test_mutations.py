"""Random and mutated frames against the broker, mutated batches against the log.

Whatever comes, the outcome is an answer, a parked request or MalformedRequest; and afterwards the log is
whole: reopened as after a crash, nothing of it is cut.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.reference import mutations
from tests.wire.batches import with_crc
from tests.wire.group_requests import serve_groups
from tests.wire.harness import PRODUCE, START_MS, Harness, batch_of, new_client
from tests.wire.requests import fetch, produce
from tests.wire.samples import SAMPLED, sample_frames
from tests.wire.transaction_requests import serve_transactions
from tidelog.protocol.apis import APIS
from tidelog.protocol.errors import MalformedRequest, RefusedBatch

BOUNDED = settings(deadline=None, suppress_health_check=[*HealthCheck], max_examples=400)
FRAME_GROWTH_FACTOR = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[Harness]:
    """One broker for all examples: what one left behind, the next must survive."""
    with TemporaryDirectory() as folder:
        harness = Harness(
            Path(folder),
            auto_create_topics_enable="false",
            offsets_topic_num_partitions="2",
            transaction_state_log_num_partitions="2",
        )
        serve_groups(harness)
        serve_transactions(harness)
        harness.create_topic("t", partitions=2, segment_bytes="20000")
        harness.create_topic("compacted", cleanup_policy="compact")
        harness.create_topic("squeezed", compression_type="gzip")
        harness.holds_store = True  # no mutated request may make ten thousand folders
        yield harness
        harness.check_logs()


@pytest.fixture(scope="module")
def frames(shared: Harness) -> list[bytes]:
    return list(sample_frames(shared))


def offer(harness: Harness, frame: bytes) -> None:
    """Serve it as the server would: a malformed one closes the connection."""
    try:
        harness.send_frame(frame)
    except MalformedRequest:
        harness.broker.waiting.drop(harness.connection)
        harness.answers()
        harness.client = new_client()
    harness.held_requests.clear()
    if harness.broker.waiting.count > 50:
        harness.advance(5 * 60 * 1_000)
    harness.answers()


def test_every_api_has_a_sample(shared: Harness, frames: list[bytes]) -> None:
    assert {api.key for api in APIS} == {*SAMPLED}
    for frame in frames:
        shared.send_frame(frame)
    shared.advance(5 * 60 * 1_000)
    assert len(shared.answers()) == len(frames)


@BOUNDED
@given(data=st.data())
def test_a_mutated_frame_does_no_harm(shared: Harness, frames: list[bytes], data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(frames))
    for _ in range(data.draw(st.integers(1, 3))):
        frame = data.draw(mutations(frame))
    offer(shared, frame)


@BOUNDED
@given(head=st.sampled_from([(api.key, v) for api in APIS for v in range(14)]), body=st.binary(max_size=120))
def test_a_random_frame_does_no_harm(shared: Harness, head: tuple[int, int], body: bytes) -> None:
    key, version = head
    offer(shared, key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + body)


@BOUNDED
@given(frame=st.binary(min_size=8, max_size=60))
def test_random_bytes_do_no_harm(shared: Harness, frame: bytes) -> None:
    offer(shared, frame)


@BOUNDED
@given(data=st.data(), topic=st.sampled_from(["t", "compacted", "squeezed"]), codec=st.integers(0, 4))
def test_a_mutated_batch_is_appended_whole_or_not_at_all(
    shared: Harness, data: st.DataObject, topic: str, codec: int
) -> None:
    producer = data.draw(st.sampled_from([-1, 7]))
    batch = batch_of(3, codec=codec, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=0)
    mutated = with_crc(bytearray(data.draw(mutations(bytes(batch)))))
    partition = shared.partition(topic)
    end_before, size_before = partition.log.end_offset, partition.log.size
    try:
        appended = partition.append(memoryview(mutated), 0, len(mutated), START_MS)
    except RefusedBatch:
        assert (partition.log.end_offset, partition.log.size) == (end_before, size_before)
        return
    assert appended.is_duplicate or appended.base_offset == end_before
    if not appended.is_duplicate:
        fetched = fetch(shared, 12, topic, appended.base_offset)
        assert (fetched.error_code, fetched.high_watermark) == (0, partition.log.end_offset)
        assert int.from_bytes(fetched.records[:8], "big") == appended.base_offset


def test_what_was_appended_among_the_hostile_is_whole(shared: Harness) -> None:
    for _ in range(20):
        assert produce(shared, 9, "t", batch_of(10)).error_code == 0
    ends = shared.check_logs()
    assert ends["t-0"] >= 200


@pytest.mark.parametrize("key", [api.key for api in APIS if api.key != PRODUCE])
def test_decoding_takes_memory_by_the_size_of_the_frame(shared: Harness, key: int) -> None:
    """Frames of small numbers: every length in them is believed as far as it can be."""
    api = next(api for api in APIS if api.key == key)
    for version in range(api.oldest_version, api.newest_version + 1):
        for filler in (b"\0\0\0\1", b"\1", b"\2", b"\0\1"):
            head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
            frame = head + filler * (40_000 // len(filler))
            tracemalloc.start()
            try:
                offer(shared, frame)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < FRAME_GROWTH_FACTOR * len(frame)
