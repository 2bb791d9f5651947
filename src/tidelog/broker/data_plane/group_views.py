"""What groups see of their broker: its topics, and the settings that they go by."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.config import BrokerSettings, group_number
from tidelog.cluster.image import Image
from tidelog.cluster.paths import GROUP_CONFIG
from tidelog.groups.records import ORIGIN_SIZE


class ImageTopics:
    """The topics of the image, as groups see them."""

    def __init__(self, image: Image) -> None:
        self._image = image

    @property
    def epoch(self) -> int:
        return self._image.topics_epoch

    @property
    def count(self) -> int:
        return len(self._image.topics)

    @property
    def origin(self) -> bytes:
        return self._image.cluster_id[:ORIGIN_SIZE].encode()

    def names(self) -> Iterable[str]:
        return self._image.topics

    def id_of(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return topic.topic_id if topic is not None else None

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def partition_count(self, name: str) -> int:
        topic = self._image.topics.get(name)
        return len(topic.partitions) if topic is not None else 0


class GroupSettings:
    """The broker's settings, and those that groups have of their own."""

    def __init__(self, settings: BrokerSettings, image: Image) -> None:
        self._own = image.configs[GROUP_CONFIG]
        self._settings = settings
        self.number = settings.number
        self.text = settings.text
        self.words = settings.words
        self._common: dict[str, int] = {}  # what groups without settings of their own go by
        self._common_values = settings.values  # which it was worked out from

    def of_group(self, group_id: str, key: str) -> int:
        own = self._own.get(group_id)
        if own is not None:
            return group_number(self._settings, own, key)
        if self._common_values is not self._settings.values:
            self._common, self._common_values = {}, self._settings.values
        found = self._common.get(key)
        if found is None:
            found = self._common[key] = group_number(self._settings, {}, key)
        return found
