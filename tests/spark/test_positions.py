"""Offsets in a checkpoint: one text for each, what the JVM connector wrote, and what nobody should have."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import TopicPartition
from tidelog.spark.positions import OFFSET_MAX, PARTITION_MAX, BadPositions, Positions, Split, format_topic_id

CLICKS_ID = bytes(range(16))
CLICKS_0, CLICKS_2, CLICKS_10, VIEWS_0 = (
    TopicPartition(topic, partition)
    for topic, partition in (("clicks", 0), ("clicks", 2), ("clicks", 10), ("views", 0))
)

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
partitions = st.builds(TopicPartition, topics, st.integers(0, PARTITION_MAX))
offsets = st.integers(0, OFFSET_MAX)
splits = st.builds(
    Split,
    st.none() | st.integers(1, PARTITION_MAX),
    st.none() | st.integers(1, OFFSET_MAX),
)
positions = st.builds(
    Positions,
    st.dictionaries(partitions, offsets, max_size=8),
    st.dictionaries(topics, st.binary(min_size=16, max_size=16), max_size=4),
    splits,
    st.dictionaries(partitions, offsets, max_size=3),
    st.none() | st.text(min_size=1, max_size=9),
)


def test_the_form_is_that_of_the_decision() -> None:
    written = Positions(
        {VIEWS_0: 3, CLICKS_10: 7, CLICKS_2: 1, CLICKS_0: 12}, {"clicks": CLICKS_ID}, Split(min_partitions=8)
    )
    assert written.to_json() == (
        '{"": {"ids": {"clicks": "AAECAwQFBgcICQoLDA0ODw"}, "split": {"minPartitions": 8}}, '
        '"clicks": {"0": 12, "2": 1, "10": 7}, "views": {"0": 3}}'
    )


def test_what_is_empty_is_left_out() -> None:
    assert Positions({CLICKS_0: 12}).to_json() == '{"clicks": {"0": 12}}'
    assert Positions({}).to_json() == "{}"


def test_where_a_batch_begins_stands_beside_the_topics() -> None:
    written = Positions({CLICKS_0: 12}, starts={CLICKS_0: 5})
    assert written.to_json() == '{"": {"from": {"clicks": {"0": 5}}}, "clicks": {"0": 12}}'


def test_the_group_stands_beside_the_topics() -> None:
    assert Positions({CLICKS_0: 12}, group="g").to_json() == '{"": {"group": "g"}, "clicks": {"0": 12}}'


def test_only_what_belongs_to_a_partition_that_is_there_is_kept() -> None:
    kept = Positions({CLICKS_0: 1}, {"clicks": bytes(16), "views": CLICKS_ID}, starts={VIEWS_0: 1})
    assert kept == Positions({CLICKS_0: 1})


@pytest.mark.parametrize("text", ['{"clicks":{"0":12,"2":1}}', '{"clicks":{"2":1,"0":12},"gone":{}}'])
def test_what_the_jvm_connector_wrote_is_read(text: str) -> None:
    assert Positions.from_json(text) == Positions({CLICKS_0: 12, CLICKS_2: 1})


@given(positions)
def test_text_comes_back_byte_for_byte(given: Positions) -> None:
    text = given.to_json()
    assert Positions.from_json(text) == given
    assert json.dumps(Positions.from_json_dict(json.loads(text)).to_json_dict()) == text


@given(st.lists(st.tuples(partitions, offsets), max_size=8, unique_by=lambda item: item[0]), st.randoms())
def test_the_order_in_which_partitions_came_does_not_show(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert Positions(dict(items)).to_json() == Positions(dict(shuffled)).to_json()


@given(positions)
def test_positions_survive_pickling(given: Positions) -> None:
    assert pickle.loads(pickle.dumps(given)) == given


def test_nobody_can_change_them() -> None:
    mine = {CLICKS_0: 1}
    made = Positions(mine)
    mine[CLICKS_0] = 2
    assert made.offsets[CLICKS_0] == 1
    with pytest.raises(TypeError):
        made.offsets[CLICKS_0] = 3  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.split = Split(4)  # type: ignore[misc]


def test_a_topic_id_is_printed_as_kafka_does() -> None:
    assert format_topic_id(bytes.fromhex("937f5c9ee0a94a9bbb61b3ad50f0b5f1")) == "k39cnuCpSpu7YbOtUPC18Q"


NUMBER = f"expected a whole number from 0 to {OFFSET_MAX}"
BAD = {
    "[]": "offsets: a list is not an object",
    "nonsense": "offsets are 'nonsense': expected JSON",
    "[" * 100_000: "expected JSON",
    '{"a b": {}}': "'a b' is not a topic name",
    f'{{"{"x" * 300}": {{}}}}': "x'… is not a topic name",
    '{"t": 5}': "topic t: 5 is not an object",
    '{"t": {"x": 5}}': "'x' is not a partition of t",
    '{"t": {"00": 5}}': "'00' is not a partition of t",
    '{"t": {"-1": 5}}': "'-1' is not a partition of t",
    '{"t": {"\u0661": 5}}': "is not a partition of t",
    '{"t": {"2147483648": 5}}': "partition of t is 2147483648: expected a whole number from 0 to 2147483647",
    '{"t": {"0": -1}}': f"offset of t-0 is -1: {NUMBER}",
    '{"t": {"0": 1.5}}': f"offset of t-0 is 1.5: {NUMBER}",
    '{"t": {"0": true}}': f"offset of t-0 is True: {NUMBER}",
    '{"t": {"0": "7"}}': f"offset of t-0 is '7': {NUMBER}",
    '{"t": {"0": null}}': f"offset of t-0 is None: {NUMBER}",
    '{"t": {"0": [1]}}': f"offset of t-0 is a list: {NUMBER}",
    '{"t": {"0": 9223372036854775808}}': f"offset of t-0 is 9223372036854775808: {NUMBER}",
    f'{{"t": {{"0": {"9" * 4000}}}}}': f"offset of t-0 is a huge number: {NUMBER}",
    '{"": []}': 'what stands under "": a list is not an object',
    '{"": {"new": 1}}': "'new' under \"\" is unknown: a newer Tidelog may have written it",
    '{"": {"ids": 7}}': "ids: 7 is not an object",
    '{"": {"ids": {"t": "short"}}}': "id of topic 't' is 'short': expected 22 letters of base 64",
    '{"": {"ids": {"t": 7}}}': "id of topic 't' is 7: expected 22 letters of base 64",
    '{"": {"ids": {"t": "k3V\u00e9"}}}': "id of topic 't' is",
    '{"": {"ids": {"t": "AAECAwQFBgcICQoLDA0ODx"}}}': "id of topic 't' is 'AAECAwQFBgcICQoLDA0ODx'",
    '{"": {"split": {"minPartitions": 0}}}': "minPartitions is 0: expected a whole number from 1 to",
    '{"": {"split": {"other": 1}}}': "'other' under split is unknown",
    '{"": {"group": 7}}': "group is 7: expected a name",
    '{"": {"group": ""}}': "group is '': expected a name",
    '{"": {"from": {"t": {"0": -2}}}}': f"first offset of t-0 is -2: {NUMBER}",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_what_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(BadPositions) as refused:
        Positions.from_json(text)
    assert BAD[text] in str(refused.value)
    assert len(str(refused.value)) < 300


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_whatever_comes_is_read_or_refused(written: object) -> None:
    try:
        read = Positions.from_json_dict(written)
    except BadPositions:
        return
    assert Positions.from_json(read.to_json()) == read
