"""What a frame must have to be written, told by its types alone; and what a commit need not load."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, NullType, StringType, StructType

from tidelog.spark.option_rows import OptionError
from tidelog.spark.writing import check_columns

HEADER = StructType().add("key", StringType(), False).add("value", BinaryType())


def test_all_that_the_connector_takes_is_taken() -> None:
    frame = (
        StructType()
        .add("key", StringType())
        .add("value", BinaryType(), False)
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("headers", ArrayType(HEADER))
        .add("extra", LongType())
    )
    check_columns(frame, None)
    check_columns(StructType().add("key", NullType()).add("value", StringType()), "t")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (StructType().add("key", StringType()), "'value' not found"),
        (StructType().add("value", LongType()), "value attribute unsupported type bigint"),
        (StructType().add("value", StringType()).add("key", IntegerType()), "key attribute unsupported"),
        (StructType().add("value", StringType()).add("partition", LongType()), "partition must be a(n) int"),
        (StructType().add("value", StringType()).add("topic", BinaryType()), "topic must be a(n) string"),
        (StructType().add("value", StringType()).add("headers", ArrayType(StringType())), "headers must"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(frame: StructType, words: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(frame, "t")
    assert words in str(refused.value)


def test_a_topic_is_needed() -> None:
    with pytest.raises(OptionError, match="topic option required"):
        check_columns(StructType().add("value", StringType()), None)


COMMIT = """
import pickle, sys
from pyspark.sql.types import StringType, StructType
from tidelog.client.errors import TopicPartition
from tidelog.spark.source import TidelogSource
from tidelog.spark.writing import Written

source = TidelogSource({"kafka.bootstrap.servers": "nowhere:1", "topic": "clicks"})
writer = source.streamWriter(StructType().add("value", StringType()), False)
message = Written("query", "7", 0, {TopicPartition("clicks", 0): (0, 10)})
writer.commit([pickle.loads(pickle.dumps(message))], 7)
heavy = ("kio", "numba", "numpy", "ssl", "tidelog.client.connection", "tidelog.protocol")
print(*(name for name in heavy if name in sys.modules))
"""


def test_the_commit_of_a_micro_batch_loads_nothing_that_reaches_a_broker() -> None:
    program = subprocess.run([sys.executable, "-c", COMMIT], capture_output=True, text=True, check=True)
    assert program.stdout.split() == []
