"""CreateTopics and DeleteTopics: names, counts, assignments, settings, and what is asked twice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.differential.case import Case
from tests.differential.entities import NOBODY, milliseconds, topic_id
from tests.differential.world import ORDERS, SMALL

TIMEOUT = milliseconds(20_000)
BAD_NAMES = ("", ".", "..", "a b", "a/b", "ü", "x" * 250, "a\0b", "a:b")
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def create_topics(case: Case) -> None:
    _names(case)
    _counts(case)
    _assignments(case)
    _settings(case)
    name = case.fresh()
    _create(case, "a new topic", _topic(case, name))
    case.pair.settle(name, 1)
    _create(case, "it exists", _topic(case, name))
    _create(case, "it exists, validate only", _topic(case, name), validate_only=True)
    _create(case, "two good ones", *(_topic(case, case.fresh(f"good-{place}")) for place in "ab"))
    mixed = [_topic(case, case.fresh("mixed")), _topic(case, "a b"), _topic(case, ORDERS)]
    _create(case, "good and bad", *mixed)
    twice = _topic(case, case.fresh("twice"))
    _create(case, "the same twice", twice, twice, _topic(case, case.fresh("beside-twice")))
    _create(case, "no topics")


def _create(case: Case, scenario: str, *topics: Any, validate_only: bool = False) -> None:
    case.ask(scenario, topics=topics, timeout=TIMEOUT, validate_only=validate_only)


def _topic(case: Case, name: str, partitions: int = 1, replicas: int = 1, **values: Any) -> Any:
    return case.make(
        "CreatableTopic", name=name, num_partitions=partitions, replication_factor=replicas, **values
    )


def _names(case: Case) -> None:
    for name in BAD_NAMES:
        _create(case, f"the name {name[:20]!r}", _topic(case, name))
    _create(case, "a name that collides", _topic(case, SMALL.replace(".", "_")))
    _create(case, "a name of 249", _topic(case, "y" * 249), validate_only=True)
    for name in INTERNAL[2:]:  # the others Kafka has made by now
        _create(case, f"the internal {name}", _topic(case, name), validate_only=True)


def _counts(case: Case) -> None:
    name = case.fresh("counts")
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 32_767), (0, 0), (-2, -2)):
        _create(
            case, f"{partitions} partitions, {replicas} replicas", _topic(case, name, partitions, replicas)
        )
    for partitions, replicas in ((-1, -1), (-1, 1), (3, -1), (5, 1)):
        topic = _topic(case, name, partitions, replicas)
        _create(case, f"{partitions} and {replicas}, validate only", topic, validate_only=True)
    _create(case, "the broker's defaults", _topic(case, case.fresh("defaults"), -1, -1))
    for partitions in (2**31 - 1, 10_001):
        topic = _topic(case, name, partitions)
        _create(case, f"{partitions} partitions", topic, validate_only=True)


def _assignments(case: Case) -> None:
    name = case.fresh("assigned")
    for label, partitions, replicas, wanted in (
        ("to broker 1", -1, -1, {0: (1,)}),
        ("two to broker 1", -1, -1, {1: (1,), 0: (1,)}),
        ("and a count", 1, -1, {0: (1,)}),
        ("and a factor", -1, 1, {0: (1,)}),
        ("and both", 1, 1, {0: (1,)}),
        ("to a broker that is not there", -1, -1, {0: (7,)}),
        ("to a negative broker", -1, -1, {0: (-1,)}),
        ("to the same broker twice", -1, -1, {0: (1, 1)}),
        ("to nobody", -1, -1, {0: ()}),
        ("with a gap", -1, -1, {0: (1,), 2: (1,)}),
        ("from 1 on", -1, -1, {1: (1,)}),
        ("negative", -1, -1, {-1: (1,)}),
        ("of different factors", -1, -1, {0: (1,), 1: (1, 7)}),
    ):
        assignments = _assignment(case, *wanted.items())
        topic = _topic(case, name, partitions, replicas, assignments=assignments)
        _create(case, f"assigned {label}", topic, validate_only=True)
    twice = _assignment(case, (0, (1,)), (0, (1,)))
    _create(case, "assigned twice", _topic(case, name, -1, -1, assignments=twice), validate_only=True)


def _assignment(case: Case, *wanted: tuple[int, tuple[int, ...]]) -> tuple[Any, ...]:
    return tuple(
        case.make("CreatableReplicaAssignment", partition_index=index, broker_ids=broker_ids)
        for index, broker_ids in wanted
    )


def _settings(case: Case) -> None:
    name = case.fresh("settings")
    for key, value in (
        ("retention.ms", "1000"),
        ("retention.ms", " 1000 "),
        ("retention.ms", "-1"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("retention.ms", None),
        ("retention.ms", "9223372036854775808"),
        ("no.such.setting", "1"),
        ("", "1"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "burn"),
        ("compression.type", "zstd"),
        ("compression.type", "rar"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "2"),
        ("segment.bytes", "1"),
        ("segment.bytes", "1048576"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "0"),
        ("unclean.leader.election.enable", "true"),
        ("unclean.leader.election.enable", "TRUE"),
        ("unclean.leader.election.enable", "yes"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("message.timestamp.type", "Never"),
        ("message.timestamp.type", "LogAppendTime"),
        ("flush.messages", "0"),
        ("remote.storage.enable", "true"),
        ("remote.storage.enable", "false"),
        ("local.retention.ms", "5"),
        ("preallocate", "true"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0"),
        ("message.format.version", "3.0"),
        ("message.downconversion.enable", "false"),
        ("num.partitions", "3"),
        ("log.retention.ms", "3"),
    ):
        config = case.make("CreatableTopicConfig", name=key, value=value)
        topic = _topic(case, name, configs=(config,))
        _create(case, f"{key}={value}", topic, validate_only=True)
    both = tuple(case.make("CreatableTopicConfig", name="retention.ms", value=value) for value in ("5", "6"))
    _create(case, "a setting twice", _topic(case, case.fresh("twice-set"), configs=both))
    wide = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    pairs = tuple(case.make("CreatableTopicConfig", name=key, value=value) for key, value in wide.items())
    _create(case, "settings that contradict", _topic(case, name, configs=pairs), validate_only=True)


def delete_topics(case: Case) -> None:
    gone = case.pair.create_topic(case.fresh("doomed"))
    beside = case.pair.create_topic(case.fresh("beside"))
    _delete(case, "unknown", "absent")
    for name in BAD_NAMES:
        _delete(case, f"the name {name[:20]!r}", name)
    _delete(case, "nothing")
    _delete(case, "known and unknown", gone, "absent")
    case.pair.create_topic(case.fresh("twice"))
    _delete(case, "the same twice", case.fresh("twice"), case.fresh("twice"))
    if case.version >= 6:
        _delete_by_id(case, beside)
    else:
        _delete(case, "one", beside)


def _delete(case: Case, scenario: str, *names: str) -> None:
    states = tuple(case.make("DeleteTopicState", name=name) for name in names) if case.version >= 6 else ()
    case.ask(scenario, topics=states, topic_names=names, timeout=TIMEOUT)


def _delete_by_id(case: Case, name: str) -> None:
    def ask(scenario: str, *states: Any) -> None:
        case.ask(scenario, topics=states, timeout=TIMEOUT)

    def state(name: str | None, uuid: UUID | None) -> Any:
        return case.make("DeleteTopicState", name=name, topic_id=uuid)

    ask("an id nobody has", state(None, NOBODY))
    ask("an id nobody has, twice", state(None, NOBODY), state(None, NOBODY))
    ask("neither name nor id", state(None, None))
    ask("neither name nor id, twice", state(None, None), state(None, None))
    ask("name and id", state(name, topic_id(name)))
    ask("name and another id", state(name, NOBODY))
    ask("the same by name and by id", state(name, None), state(None, topic_id(name)))
    other = case.pair.create_topic(case.fresh("by-id"))
    ask("by id", state(None, topic_id(other)))
