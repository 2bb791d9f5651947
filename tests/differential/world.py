"""What both brokers hold before the first scenario: topics of every kind, and records in some of them.

**Invariant:** no scenario and no generated request deletes or changes the topics named here.
"""

from __future__ import annotations

import time
from functools import partial

from tests.differential.entities import milliseconds, parts, topic_id
from tests.differential.pair import Pair
from tidelog.protocol.records import build_batch

PRODUCE, PRODUCE_VERSION = 0, 13
FIND_COORDINATOR, HEARTBEAT, UNKNOWN_MEMBER_ID = 10, 12, 25
INIT_PRODUCER_ID, INCREMENTAL_ALTER_CONFIGS, UPDATE_FEATURES = 22, 44, 57
DAY_MS = 24 * 60 * 60 * 1_000
# Of the records that both brokers hold; not to be cleaned away by retention, nor in the future.
START_MS = (int(time.time()) - 60) * 1_000

ORDERS = "orders"  # three partitions: 0 has records, 1 one batch, 2 none
COMPACTED = "compacted"
SMALL = "small.batches"
STAMPED = "stamped"
STRICT = "strict"
ZIPPED = "zipped"
SCRATCH = "scratch"  # for what is generated
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    ORDERS: (3, {}),
    SCRATCH: (3, {}),
    COMPACTED: (1, {"cleanup_policy": "compact"}),
    SMALL: (1, {"max_message_bytes": "500"}),
    STAMPED: (1, {"message_timestamp_type": "LogAppendTime"}),
    STRICT: (
        1,
        {"message_timestamp_before_max_ms": "3600000", "message_timestamp_after_max_ms": "3600000"},
    ),
    ZIPPED: (1, {"compression_type": "gzip"}),
}
PRODUCER_ID = 9_001


def batch(
    count: int = 1,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    timestamp: int = START_MS,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch whose records are a second apart."""
    records = [(key, value, (), timestamp + 1_000 * place) for place in range(count)]
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def build_world(pair: Pair) -> None:
    _settle_kafka(pair)
    pair.wait_until("Kafka has producer ids to give", partial(_gives_producer_ids, pair))
    pair.wait_until("both coordinate groups", partial(_coordinate_groups, pair))
    pair.wait_until("both coordinate transactions", partial(_coordinate_transactions, pair))
    for name, (partitions, config) in TOPICS.items():
        pair.create_topic(name, partitions, **config)
    append(pair, ORDERS, 0, batch(3), batch(2, timestamp=START_MS + 10_000, codec=1))
    append(pair, ORDERS, 0, batch(1, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0))
    append(pair, ORDERS, 1, batch(1))
    append(pair, SCRATCH, 0, batch(4))


def _settle_kafka(pair: Pair) -> None:
    """Take back what Kafka sets for eligible leader replicas (KIP-966): it binds min.insync.replicas."""
    part = parts(UPDATE_FEATURES, 2)
    down = part.FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2
    )
    answer = pair.ask_one(
        pair.kafka, UPDATE_FEATURES, 2, feature_updates=(down,), timeout=milliseconds(10_000)
    )
    assert answer.error_code == 0, answer
    part = parts(INCREMENTAL_ALTER_CONFIGS, 1)
    unset = part.AlterableConfig(name="min.insync.replicas", config_operation=1, value=None)
    every_broker = part.AlterConfigsResource(resource_type=4, resource_name="", configs=(unset,))
    answer = pair.ask_one(pair.kafka, INCREMENTAL_ALTER_CONFIGS, 1, resources=(every_broker,))
    assert answer.responses[0].error_code == 0, answer


def _gives_producer_ids(pair: Pair) -> bool:
    asked = {"transactional_id": None, "transaction_timeout": milliseconds(60_000)}
    return bool(pair.ask_one(pair.kafka, INIT_PRODUCER_ID, 0, **asked).error_code == 0)


def _coordinate_groups(pair: Pair) -> bool:
    """Their topics of groups are made, and loaded; Kafka takes a moment."""
    answers = []
    for side in (pair.kafka, pair.tidelog):
        pair.ask_one(side, FIND_COORDINATOR, 0, key="group")
        answers.append(pair.ask_one(side, HEARTBEAT, 4, group_id="group", member_id="nobody"))
    return all(answer.error_code == UNKNOWN_MEMBER_ID for answer in answers)


def _coordinate_transactions(pair: Pair) -> bool:
    """Their topics of transactional ids are made, and loaded."""
    asked = {"transactional_id": "first", "transaction_timeout": milliseconds(60_000)}
    answers = []
    for side in (pair.kafka, pair.tidelog):
        pair.ask_one(side, FIND_COORDINATOR, 1, key="first", key_type=1)
        answers.append(pair.ask_one(side, INIT_PRODUCER_ID, 0, **asked))
    return all(answer.error_code == 0 for answer in answers)


def append(pair: Pair, topic: str, index: int, *batches: bytearray) -> None:
    part = parts(PRODUCE, PRODUCE_VERSION)
    for records in batches:
        rows = (part.PartitionProduceData(index=index, records=bytes(records)),)
        data = (part.TopicProduceData(topic_id=topic_id(topic), partition_data=rows),)
        for side in (pair.kafka, pair.tidelog):
            answer = pair.ask_one(
                side,
                PRODUCE,
                PRODUCE_VERSION,
                acks=-1,
                timeout=milliseconds(10_000),
                topic_data=data,
            )
            outcome = answer.responses[0].partition_responses[0]
            assert outcome.error_code == 0, f"{side.name}: {outcome}"
