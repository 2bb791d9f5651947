"""How a session comes to know `format("tidelog")`: by `register`, by a module's name, and if it cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.client import Sent
from tests.compat.confluent.driver import Confluent
from tests.soak import is_soak
from tests.spark.programs import run_python
from tests.spark.queries import run_available, stream
from tidelog.spark import register
from tidelog.spark.session import STREAM_VARIABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
PLAIN_SESSION = """
import os, sys
os.environ |= {{"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}}
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").getOrCreate()
reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", {bootstrap!r})
reader = reader.option("subscribe", {topic!r})
"""
READ = """
print(*[bytes(row.value).decode() for row in reader.load().collect()])
spark.stop()
"""
READ_WITHOUT = """
print(spark.read.format("other").load().collect()[0].a)
try:
    reader.load().collect()
except Exception as error:
    print(str(error).replace(chr(10), " "))
spark.stop()
"""
OTHER_SOURCE = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        yield (7,)

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"

    def schema(self):
        return "a int"

    def reader(self, schema):
        return Reader()
"""
# Run by every Python with this folder on its path: as if the package had not been installed.
HIDE_NUMBA = """
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] == "numba" else found(name, *rest)
"""


def test_registering_is_enough_for_a_session_of_ones_own(
    spark: SparkSession, bootstrap: str, topic: str, client: Confluent
) -> None:
    own = spark.newSession()
    own.conf.set(PUSH_DOWN, "false")
    client.produce(topic, [Sent(b"one"), Sent(b"two")])
    register(own)
    register(own)
    reader = own.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).load().collect()
    assert [bytes(row.value) for row in rows] == [b"one", b"two"]
    assert own.conf.get(PUSH_DOWN) == "false", "what somebody set stays"


def test_a_stream_adds_no_variable_to_the_map_that_it_shares_with_others(
    spark: SparkSession, bootstrap: str, topic: str, client: Confluent, tmp_path: Path
) -> None:
    """Nothing guards that map: of two streams that began at once no task could be read any more."""
    own = spark.newSession()
    register(own)
    client.produce(topic, [Sent(b"one")])
    source = own._jsparkSession.sessionState().dataSourceManager().lookupDataSource("tidelog").dataSourceCls()
    names = set(source.envVars())
    run_available(stream(own, "tidelog", bootstrap, subscribe=topic), tmp_path)
    assert set(source.envVars()) == names
    assert not set(STREAM_VARIABLES) & set(spark.sparkContext.environment), "those of others stay as they are"


def test_a_session_that_nobody_registered_finds_it_by_its_name(
    spark: SparkSession, bootstrap: str, topic: str, client: Confluent
) -> None:
    client.produce(topic, [Sent(b"one"), Sent(b"two")])
    reader = spark.newSession().read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).load().collect()
    assert [bytes(row.value) for row in rows] == [b"one", b"two"]


@pytest.mark.soak
@pytest.mark.skipif(not is_soak(), reason="a JVM of its own: in the soak; the one above is in every run")
def test_an_installed_tidelog_is_found_by_its_name(
    bootstrap: str, topic: str, client: Confluent, tmp_path: Path
) -> None:
    client.produce(topic, [Sent(b"one"), Sent(b"two")])
    program = PLAIN_SESSION.format(bootstrap=bootstrap, topic=topic) + READ
    assert run_python(program, tmp_path).split() == ["one", "two"]


@pytest.mark.soak
@pytest.mark.skipif(not is_soak(), reason="a JVM of its own: in the soak; the two below are in every run")
def test_what_is_missing_is_named_and_other_sources_go_on(bootstrap: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark_other.py").write_text(OTHER_SOURCE)
    (tmp_path / "sitecustomize.py").write_text(HIDE_NUMBA)
    program = PLAIN_SESSION.format(bootstrap=bootstrap, topic=topic) + READ_WITHOUT
    output = run_python(program, tmp_path, {"PYTHONPATH": str(tmp_path)})
    other, said = output.splitlines()
    assert other == "7"
    assert "needs numba" in said and "pip install pyspark==" in said


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark_tidelog = pytest.importorskip("pyspark_tidelog", reason="PySpark is not installed")
    found = pyspark_tidelog.find_spec
    monkeypatch.setattr(pyspark_tidelog, "find_spec", lambda name: None if name == "numba" else found(name))
    source = pyspark_tidelog._choose()
    assert source.name() == "tidelog"
    with pytest.raises(pyspark_tidelog.SourceUnusable, match=r"needs numba, .* pip install pyspark=="):
        source({})


def test_a_source_that_cannot_be_loaded_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pyspark_tidelog = pytest.importorskip("pyspark_tidelog", reason="PySpark is not installed")
    monkeypatch.setitem(sys.modules, "tidelog.spark.source", None)
    source = pyspark_tidelog._choose()
    assert source.name() == "tidelog"
    with pytest.raises(pyspark_tidelog.SourceUnusable, match=r"cannot be loaded: .*tidelog\.spark\.source"):
        source({})
