"""Where a group is: commits, what they carry, and where its members go on from."""

from __future__ import annotations

import pytest

from tests.compat.client import Admin, eventually
from tests.compat.conftest import NewTopic
from tests.compat.groups.conftest import NewGroup
from tests.compat.groups.ledger import faults, missing
from tests.compat.groups.spec import AIOKAFKA, ALL, Place, Spec
from tests.compat.groups.stream import Stream, partitions_of

every_client = pytest.mark.parametrize("spec", ALL, ids=str)


@every_client
def test_a_commit_is_found_as_it_was_made(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=2)
    group = new_group(topic)
    Stream(bootstrap, partitions_of(topic, 2)).write(20)
    member = group.join(spec, commits=False)
    member.until_has(partitions_of(topic, 2))
    assert member.ask("committed", partitions=partitions_of(topic, 2)) == ()
    epoch = -1 if spec == AIOKAFKA else 0  # aiokafka cannot say it
    place = Place(topic, 1, 7, "who and why: é", epoch)
    member.ask("commit", places=[[topic, 1, 7, place.metadata, epoch]])
    assert member.ask("committed", partitions=partitions_of(topic, 2)) == (place,)


@every_client
def test_the_next_member_goes_on_where_the_last_one_committed(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic()
    group = new_group(topic)
    stream = Stream(bootstrap, [(topic, 0)])
    stream.write(10)
    first = group.join(spec, commits=False)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    first.ask("commit", places=[[topic, 0, 4]])
    first.leave()
    second = group.join(spec)
    second.until_told("records")
    group.until(lambda events: ((topic, 0), 9) in second.records(), "the second did not read to the end")
    assert [offset for _, offset in second.records()] == [4, 5, 6, 7, 8, 9]


@every_client
def test_a_seek_moves_this_member_and_not_the_group(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic()
    group = new_group(topic)
    stream = Stream(bootstrap, [(topic, 0)])
    stream.write(10)
    member = group.join(spec, commits=False)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    member.ask("commit", places=[[topic, 0, 10]])
    member.ask("seek", topic=topic, partition=0, offset=3)
    group.until(lambda events: len(member.records()) >= 17, "the seek brought nothing back")
    assert [offset for _, offset in member.records()] == [*range(10), *range(3, 10)]
    (position,) = member.ask("position", topic=topic, partition=0)
    assert position.offset == 10
    assert [place.offset for place in member.ask("committed", partitions=[(topic, 0)])] == [10]


@every_client
def test_a_paused_partition_is_kept_and_silent_until_it_is_resumed(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=2)
    group, partitions = new_group(topic), partitions_of(topic, 2)
    stream = Stream(bootstrap, partitions)
    member = group.join(spec)
    member.until_has(partitions)
    member.ask("pause", partitions=[(topic, 0)])
    stream.write(20)
    other = {(topic, 1): stream.ends[topic, 1]}
    group.until(lambda events: not missing(events, other), "the other partition stopped as well")
    assert all(partition == (topic, 1) for partition, _ in member.records())
    assert member.owned == set(partitions)
    member.ask("resume", partitions=[(topic, 0)])
    group.until(lambda events: not missing(events, stream.ends), "the partition was not resumed")
    assert faults(group.events) == []


@every_client
def test_auto_commit_commits_what_was_handed_out(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic()
    group = new_group(topic)
    stream = Stream(bootstrap, [(topic, 0)])
    stream.write(10)
    member = group.join(spec, commits=False, auto_commit_ms=100)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")

    def is_committed() -> bool:
        return [place.offset for place in member.ask("committed", partitions=[(topic, 0)])] == [10]

    eventually(is_committed, "nothing was committed")
    member.leave()
    stream.write(1)
    second = group.join(spec)
    second.until_told("records")
    assert [offset for _, offset in second.records()] == [10]


@every_client
def test_two_groups_read_the_same_topic_without_each_other(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=2)
    partitions = partitions_of(topic, 2)
    stream = Stream(bootstrap, partitions)
    stream.write(20)
    one, two = new_group(topic), new_group(topic)
    first, second = one.join(spec), two.join(spec, commits=False)
    for group in (one, two):
        group.until_shared(group.members, partitions)
        group.until(lambda events: not missing(events, stream.ends), "not every record came")
    first.until_told("committed")
    assert second.ask("committed", partitions=partitions) == ()
    if spec.client != "kafka-python":  # which joins anew now and then, and refuses itself meanwhile
        second.ask("commit", places=[[topic, 0, 3]])
    ends = {place.partition: place.offset for place in first.ask("committed", partitions=partitions)}
    assert ends == {0: 10, 1: 10}


@every_client
def test_a_topic_made_again_begins_without_the_old_commits(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, writer: Admin, fresh_name: str, spec: Spec
) -> None:
    writer.create_topic(fresh_name, 1, {})
    group = new_group(fresh_name)
    ends = Stream(bootstrap, [(fresh_name, 0)]).write(5)  # a producer that stays would make the topic again
    member = group.join(spec)
    member.until_told("committed")
    group.until(lambda events: not missing(events, ends), "not every record came")
    member.leave()
    writer.delete_topic(fresh_name)
    eventually(lambda: fresh_name not in writer.topics(), "the topic is still listed")
    writer.create_topic(fresh_name, 1, {})
    Stream(bootstrap, [(fresh_name, 0)]).write(3)
    again = group.join(spec)
    group.until(lambda events: len(again.records()) >= 3, "the new records did not come")
    assert [offset for _, offset in again.records()] == [0, 1, 2]
