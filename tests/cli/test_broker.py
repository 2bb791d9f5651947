"""`tidelog broker` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Tidelog
from tidelog.testing.process import BrokerProcess


def test_brokers_are_listed_with_address_and_role(tidelog: Tidelog, bootstrap_servers: str) -> None:
    (listed,) = json.loads(tidelog("broker", "list", "--format", "json").out)
    assert f"{listed['host']}:{listed['port']}" == bootstrap_servers
    assert (listed["is_controller"], listed["is_fenced"]) == (True, False)
    (line,) = [line for line in tidelog("broker", "list").lines if bootstrap_servers in line]
    assert line.split() == [str(listed["id"]), bootstrap_servers, "controller"]


def test_a_broker_tells_of_its_directories_partitions_and_features(tmp_path: Path) -> None:
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    properties = {
        "log.dirs": ",".join(folders),
        "broker.rack": "attic",
        "auto.create.topics.enable": "false",  # a client of a broker that had this port may ask for its topic
    }
    with BrokerProcess(tmp_path, properties) as broker:
        tidelog = Tidelog(broker.bootstrap_servers)
        tidelog("topic", "create", "orders", "--partitions", "4")
        tidelog("produce", "orders", "--partition", "0", stdin=b"hello\n")
        described = json.loads(tidelog("broker", "describe", "--format", "json").out)
        shown = tidelog("broker", "describe", "1")
    (found,) = described["brokers"]
    assert (found["id"], found["rack"], found["partitions"], found["leaders"]) == (1, "attic", 4, 4)
    assert described["controller_id"] == 1 and len(described["cluster_id"]) == 22
    directories = {directory["path"]: directory for directory in found["log_directories"]}
    assert sorted(directories) == folders
    assert [directories[path]["partitions"] for path in folders] == [2, 2]
    assert sum(directory["size"] for directory in directories.values()) > 0
    assert all(0 < directory["free_size"] <= directory["total_size"] for directory in directories.values())
    assert found["features"]
    assert "apis" not in found
    for words in ("broker 1 at", "attic", "4, leader of 4", *folders):
        assert words in shown.out


def test_verbose_lists_the_apis(tidelog: Tidelog) -> None:
    found = json.loads(tidelog("broker", "describe", "--verbose", "--format", "json").out)["brokers"][0]
    produce = next(api for api in found["apis"] if api["key"] == 0)
    assert produce["name"] == "Produce" and produce["newest_version"] >= 12
    assert [api["key"] for api in found["apis"]] == sorted(api["key"] for api in found["apis"])
    assert "DescribeConfigs" in tidelog("broker", "describe", "-v").out


def test_a_broker_that_is_not_there_is_named_with_those_that_are(tidelog: Tidelog) -> None:
    ended = tidelog("broker", "describe", "4711")
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert "broker 4711 is not in the cluster; its brokers are: " in ended.error
