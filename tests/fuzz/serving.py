"""Targets with a whole broker but no sockets: frames to dispatch, batches to append.

**Invariant:** what one input leaves behind the next must survive; after some thousands the logs are opened
as after a crash, must be whole, and a new broker takes over.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.fuzz.codecs import fitted_batch
from tests.fuzz.surroundings import PARTITION_COUNT, TOPICS, Modesty, Numbered
from tests.memory_store import MemoryStore
from tests.wire.group_requests import serve_groups
from tests.wire.harness import START_MS, Harness, new_client
from tests.wire.transaction_requests import serve_transactions
from tidelog.cluster.store import Action, Outcome
from tidelog.protocol.errors import MalformedRequest, RefusedBatch

LIVES = 5_000  # inputs of one broker
WAITING_MAX = 50
LONGEST_WAIT_MS = 5 * 60 * 1_000


class ModestStore(MemoryStore):
    """The tree in a dictionary, which refuses what is too much."""

    def __init__(self) -> None:
        super().__init__()
        self.modesty = Modesty()

    def perform(self, action: Action) -> Outcome:
        return self.modesty.objection(action) or super().perform(action)


class ModestHarness(Harness):
    """A broker whose store lets small changes through."""

    def start(self) -> None:
        self.store = self.modest_store = ModestStore()
        super().start()


class Life:
    """A broker that serves some thousands of inputs, then is checked and replaced."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidelog-fuzz-")
        self.harness = ModestHarness(
            Path(self._folder.name),
            auto_create_topics_enable="false",
            offsets_topic_num_partitions="2",
            transaction_state_log_num_partitions="2",
        )
        serve_groups(self.harness)
        serve_transactions(self.harness)
        self.harness.broker.kernel.entropy = Numbered()
        ids = [
            self.harness.create_topic(
                name, PARTITION_COUNT, **{k.replace(".", "_"): v for k, v in own.items()}
            )
            for name, own in TOPICS.items()
        ]
        self.harness.modest_store.modesty.protect(ids)
        self._left = LIVES

    @property
    def is_over(self) -> bool:
        self._left -= 1
        return self._left < 0

    def end(self) -> None:
        self.harness.check_logs()
        self._folder.cleanup()


_life: Life | None = None


def the_broker() -> Harness:
    global _life  # noqa: PLW0603  the fuzzer calls a function and nothing else
    if _life is not None and _life.is_over:
        check_what_is_left()
    _life = _life or Life()
    return _life.harness


def check_what_is_left() -> None:
    """The logs that the inputs so far have left behind are whole."""
    global _life  # noqa: PLW0603
    if _life is not None:
        _life.end()
        _life = None


def fuzz_request(data: bytes) -> None:
    """A frame without its size prefix, served by a whole broker."""
    harness = the_broker()
    try:
        harness.send_frame(data)
        _check_answers(harness.answers())
    except MalformedRequest:
        harness.broker.waiting.drop(harness.connection)
        harness.answers()
        harness.client = new_client()
    if harness.broker.waiting.count > WAITING_MAX:
        harness.advance(LONGEST_WAIT_MS)
        _check_answers(harness.answers())


def _check_answers(frames: list[bytes]) -> None:
    for frame in frames:
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def fuzz_batch(data: bytes) -> None:
    """A byte that picks a topic and what is made to fit, then a batch to append: all of it or nothing."""
    if not data:
        return
    partition = the_broker().partition([*TOPICS][data[0] % len(TOPICS)])
    batch = fitted_batch(data)
    before = partition.log.end_offset, partition.log.size
    try:
        appended = partition.append(memoryview(batch), 0, len(batch), START_MS)
    except RefusedBatch:
        assert (partition.log.end_offset, partition.log.size) == before
        return
    assert appended.is_duplicate or appended.base_offset == before[0]
    assert partition.log.end_offset >= before[0]
