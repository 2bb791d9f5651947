"""spark-sql-kafka, Spark's own Kafka connector for the JVM: its jars, for `spark.jars` of a session.

The jars come from Maven into `bench/.peers/` once, each for itself: what else they name as dependencies is in
PySpark already, or does not resolve. The connector is that of Spark 4.2, the newest that resolves, with the
Kafka client that it was built for; PySpark 4.3 runs it as it is, batch and streaming, reading and writing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from bench.peers.process import PeerMissing

VERSION = "4.2.0"
STORE = Path(__file__).resolve().parent.parent / ".peers" / f"spark-sql-kafka-{VERSION}"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidelog.bench</groupId><artifactId>spark-sql-kafka</artifactId><version>1</version>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
ITEM = (
    "<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version></artifactItem>"
)


def session_settings() -> dict[str, str]:
    """What a session is given so that it knows `format("kafka")`. Raises `PeerMissing`."""
    return {"spark.jars": ",".join(str(jar) for jar in fetch_jars())}


def fetch_jars() -> list[Path]:
    """Fetched by Maven if this is the first time; several processes may ask at once."""
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (STORE / "libs").exists():
            _fetch()
    return sorted((STORE / "libs").glob("*.jar"))


def _fetch() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing(
            f"spark-sql-kafka {VERSION} is fetched by Maven, and there is no `mvn`: install maven"
        )
    items = [ITEM.format(group=group, artifact=name, version=version) for group, name, version in ARTIFACTS]
    (STORE / "pom.xml").write_text(POM.format(items="".join(items)))
    command = [maven, "-q", "-B", "dependency:copy", "-DoutputDirectory=libs.part"]
    answer = subprocess.run(command, cwd=STORE, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise PeerMissing(f"Maven could not fetch spark-sql-kafka {VERSION}:\n{answer.stdout}{answer.stderr}")
    os.replace(STORE / "libs.part", STORE / "libs")
