"""SIGKILL in the middle of compaction, under load: readers end with the newest value of each key (L8)."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.awaiting import await_that
from tests.soak import Tally, choose_seed, is_soak, record
from tidelog.base.files import DiskDirectory
from tidelog.log.checkpoint import read_offsets
from tidelog.log.format.names import CLEANED_OFFSETS
from tidelog.testing.process import BrokerProcess

SAMPLE_KILLS, SOAK_KILLS = 3, 40
KEY_COUNT = 60
PORTION = 200  # records between two looks at the folder
SEGMENTS_MAX = 20
WAIT_S = 300.0
TOPIC = "states"
SETTINGS = {
    "log.segment.bytes": str(48 * 1024),
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.io.max.bytes.per.second": "1000000",  # so that a round takes a while
    "log.flush.offset.checkpoint.interval.ms": "300",
}
Model = dict[bytes, bytes | None]


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_kills_in_the_middle_of_compaction_leave_the_newest_values(tmp_path: Path) -> None:
    seed = choose_seed()
    chance, model, kills, outcome = random.Random(seed), Model(), 0, "failed"
    folder = tmp_path / "log" / f"{TOPIC}-0"
    try:
        with BrokerProcess(tmp_path, SETTINGS) as broker:
            _create(broker.bootstrap_servers)
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
            )
            for _ in range(SOAK_KILLS if is_soak() else SAMPLE_KILLS):
                folder = _folder(tmp_path)
                _write_until_cleaning(producer, folder, model, chance)
                for _ in range(chance.randrange(3)):
                    _write(producer, model, chance)
                broker.kill()
                kills += 1
                broker.start()
            _write(producer, model, chance)
            _await_cleaned(folder)
            found, offsets = _read(broker.bootstrap_servers)
            assert _living(found) == _living(model), f"seed {seed}, after {kills} kills"
            assert offsets == sorted(set(offsets)) and len(offsets) < offsets[-1], "nothing was compacted"
            assert broker.stop() == 0  # a swap that is prepared then is finished by the next start
            broker.start()
            assert _living(_read(broker.bootstrap_servers)[0]) == _living(model)
        outcome = "passed"
    finally:
        record("SIGKILL in the middle of compaction", Tally(outcome, kills, len(model), 0, 0, seed))


def _folder(tmp_path: Path) -> Path:
    return next(tmp_path.rglob(f"{TOPIC}-0"))


def _create(bootstrap: str) -> None:
    new = NewTopic(TOPIC, 1, config={"cleanup.policy": "compact", "delete.retention.ms": "86400000"})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept until it has answered
    (made,) = admin.create_topics([new]).values()
    made.result(WAIT_S)


def _write(producer: Producer, model: Model, chance: random.Random) -> None:
    for _ in range(PORTION):
        key = b"k%d" % chance.randrange(KEY_COUNT)
        value = None if chance.random() < 0.1 else chance.randbytes(20).hex().encode() * 4
        producer.produce(TOPIC, value, key)
        model[key] = value
    assert producer.flush(WAIT_S) == 0


def _write_until_cleaning(producer: Producer, folder: Path, model: Model, chance: random.Random) -> None:
    """Until a round has written something that is not in its place. The cleaner is not left behind."""

    def is_cleaning() -> bool:
        if any(path.suffix in (".cleaned", ".swap") for path in folder.iterdir()):
            return True
        if len(list(folder.glob("*.log"))) < SEGMENTS_MAX:
            _write(producer, model, chance)
        return False

    await_that(is_cleaning, "no round has begun", WAIT_S)


def _await_cleaned(folder: Path) -> None:
    home = DiskDirectory.existing(str(folder.parent))
    await_that(lambda: read_offsets(home, CLEANED_OFFSETS).get((TOPIC, 0)), "no round has ended", WAIT_S)


def _read(bootstrap: str) -> tuple[Model, list[int]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    consumer = Consumer(settings)
    place = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
    consumer.assign([place])
    found, offsets, deadline = Model(), [-1], time.monotonic() + WAIT_S
    while offsets[-1] < end - 1:
        assert time.monotonic() < deadline, f"read up to {offsets[-1]} of {end}"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            key, offset = message.key(), message.offset()
            assert key is not None and offset is not None
            found[key] = message.value()
            offsets.append(offset)
    consumer.close()
    return found, offsets[1:]


def _living(model: Model) -> Model:
    return {key: value for key, value in model.items() if value is not None}
