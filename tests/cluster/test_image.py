"""The image: what the store holds, as objects; the same whether read whole or applied step by step."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.cluster.tree import ID, register, started
from tidelog.broker.store_desk import notice_of
from tidelog.cluster.changes import TopicChanged
from tidelog.cluster.controller import decide_deletion, decide_producer_ids, decide_topic
from tidelog.cluster.facts import BrokerFacts, PartitionFacts, encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.store import Check, Delete, Node, Write


def facts(image: Image) -> object:
    return (
        image.cluster_id,
        image.brokers,
        image.topics,
        image.topics_by_id,
        image.versions,
        image.broker_epochs,
        image.next_producer_id,
        image.scram,
        image.features_epoch,
        image.feature_levels,
    )


def test_an_image_followed_is_the_image_read_whole() -> None:
    tree = started()
    tree.apply(decide_topic(tree.image, "a", ID, {"retention.ms": "5"}, [[1], [1]]))
    tree.apply(decide_topic(tree.image, "b", bytes(16), {}, [[1]]))
    assert facts(tree.image) == facts(tree.loaded())
    tree.apply(decide_producer_ids(tree.image))
    register(tree, BrokerFacts(1, "host", 9093, "", 0), is_trusted=False)
    tree.apply(decide_deletion(tree.image.topics["a"]))
    assert facts(tree.image) == facts(tree.loaded())
    assert list(tree.image.topics) == ["b"] and "/names/a" not in tree.nodes


def test_a_topic_s_facts_are_all_there() -> None:
    tree = started()
    tree.apply(decide_topic(tree.image, "a", ID, {"retention.ms": "5"}, [[1, 2], [2, 1]]))
    topic = tree.image.topics["a"]
    assert tree.image.topics_by_id[ID] is topic
    assert (topic.name, topic.config) == ("a", {"retention.ms": "5"})
    assert topic.partitions == {
        0: PartitionFacts(1, 0, [1], [1, 2], 0, [], {1: 1}),
        1: PartitionFacts(1, 0, [1], [2, 1], 0, [], {1: 1}),
    }


def test_a_broker_that_left_is_gone() -> None:
    tree = started()
    assert tree.image.brokers[1].host == "host"
    tree.apply([Delete("/brokers/ids/1")])
    assert tree.image.brokers == {}


def test_a_broker_is_reached_by_the_listeners_it_has() -> None:
    tree = started()
    listeners = {"INTERNAL": ("10.0.0.1", 9092), "EXTERNAL": ("tide.example", 443)}
    facts = BrokerFacts(2, "10.0.0.1", 9092, "", 0, listeners=listeners)
    register(tree, facts)
    for image in (tree.image, tree.loaded()):
        assert image.brokers[2].listeners == listeners
        assert image.addresses("EXTERNAL") == {2: ("tide.example", 443)}
        assert image.addresses("PLAINTEXT") == {1: (image.brokers[1].host, image.brokers[1].port)}


def test_what_an_earlier_version_wrote_is_a_broker_with_one_listener() -> None:
    image = Image()
    broker = encode_fields(epoch=1, host="h", port=1, rack="", directory="d", is_stopping=False)
    image.take(["/brokers/ids/1"], {"/brokers/ids/1": Node(broker, 0)})
    assert image.addresses("PLAINTEXT") == {1: ("h", 1)}


def test_what_a_later_version_wrote_is_passed_over() -> None:
    image = Image()
    broker = encode_fields(
        epoch=1, host="h", port=1, rack="", directory="d", is_stopping=False, later="field"
    )
    nodes = {
        "/brokers/ids/1": Node(broker, 0),
        "/config": Node(b"", 0),
        "/config/brokers": Node(b"", 0),
        "/config/no-kind/x": Node(b'{"a":"b"}', 0),
        "/later/thing": Node(b"{}", 0),
    }
    image.take(nodes, nodes)
    assert image.brokers[1].host == "h"
    image.apply([Delete("/config/no-kind/x")])


def test_names_that_differ_by_a_dot_alone_clash_until_one_is_gone() -> None:
    image = started().image
    image.apply(decide_topic(image, "a.b", ID, {}, [[1]]))
    assert (image.clash_of("a_b"), image.clash_of("a.b"), image.clash_of("ab")) == ("a.b", None, None)
    image.apply(decide_deletion(image.topics["a.b"]))
    assert image.clash_of("a_b") is None


def test_replicas_that_move_are_told_and_others_take_no_place() -> None:
    tree = started()
    tree.apply(decide_topic(tree.image, "a", ID, {}, [[1, 2]]))
    topic, known = tree.image.topics["a"], tree.image.topics["a"].partitions[0]
    assert b"adding" not in known.encode() and b"removing" not in known.encode()
    moving = replace(known, replicas=[3, 2, 1], adding=[3], removing=[1])
    tree.apply([Write(topic.path(0), moving.encode(), 0)])
    assert topic.partitions[0] == replace(moving, version=1)
    assert facts(tree.image) == facts(tree.loaded())


def test_a_topic_that_is_gone_takes_its_partitions_along() -> None:
    tree = started()
    tree.apply(decide_topic(tree.image, "a", ID, {}, [[1], [1]]))
    topic = tree.image.topics["a"]
    operations = decide_deletion(topic)
    notice = notice_of([*operations, Check("/controller-epoch", 1)])
    assert json.loads(notice.data)["paths"] == [topic.path(), "/names/a"]
    for operation in operations:
        del tree.nodes[operation.path]
    assert tree.image.take([topic.path(), "/names/a"], {}) == [TopicChanged(topic.topic_id)]
    gone = (topic.path(1), topic.path(0), topic.path(), "/names/a")
    assert not any(path in tree.image.versions for path in gone)
    assert facts(tree.image) == facts(tree.loaded())
