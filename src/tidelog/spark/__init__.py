"""The Spark source and sink, and the pipelines built on them.

    import tidelog.spark
    spark = tidelog.spark.session()  # or, in your own session: tidelog.spark.register(spark)
    spark.read.format("tidelog").option("kafka.bootstrap.servers", "…").option("subscribe", "clicks").load()

**Invariant:** connects to brokers only through `client`, so it works with any Kafka cluster; importing it
imports no pyspark.
"""

from tidelog.spark.session import register, session
from tidelog.spark.upserts import to_topic

__all__ = ["register", "session", "to_topic"]
