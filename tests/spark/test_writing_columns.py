"""What a frame must have to be written, told by its types alone."""

from __future__ import annotations

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
