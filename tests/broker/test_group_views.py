"""What groups see of their broker."""

from __future__ import annotations

from tests.broker.parts import TOPIC_ID, make_kernel, make_topic
from tidelog.broker.data_plane.group_views import GroupSettings, ImageTopics
from tidelog.cluster.image import Image
from tidelog.cluster.paths import GROUP_CONFIG

KEY = "consumer.session.timeout.ms"


def test_topics_are_those_of_the_image_by_name_and_id() -> None:
    image = Image()
    topics = ImageTopics(image)
    assert (topics.count, topics.id_of("t"), topics.name_of(TOPIC_ID), topics.partition_count("t")) == (
        0,
        None,
        None,
        0,
    )
    image.topics["t"] = image.topics_by_id[TOPIC_ID] = make_topic("t", partition_count=3)
    assert topics.id_of("t") == TOPIC_ID and topics.name_of(TOPIC_ID) == "t"
    assert topics.partition_count("t") == 3 and list(topics.names()) == ["t"]


def test_a_group_goes_by_its_own_settings_before_the_broker_s() -> None:
    kernel, image = make_kernel(group_consumer_session_timeout_ms="50000"), Image()
    settings = GroupSettings(kernel.settings, image)
    image.configs[GROUP_CONFIG]["own"] = {KEY: "47000"}
    assert settings.of_group("own", KEY) == 47_000
    assert settings.of_group("other", KEY) == 50_000


def test_a_change_at_run_time_reaches_groups_without_settings_of_their_own() -> None:
    kernel = make_kernel(group_consumer_assignment_interval_ms="500")
    settings = GroupSettings(kernel.settings, Image())
    assert settings.of_group("g", "consumer.assignment.interval.ms") == 500
    kernel.settings.set_dynamic({"group.consumer.assignment.interval.ms": "700"}, {})
    assert settings.of_group("g", "consumer.assignment.interval.ms") == 700
