"""Sessions: which settings they get, whose word counts, and what is left of them.

What can be said of one session is said of the shared one; what needs a start of its own runs as a program.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import HEAP
from tests.spark.programs import run_python
from tidelog.spark.session import (
    LOCAL_SETTINGS,
    SETTINGS,
    SOCKET_DIRECTORY,
    SOCKET_DIRECTORY_LENGTH_MAX,
    declared_master,
    default_settings,
    is_local_master,
    quiet_options,
    session,
    socket_directory,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def test_importing_the_room_imports_no_pyspark() -> None:
    program = "import sys, tidelog, tidelog.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("master", "is_local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://localhost:7077", False),
        ("yarn", False),
        ("k8s://https://local", False),
    ],
)
def test_a_local_master_is_known_by_its_name(master: str, is_local: bool) -> None:
    assert is_local_master(master) == is_local


def test_a_cluster_chooses_its_own_directories() -> None:
    assert SOCKET_DIRECTORY in default_settings(is_local=True)
    assert SOCKET_DIRECTORY not in default_settings(is_local=False)
    assert default_settings(is_local=False).keys().isdisjoint(LOCAL_SETTINGS)


def test_sockets_have_short_paths_however_long_the_temporary_directory_s_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * SOCKET_DIRECTORY_LENGTH_MAX)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    directory = socket_directory.__wrapped__()
    assert len(str(directory)) <= SOCKET_DIRECTORY_LENGTH_MAX
    directory.rmdir()


@pytest.fixture
def nobody_s_word(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER")
    for name in names:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody_s_word")
def test_a_master_is_heard_wherever_it_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert declared_master({}) is None
    monkeypatch.setenv("MASTER", "by variable")
    assert declared_master({}) == "by variable"
    (tmp_path / "spark-defaults.conf").write_text(
        "#spark.master no\nspark.mastery no\nspark.master   by-file\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert declared_master({}) == "by-file"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master by-argument pyspark-shell")
    assert declared_master({}) == "by-argument"
    assert declared_master({"spark.master": "by config"}) == "by config"


@pytest.mark.usefixtures("nobody_s_word")
def test_a_log_that_somebody_set_up_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    assert quiet_options().startswith("-Da=b -Dlog4j2.configurationFile=file:/")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "log4j2.xml").touch()
    assert quiet_options() == "-Da=b"
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dlog4j2.level=INFO")
    assert quiet_options() == "-Dlog4j2.level=INFO"


def test_a_session_has_the_settings_that_matter(spark: SparkSession) -> None:
    expected = SETTINGS | LOCAL_SETTINGS | {SOCKET_DIRECTORY: str(socket_directory())}
    assert {name: spark.conf.get(name) for name in expected} == expected
    assert spark.sparkContext.pythonExec == sys.executable
    assert spark.conf.get("spark.driver.memory") == HEAP
    assert spark.conf.get("spark.driver.host") in ("127.0.0.1", "localhost")


def test_python_tasks_talk_through_unix_sockets(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([1, 2]).map(lambda number: number + 1).sum() == 5
    assert list(socket_directory().glob(".*.sock"))


@pytest.mark.parametrize(
    ("error", "is_told"), [(EOFError, False), (BrokenPipeError, False), (ValueError, True)]
)
def test_the_end_of_the_jvm_prints_no_traceback(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], error: type[Exception], is_told: bool
) -> None:
    server = spark.sparkContext._accumulatorServer
    try:
        raise error
    except error:
        with socket.socket() as request:
            server.handle_error(request, "")
    assert bool(capsys.readouterr().err) is is_told


def test_a_running_session_keeps_what_was_set_and_takes_what_is_asked(spark: SparkSession) -> None:
    kept = {"spark.sql.session.timeZone": "Europe/Rome", "spark.sql.shuffle.partitions": "2"}
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Rome")
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
        again = session("another", master="local[1]", config={"spark.sql.ansi.enabled": "false"})
        assert again is spark
        assert {name: spark.conf.get(name) for name in kept} == kept
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
        assert spark.conf.get("spark.sql.streaming.stateStore.providerClass") == ROCKSDB
        assert spark.sparkContext.master == "local[2]"
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        for name, value in SETTINGS.items():
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)


OWN_WORDS = """
import os
from tidelog.spark import session
spark = session("mine", config={"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.memory": "512m"})
names = ["spark.app.name", "spark.master", "spark.sql.session.timeZone", "spark.ui.showConsoleProgress",
         "spark.sql.streaming.stateStore.providerClass", "spark.log.level", "spark.driver.memory"]
for name in names:
    print(name, spark.conf.get(name))
print("python", spark.sparkContext.pythonExec)
print("sockets", spark.conf.get("spark.python.unix.domain.socket.dir"))
print("heap", spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20)
assert spark.range(10).count() == 10
assert "SPARK_SUBMIT_OPTS" not in os.environ
spark.stop()
"""


def test_what_the_user_said_stays(tmp_path: Path) -> None:
    """By `config`, `spark-defaults.conf`, and the environment; and nothing is left behind."""
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.sql.session.timeZone Europe/Rome\nspark.log.level FATAL\n"
    )
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    environment = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": str(python)}
    output = run_python(OWN_WORDS, tmp_path, environment, without=("SPARK_SUBMIT_OPTS",))
    said = dict(line.split(" ", 1) for line in output.splitlines())
    sockets = said.pop("sockets")
    assert not os.path.exists(sockets)
    assert 400 < int(said.pop("heap")) <= 512
    assert said == {
        "spark.app.name": "mine",
        "spark.master": "local[1]",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.log.level": "FATAL",
        "spark.driver.memory": "512m",
        "python": str(python),
    }
