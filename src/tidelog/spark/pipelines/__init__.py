"""Ready pipelines: what a log is for, each as pure functions from DataFrames to DataFrames.

`registry` lists them; `pipeline` says what one is. Nothing here knows where rows come from: a pipeline is
given a function that reads topics into the columns of Spark's Kafka source, and hands back DataFrames and
where they go.

**Invariant:** this module imports nothing, so that the generators run without Spark.
"""
