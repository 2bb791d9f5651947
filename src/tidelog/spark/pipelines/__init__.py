"""Prepared pipelines, each as pure functions from DataFrames to DataFrames.

`registry` lists them; `pipeline` defines the type. Nothing here depends on the source of rows: a pipeline
gets a function that reads topics into the columns of Spark's Kafka source, and returns DataFrames with their
destinations.

**Invariant:** this module imports nothing, so that the generators run without Spark.
"""
