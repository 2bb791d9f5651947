"""Which process of `make test` runs a test, and which tests come first.

A *turn* is what one process runs without a break: as a rule a file, so that the fixtures of a module are made
once. What a session is shared by is one turn as well: one Spark, and one JVM of Kafka's, are started in one
process, and never in the others. The tests of a file that share nothing are a turn each.

Turns begin in the order of `FIRST`, then as they were found: what takes minutes comes before what takes
milliseconds, so that no process waits long for the others at the end.

**Invariant:** a test needs nothing of another one, so turns may come in any order.
"""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK, JAVA = "spark", "java"

ALONE = (
    "tests/chaos/test_losses.py",
    "tests/sim/test_cluster.py",
    "tests/sim/test_cluster_mutants.py",
    "tests/spark/test_source_kills.py",
    "tests/spark/test_source_standalone.py",
)
"""Each test starts what it needs: Spark's own processes, or clusters."""

SHARED = (
    ("tests/spark/", SPARK),
    ("tests/compat/java/", JAVA),
    ("tests/compat/cluster/test_java_", JAVA),
)

WITHOUT_SPARK = ("tests/spark/exactly_once/",)
"""Files of Spark's folder that start none: a turn each."""

FIRST = (
    "tests/spark/",
    "tests/chaos/test_chaos.py",
    "tests/cli/test_pipeline_run.py",
    "tests/compat/java/",
    "tests/compat/cluster/test_java_",
    "tests/spark/test_source_standalone.py",
    "tests/spark/test_source_kills.py",
    "tests/differential/",
    "tests/chaos/",
    "tests/sim/test_cluster",
    "tests/compat/",
    "tests/cli/test_cluster",
    "tests/upgrade/",
    "tests/client/",
    "tests/server/stores/",
)
"""Of several starts the longest counts. Six JVMs of a standalone cluster do not begin beside all others."""


def turn_of(node_id: str) -> str:
    if node_id.startswith(ALONE):
        return node_id
    if node_id.startswith(WITHOUT_SPARK):
        return node_id.partition("::")[0]
    return next((turn for start, turn in SHARED if node_id.startswith(start)), node_id.partition("::")[0])


def place_of(node_id: str) -> int:
    starts = [start for start in FIRST if node_id.startswith(start)]
    return FIRST.index(max(starts, key=len)) if starts else len(FIRST)


class Turns(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]  # xdist has no types
    """Gives each process the next turn when it is almost through with its last one."""

    def _split_scope(self, nodeid: str) -> str:
        return turn_of(nodeid)
