"""What may have become of a broker's disk between two of its lives, and how its process may end on the way.

| damage            | what is found by the next life                                                     |
|-------------------|------------------------------------------------------------------------------------|
| disk replaced     | all log directories empty                                                          |
| directory gone    | one of two empty                                                                   |
| directory left out| `log.dirs` has one of two; the other returns some lives later, as it was            |
| folder gone       | one partition's                                                                    |
| older copy        | all as it was before the last registration                                         |
| flipped bit       | in the last segment of a log: its last batch, any, or a batch's length             |
| lost end          | a log ends with a whole batch below its checkpointed high watermark                |
| end lost by repair| the same at any batch, in a directory whose failure the last life has seen         |

**Invariant:** damage is a loss of the broker, or of the partition that it hits, and kept within the bound. No
bit is flipped where nothing looks: below the recovery point, or in a batch's leader epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tests.sim.cluster_clients import split_batches
from tests.sim.cluster_node import ClusterNode
from tests.sim.disk import SimulatedDirectory
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.cluster.paths import BROKER_EPOCHS, TOPICS
from tidelog.log.checkpoint import read_offsets
from tidelog.log.directory import RUNNING
from tidelog.log.format.names import HIGH_WATERMARKS
from tidelog.log.trust import read_note
from tidelog.protocol.batch import read_header

if TYPE_CHECKING:
    from tests.sim.cluster import World

COPIES_MAX = 3
LENGTH_POSITION, LENGTH_SIZE = 8, 4
LEADER_EPOCH_POSITION, LEADER_EPOCH_SIZE = 12, 4  # no checksum covers it
STOP_MS_MAX = 8_000


class Damage:
    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self._random = world.clock.random
        self._copies: dict[int, list[tuple[int, Any]]] = {}  # by node: its epoch then, and all that there was
        self._left_out: dict[int, str] = {}
        self._kinds: dict[str, Callable[[ClusterNode], bool]] = {
            "disk replaced": self.replace_disk,
            "directory gone": self.empty_directory,
            "directory left out": self.leave_out,
            "folder gone": self.remove_folder,
            "older copy": self.put_back,
            "flipped bit": self.flip_bit,
            "lost end": self.lose_end,
        }

    def note_life(self, node: ClusterNode) -> None:
        """Somebody copies the disk now and then."""
        copies = self._copies.setdefault(node.node_id, [])
        copies.append((max(map(partial(_noted, node), node.folders)), node.disk.copy()))
        del copies[:-COPIES_MAX]

    def _registered(self, node: ClusterNode) -> int:
        """The epoch of its last registration."""
        known = self._world.committed.at(f"{BROKER_EPOCHS}/{node.node_id}")
        return int(json.loads(known)["registered"]) if known is not None else -1

    def may_harm(self, node: ClusterNode) -> bool:
        return not node.disk.is_faulty and self._world.may_lose([node.node_id], is_of_disk=True)

    def harm(self, node: ClusterNode) -> None:
        """Do something to the disk of a broker that is down."""
        assert not node.is_running
        kinds = list(self._kinds.items())
        self._random.shuffle(kinds)
        if self._random.random() < 0.5:  # of what only some can have
            kinds.sort(key=lambda kind: not kind[0].startswith("directory"))
        for name, act in kinds:
            if act(node):
                self._clock.count(name)
                self._clock.note(f"{node.node_id}: {name}")
                return

    def _lose_all(self, node: ClusterNode) -> None:
        self._world.lost.on_loss(node.node_id, is_of_disk=True)

    def replace_disk(self, node: ClusterNode) -> bool:
        node.disk.remount()
        for name in node.folders:
            _make_empty(node, name)
        self._left_out.pop(node.node_id, None)
        self._lose_all(node)
        return True

    def empty_directory(self, node: ClusterNode) -> bool:
        if len(node.folders) < 2:
            return False
        node.disk.remount()
        _make_empty(node, self._random.choice(node.folders))
        self._lose_all(node)
        return True

    def leave_out(self, node: ClusterNode) -> bool:
        """Or let it return: what is in it is old, and may stand beside what was made since."""
        left_out = self._left_out.pop(node.node_id, None)
        if left_out is not None:
            node.folders = sorted([*node.folders, left_out])
        elif len(node.folders) > 1:
            left_out = self._left_out[node.node_id] = self._random.choice(node.folders)
            node.folders = [name for name in node.folders if name != left_out]
        else:
            return False
        node.disk.remount()
        self._lose_all(node)
        return True

    def remove_folder(self, node: ClusterNode) -> bool:
        found = self._folders(node)
        if not found:
            return False
        node.disk.remount()
        name, folder, path = self._random.choice(found)
        node.disk.root.folder(name).remove(folder)
        node.disk.root.folder(name).sync()
        self._world.lost.on_loss(node.node_id, True, path)
        return True

    def put_back(self, node: ClusterNode) -> bool:
        now = self._registered(node)
        older = [tree for epoch, tree in self._copies.get(node.node_id, ()) if epoch < now]
        if not older:
            return False
        node.disk.remount(self._random.choice(older).copied())
        for name in node.folders:
            node.disk.root.folder(name)
        node.disk.root.sync()
        self._lose_all(node)
        return True

    def flip_bit(self, node: ClusterNode) -> bool:
        node.disk.remount()
        logs = []
        for name, folder, path in self._folders(node):
            inside = node.disk.root.folder(name).folder(folder)
            segments = sorted(file for file in inside.names() if file.endswith(".log"))
            if segments and inside.sizes()[segments[-1]]:
                logs.append((inside, segments[-1], path))
        if not logs:
            return False
        inside, file, path = self._random.choice(logs)
        inside.flip(file, self._spot_in(inside, file, node.was_stopped), self._random.randrange(8))
        self._world.lost.on_loss(node.node_id, True, path)
        return True

    def lose_end(self, node: ClusterNode) -> bool:
        """As far as a checkpoint shows it: what is lost above nobody can see, after a kill."""
        found = []
        for name, folder, path in self._folders(node):
            topic, _, number = folder.rpartition("-")
            root = node.disk.root.folder(name)
            high_watermark = read_offsets(root, HIGH_WATERMARKS).get((topic, int(number)), 0)
            places = [(o, at) for o, at in batch_places(root.folder(folder)) if o < high_watermark]
            if places:
                found.append((root.folder(folder), self._random.choice(places)[1], path))
        if not found:
            return False
        chosen, place, path = self._random.choice(found)
        cut_to(chosen, place)
        self._world.lost.on_loss(node.node_id, True, path)
        return True

    def repair(self, node: ClusterNode) -> None:
        """Who repairs a disk that has failed may lose the ends of logs."""
        for name, folder, path in self._folders(node):
            if name in node.failed_folders and self._random.random() < 0.5:
                inside = node.disk.root.folder(name).folder(folder)
                places = batch_places(inside)
                if places:
                    cut_to(inside, self._random.choice(places)[1])
                    self._clock.count("end lost by repair")
                    self._world.lost.on_loss(node.node_id, True, path)

    def _spot_in(self, folder: SimulatedDirectory, file: str, was_stopped: bool) -> int:
        data = folder.read_whole(file)
        assert data
        batches = _batches(data)
        places = [0]
        for batch in batches:
            places.append(places[-1] + len(batch))
        # After a clean stop only the end is looked at.
        which = len(batches) - 1 if was_stopped or self._random.random() < 0.5 else None
        if which is None:
            which = self._random.randrange(len(batches)) if batches else 0
        start, end = (places[which], places[which + 1]) if batches else (0, len(data))
        if self._random.random() < 0.3:
            return start + LENGTH_POSITION + self._random.randrange(LENGTH_SIZE)
        position = self._random.randrange(start, end)
        is_epoch = 0 <= position - start - LEADER_EPOCH_POSITION < LEADER_EPOCH_SIZE
        return start + LENGTH_POSITION if is_epoch else position

    def _folders(self, node: ClusterNode) -> list[tuple[str, str, str]]:
        """Of partitions that are there: the directory, the name, and the path in the store."""
        found = []
        for topic_id, topic in self._world.committed.topics():
            for name in node.folders:
                for folder in node.disk.root.folder(name).names():
                    topic_name, _, number = folder.rpartition("-")
                    path = f"{TOPICS}/{topic_id.hex()}/{number}"
                    data = self._world.committed.at(path) if topic_name == topic["name"] else None
                    if data is not None and node.node_id in json.loads(data)["replicas"]:
                        found.append((name, folder, path))
        return found


def _batches(data: bytes | None) -> list[bytes]:
    """Those at the beginning that look like some; a power cut may have left anything."""
    return list(
        takewhile(lambda batch: len(batch) >= BATCH_HEADER_SIZE, split_batches(memoryview(data or b"")))
    )


def batch_places(folder: SimulatedDirectory) -> list[tuple[int, int]]:
    """Of the last segment: offsets that batches begin with, and where."""
    segments = sorted(file for file in folder.names() if file.endswith(".log"))
    found, position = [], 0
    for batch in _batches(folder.read_whole(segments[-1])) if segments else ():
        found.append((read_header(batch).base_offset, position))
        position += len(batch)
    return found


def cut_to(folder: SimulatedDirectory, size: int) -> None:
    name = max(file for file in folder.names() if file.endswith(".log"))
    file = folder.open(name)
    file.truncate(size)
    file.sync()
    folder.sync()


def _noted(node: ClusterNode, name: str) -> int:
    """The epoch in the note of a directory."""
    note = read_note(node.disk.root.folder(name).read_whole(RUNNING))
    return note.broker_epoch if note is not None else -1


def _make_empty(node: ClusterNode, name: str) -> None:
    root = node.disk.root
    root.remove(name)
    root.folder(name)
    root.sync()
