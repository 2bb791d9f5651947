"""The rule that gives each query a plan of its own is in a session once, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.spark import replanning
from tidelog.spark.replanning import MARK, RULE, give_queries_own_plans
from tidelog.spark.session import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rules(spark: SparkSession) -> list[str]:
    found = spark._jsparkSession.experimental().extraOptimizations()
    return [found.apply(index).getClass().getName() for index in range(found.size())]


def test_a_session_that_is_registered_again_has_the_rule_once(spark: SparkSession) -> None:
    own = spark.newSession()
    for _ in range(2):
        register(own)
    assert rules(own) == [RULE]
    assert MARK not in own.sparkContext.environment, "only the source's processes are told"


def test_a_spark_of_another_form_goes_without_the_rule(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = spark.newSession()
    monkeypatch.setattr(replanning, "JAVA", "public class OwnPlans extends there.is.no.such.Rule {}")
    assert not give_queries_own_plans(own, "tidelog")
    assert rules(own) == []
