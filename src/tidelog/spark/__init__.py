"""The Spark source and sink, and the pipelines built on them.

    import tidelog.spark
    spark = tidelog.spark.session()  # or, in a session of your own: tidelog.spark.register(spark)
    spark.read.format("tidelog").option("kafka.bootstrap.servers", "…").option("subscribe", "clicks").load()

**Invariant:** reaches a broker through `client` only, so that any Kafka will do; and importing it imports no
pyspark.
"""

from tidelog.spark.session import register, session
from tidelog.spark.upserts import to_topic

__all__ = ["register", "session", "to_topic"]
