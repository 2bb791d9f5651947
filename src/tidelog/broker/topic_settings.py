"""Settings in force: the broker's own, as changed at run time, and what they make of a topic's.

**Invariant:** what is kept here is worked out from the image and the settings; it can be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.config import TopicSettings, broker_setting, check_topic_setting
from tidelog.base.events import warning
from tidelog.base.limits import RESOLVED_SETTINGS_MAX
from tidelog.base.setting import InvalidSetting
from tidelog.broker.kernel import Kernel
from tidelog.cluster.facts import TopicFacts
from tidelog.cluster.image import Image
from tidelog.cluster.paths import BROKER_CONFIG, DEFAULT_BROKER


class SettingsInForce:
    def __init__(self, kernel: Kernel, image: Image) -> None:
        self._kernel = kernel
        self._image = image
        self._resolved: dict[tuple[bool, tuple[tuple[str, str], ...]], TopicSettings] = {}

    def use_stored(self) -> None:
        """What was changed at run time, for this broker and for all; topics fall back to it."""
        stored = self._image.configs[BROKER_CONFIG]
        own = self._usable(stored.get(str(self._kernel.node_id), {}), _is_broker_setting)
        common = self._usable(stored.get(DEFAULT_BROKER, {}), _is_broker_setting)
        self._kernel.settings.set_dynamic(own, common)
        self._resolved.clear()

    def resolve(self, topic: TopicFacts) -> TopicSettings:
        """The settings in force for a topic; topics that set the same share them."""
        key = topic.was_compacted, tuple(sorted(topic.config.items()))
        found = self._resolved.get(key)
        if found is None:
            if len(self._resolved) >= RESOLVED_SETTINGS_MAX:
                self._resolved.clear()
            usable = self._usable(topic.config, _is_topic_setting, topic=topic.name)
            found = TopicSettings(self._kernel.settings, usable, topic.was_compacted)
            self._resolved[key] = found
        return found

    def _usable(
        self, config: dict[str, str], is_usable: Callable[[str, str], bool], **of: str
    ) -> dict[str, str]:
        """Without what another version of this program took and this one does not."""
        usable = {}
        for name, text in config.items():
            try:
                if is_usable(name, text):
                    usable[name] = text
            except InvalidSetting as problem:
                self._kernel.outbox.tell(warning("setting ignored", **of, problem=str(problem)))
        return usable


def _is_broker_setting(name: str, text: str) -> bool:
    """False for a setting of a single listener, which is of no use here."""
    row = broker_setting(name)
    if row is not None:
        row.parse(text)
    return row is not None


def _is_topic_setting(name: str, text: str) -> bool:
    check_topic_setting(name, text)
    return True
