"""Visits from one evening into the next day, the same for the streams and for the nightly loads."""

from __future__ import annotations

import pytest

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import Row


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    return oracle.some_rows(11, events=1_500, hours=9)
