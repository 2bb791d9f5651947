"""The partition that keeps a name, against a table that Java has made (`java/Hashes.java`)."""

from __future__ import annotations

import json
from pathlib import Path

from tidelog.base.hashing import java_hash, partition_of_name

TABLE = json.loads((Path(__file__).parent / "java" / "hashes.json").read_text())


def name_of(row: dict[str, object]) -> str:
    """JSON has the UTF-16 units of names; one that repeats a letter is told by how often."""
    name = row["name"]
    return name if isinstance(name, str) else name[0] * name[1]  # type: ignore[index]


def test_hashes_and_partitions_are_what_java_makes_of_them() -> None:
    assert len(TABLE) == 200
    assert sum(row["hash"] < 0 for row in TABLE) > 80
    for row in TABLE:
        name = name_of(row)
        assert java_hash(name) == row["hash"], name
        of_counts = [partition_of_name(name, count) for count in (50, 7, 1)]
        assert of_counts == [row["of_50"], row["of_7"], row["of_1"]], name


def test_the_least_hash_of_all_has_the_first_partition() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_of_name("polygenelubricants", 50) == 0


def test_a_name_is_hashed_by_its_utf_16_units() -> None:
    assert java_hash("\U0001f600") == java_hash("\ud83d\ude00")
