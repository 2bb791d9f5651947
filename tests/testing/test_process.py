"""`BrokerProcess`: a broker to be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.testing.process import BrokerDidNotStart, BrokerProcess


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerDidNotStart, match=r"exit code 2: .*no\.such\.setting"):
        BrokerProcess(tmp_path, {"no.such.setting": "1"}).start()


def test_no_process_outlives_the_block(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert broker.is_running
    assert not broker.is_running


def test_a_paused_broker_can_be_ended(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.pause()
    assert not broker.is_running
