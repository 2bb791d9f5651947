"""One broker of today on what an older one has left behind: it raises the level by itself (0008)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.awaiting import await_that
from tests.chaos.truth import NOBODY
from tests.testing.watching import TIMEOUT_S
from tests.upgrade.looking import append, check_records, committed, have_moved, leader, leader_epochs
from tests.upgrade.stored import (
    ALONE_KILLED,
    ALONE_STOPPED,
    COMMITTED,
    RECORDS,
    SETTINGS,
    SINGLE,
    TIDES,
    as_on_this_machine,
    places,
    unpack,
)
from tidelog.testing.process import BrokerProcess

LOST = (SINGLE, 0)
KEPT = [place for place in places() if place != LOST]


@pytest.mark.parametrize(
    ("archive", "has_kept_power", "leader_epoch"),
    [(ALONE_STOPPED, False, 0), (ALONE_KILLED, True, 0), (ALONE_KILLED, False, 1)],
)
def test_nothing_is_missing_and_groups_are_where_kafka_keeps_them(
    tmp_path: Path, archive: str, has_kept_power: bool, leader_epoch: int
) -> None:
    unpack(archive, tmp_path)
    if has_kept_power:
        as_on_this_machine(tmp_path)
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        servers = broker.bootstrap_servers
        check_records(servers, places())
        append(servers, places(), RECORDS)
        assert {*leader_epochs(servers, places(TIDES, SINGLE))} == {leader_epoch}
        await_that(lambda: have_moved(servers), "groups do not move", TIMEOUT_S)
        broker.kill()
        broker.start()
        check_records(servers, places(), more=1)
        assert have_moved(servers)
        assert committed(servers) == {group: {offset} for group, offset in COMMITTED.items()}


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def make_empty(folder: Path) -> None:
    """As the version before did it when the folder was missing."""
    metadata = (folder / "partition.metadata").read_bytes()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "partition.metadata").write_bytes(metadata)
    (folder / f"{0:020}.log").touch()


@pytest.mark.parametrize("lose", [remove, make_empty])
@pytest.mark.parametrize(
    ("archive", "has_kept_power"), [(ALONE_STOPPED, False), (ALONE_KILLED, True), (ALONE_KILLED, False)]
)
def test_a_log_that_is_gone_is_not_led_as_an_empty_one(
    tmp_path: Path, archive: str, has_kept_power: bool, lose: Callable[[Path], None]
) -> None:
    unpack(archive, tmp_path)
    if has_kept_power:
        as_on_this_machine(tmp_path)
    lose(tmp_path / "data" / "{}-{}".format(*LOST))
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        for _ in range(2):
            check_records(broker.bootstrap_servers, KEPT)
            assert leader(broker.bootstrap_servers, LOST) == NOBODY
            broker.kill()
            broker.start()
