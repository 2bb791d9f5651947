"""spark-sql-kafka, Spark's own Kafka connector for the JVM: its jars, for `spark.jars` of a session.

The jars come from Maven into `bench/.peers/` once, each for itself: what else they name as dependencies is in
PySpark already, or does not resolve. The connector is that of Spark 4.2, the newest that resolves, with the
Kafka client that it was built for; PySpark 4.3 runs it as it is, batch and streaming, reading and writing.
"""

from __future__ import annotations

from pathlib import Path

from bench.peers.artifacts import fetch_artifacts

VERSION = "4.2.0"
STORE = Path(__file__).resolve().parent.parent / ".peers" / f"spark-sql-kafka-{VERSION}"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


def session_settings() -> dict[str, str]:
    """What a session is given so that it knows `format("kafka")`. Raises `PeerMissing`."""
    return {"spark.jars": ",".join(str(jar) for jar in fetch_jars())}


def fetch_jars() -> list[Path]:
    """Fetched by Maven if this is the first time."""
    return fetch_artifacts(STORE, f"spark-sql-kafka {VERSION}", ARTIFACTS)
