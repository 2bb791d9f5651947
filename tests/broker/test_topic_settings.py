"""Settings in force: what was changed at run time, and what topics make of it."""

from __future__ import annotations

from tests.broker.parts import make_kernel, make_topic, told
from tidelog.broker.kernel import Kernel
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.cluster.image import Image
from tidelog.cluster.paths import BROKER_CONFIG, DEFAULT_BROKER


def made(**stored: dict[str, str]) -> tuple[Kernel, Image, SettingsInForce]:
    kernel, image = make_kernel(), Image()
    image.configs[BROKER_CONFIG] = {name.removeprefix("of_"): config for name, config in stored.items()}
    return kernel, image, SettingsInForce(kernel, image)


def test_topics_that_set_the_same_share_their_settings() -> None:
    _, _, in_force = made()
    first = in_force.resolve(make_topic("a", retention_ms="5"))
    assert in_force.resolve(make_topic("b", retention_ms="5")) is first
    assert in_force.resolve(make_topic("c", retention_ms="6")) is not first


def test_a_topic_falls_back_to_what_was_changed_at_run_time() -> None:
    kernel, image, in_force = made()
    topic = make_topic()
    before = in_force.resolve(topic).flush_messages
    image.configs[BROKER_CONFIG] = {
        DEFAULT_BROKER: {"log.flush.interval.messages": "3"},
        str(kernel.node_id): {"log.flush.interval.messages": "7"},
    }
    assert in_force.resolve(topic).flush_messages == before, "nothing has taken effect yet"
    in_force.use_stored()
    assert in_force.resolve(topic).flush_messages == 7, "the broker's own goes before that of all"
    assert in_force.resolve(make_topic(flush_messages="9")).flush_messages == 9


def test_what_another_version_took_and_this_one_does_not_is_ignored_and_reported() -> None:
    kernel, _, in_force = made()
    resolved = in_force.resolve(make_topic(retention_ms="never", flush_messages="9"))
    assert resolved.flush_messages == 9
    assert told(kernel.outbox) == ["setting ignored"]
