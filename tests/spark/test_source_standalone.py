"""`format("tidelog")` on a cluster of Spark's own, with an executor killed while it reads and writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import NewTopic
from tests.spark.programs import PROGRAM_SECONDS_MAX, awaited, running_python
from tests.spark.queries import fill, numbered

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from tests.spark.standalone import StandaloneCluster, is_executor

PARTITIONS, RECORDS = 4, 50
# Each task stops with rows in its hands until the gate opens.
DRIVER = """
import pathlib, time
from tidelog.spark import session

spark = session(master={master!r}, config={settings!r} | {{
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}})

def stop_at_the_gate(batches):
    gate = pathlib.Path({gate!r})
    for rows in batches:
        gate.with_name(f"task-{{rows['partition'][0].as_py()}}").touch()
        while not gate.exists():
            time.sleep(0.02)
        yield rows.select(["key", "value"])

reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", {bootstrap!r})
rows = reader.option("subscribe", {source!r}).load().select("partition", "key", "value")
writer = rows.mapInArrow(stop_at_the_gate, "key binary, value binary").write.format("tidelog").mode("append")
writer.option("kafka.bootstrap.servers", {bootstrap!r}).option("topic", {target!r}).save()
reader = reader.option("kafka.isolation.level", "read_committed")
copied = reader.option("subscribe", {target!r}).load()
counts = copied.groupBy("value").count().collect()
print(*sorted(f"{{bytes(row['value']).decode()}}:{{row['count']}}" for row in counts))
spark.stop()
"""


@pytest.mark.timeout(2 * PROGRAM_SECONDS_MAX + 60)
def test_a_copy_of_a_topic_outlives_a_killed_executor(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(PARTITIONS), new_topic(PARTITIONS)
    values = {p: numbered(RECORDS, first=p * RECORDS) for p in range(PARTITIONS)}
    fill(bootstrap, source, values)
    with StandaloneCluster(tmp_path) as cluster:
        places = {"bootstrap": bootstrap, "source": source, "target": target, "gate": str(tmp_path / "gate")}
        program = DRIVER.format(master=cluster.master, settings=cluster.settings, **places)
        with running_python(program, tmp_path, cluster.environment) as driver:
            awaited(
                lambda: has_begun(tmp_path) or driver.poll() is not None,
                "the tasks do not start",
                PROGRAM_SECONDS_MAX,
            )
            assert driver.poll() is None, driver.communicate()[1][-4000:]
            killed = cluster.kill_executor()
            awaited(lambda: not is_executor(killed), "the executor goes on")
            (tmp_path / "gate").touch()
            output, errors = driver.communicate(timeout=PROGRAM_SECONDS_MAX)
    assert driver.returncode == 0, errors[-4000:]
    counts = dict(word.split(":") for word in output.split())
    assert counts == {str(number): "1" for number in range(PARTITIONS * RECORDS)}


def has_begun(folder: Path) -> bool:
    return len(list(folder.glob("task-*"))) == 2
