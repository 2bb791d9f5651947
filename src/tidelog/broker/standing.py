"""What this broker is in its cluster: registered or not, and under which epoch.

`Registration` changes it, and the shell says whether the store can be reached; everybody else asks.

**Invariant:** `has_registered` never goes back: from the first registration on it is known what may be led.
"""

from __future__ import annotations

from tidelog.cluster.image import Image
from tidelog.cluster.paths import BROKER_EPOCHS
from tidelog.cluster.store import Check
from tidelog.log.trust import StorePosition

NEVER_A_VERSION = 1 << 30


class Standing:
    def __init__(self, node_id: int) -> None:
        self._path = f"{BROKER_EPOCHS}/{node_id}"
        self._node_id = node_id
        self.epoch = 0  # of the last registration
        self.vouched_epoch = -1  # up to which nothing is lost; the store may not have got so far
        self.are_logs_open = False
        self.has_registered = False
        self.is_registered = False
        self.is_serving = False
        self.is_store_reached = True  # as the shell says
        self.store_position = StorePosition()  # the last change of the store that was seen here

    def check(self, image: Image) -> Check:
        """What every change of this broker's partitions must pass: no later process has begun. If the image
        has another epoch than this broker's, nothing passes."""
        is_own = image.broker_epochs[self._node_id].epoch == self.epoch
        return Check(self._path, image.versions[self._path] if is_own else NEVER_A_VERSION)
