"""What a write of this broker's partitions checks, whatever has become of its epoch."""

from __future__ import annotations

from tests.replication.leading import image_of
from tidelog.broker.standing import NEVER_A_VERSION, Standing
from tidelog.cluster.paths import BROKER_EPOCHS
from tidelog.cluster.store import Check

PATH = f"{BROKER_EPOCHS}/1"


def test_a_write_passes_under_the_epoch_of_this_process_alone() -> None:
    image, standing = image_of(1, 2), Standing(1)
    image.versions[PATH] = 4
    standing.epoch = 1
    assert standing.check(image) == Check(PATH, 4)
    standing.epoch = 2
    assert standing.check(image) == Check(PATH, NEVER_A_VERSION)
