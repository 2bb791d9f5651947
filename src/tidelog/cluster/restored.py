"""A store that was restored from a backup: the writes needed before brokers may use it again (R16).

The store does not know which replicas left an ISR after the backup, which epochs and producer ids
were allocated, and which topics and replicas were created. So none of its statements about replicas counts:
all replicas of a partition are listed as torn, no replica leads, and the longest log leads once all replicas
have answered. Every number that must not be used twice is raised beyond any value it can have reached since
the backup.

| node                       | becomes                                                                     |
|----------------------------|-----------------------------------------------------------------------------|
| `/topics/<id>/<partition>` | no leader, a far leader epoch, all replicas listed as torn, nothing flushed |
| `/brokers/epochs/<id>`     | a far epoch, trusted from there; its directories are not known              |
| `/controller-epoch`        | a far epoch                                                                 |
| `/producer-ids`            | a far next id                                                               |
| `/features`                | the newest levels: partitions recover from level 2 on                       |
| `/cluster`                 | the next generation, last of all: until then brokers refuse the store       |

**Invariant:** pure. After a partial write, everything can be decided and written again.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.base.limits import RESTORED_TOGETHER
from tidelog.cluster.facts import NOBODY, TORN_STAMP, UNFLUSHED, PartitionFacts, encode_fields
from tidelog.cluster.features import decide_first_levels
from tidelog.cluster.image import Image
from tidelog.cluster.paths import BROKER_EPOCHS, CLUSTER, CONTROLLER_EPOCH, PRODUCER_IDS
from tidelog.cluster.store import Operation, Write

EPOCH_JUMP = 1_000_000
PRODUCER_ID_JUMP = 1 << 32


def decide_restored(image: Image) -> list[list[Operation]]:
    """The multis, in the order in which to write them. No broker may be running."""
    writes = [*_partitions(image), *_brokers(image)]
    portions = [writes[at : at + RESTORED_TOGETHER] for at in range(0, len(writes), RESTORED_TOGETHER)]
    return [*portions, _last(image)]


def _partitions(image: Image) -> list[Operation]:
    return [
        Write(topic.path(index), distrusted(facts).encode(), facts.version)
        for topic in image.topics.values()
        for index, facts in topic.partitions.items()
    ]


def distrusted(facts: PartitionFacts) -> PartitionFacts:
    """Any replica may have all committed records: a torn log does not count, but may win a recovery."""
    return replace(
        facts,
        leader=NOBODY,
        leader_epoch=facts.leader_epoch + EPOCH_JUMP,
        eligible=[node_id for node_id in facts.replicas if node_id not in facts.in_sync_replicas],
        members=dict.fromkeys([*facts.in_sync_replicas, *facts.replicas], TORN_STAMP),
        answers={},
        is_unclean=False,
        flush=UNFLUSHED,
    )


def _brokers(image: Image) -> list[Operation]:
    writes: list[Operation] = []
    for node_id, known in image.broker_epochs.items():
        path, epoch = f"{BROKER_EPOCHS}/{node_id}", known.epoch + EPOCH_JUMP
        far = known._replace(epoch=epoch, trusted_since=epoch, registered=-1, notes={})
        writes.append(Write(path, far.encode(), image.versions[path]))
    return writes


def _last(image: Image) -> list[Operation]:
    fields = {
        CONTROLLER_EPOCH: encode_fields(epoch=image.controller_epoch + EPOCH_JUMP),
        PRODUCER_IDS: encode_fields(next=image.next_producer_id + PRODUCER_ID_JUMP),
        CLUSTER: encode_fields(id=image.cluster_id, generation=image.generation + 1),
    }
    levels = decide_first_levels(image, is_new=False, is_alone=True)
    return [
        *levels,
        *(Write(path, data, image.versions[path]) for path, data in fields.items() if path in image.versions),
    ]
