"""What Spark finds by itself: with Tidelog installed, `format("tidelog")` works in every session.

Spark imports each top-level module whose name begins with `pyspark_` and registers its `DefaultSource`. If
one of them fails, Spark registers none of them and says nothing of it. So where something is missing that the
source needs, this module has a source all the same, and that one says what is missing when it is used.

**Invariant:** importing this module raises nothing, and loads neither pyarrow nor numba.
"""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql.datasource import DataSource

from tidelog.base.extras import install_command

NEEDED = ("pyarrow", "numba")


class SourceUnusable(Exception):
    """`format("tidelog")` cannot work in this Python; the message says why, and what to do."""


class UnusableSource(DataSource):
    """Stands in for the source where that cannot be loaded."""

    reason = ""

    def __init__(self, options: dict[str, str]) -> None:
        raise SourceUnusable(self.reason)

    @classmethod
    def name(cls) -> str:
        return "tidelog"


def _choose() -> type[DataSource]:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        UnusableSource.reason = (
            f'format("tidelog") needs {" and ".join(missing)}, which the Python of Spark\'s workers does not '
            f"have; there: {install_command('spark')}"
        )
        return UnusableSource
    try:
        from tidelog.spark.source import TidelogSource
    except Exception as error:  # whatever it is, the sources of others must not vanish for it
        UnusableSource.reason = f'format("tidelog") cannot be loaded: {type(error).__name__}: {error}'
        return UnusableSource
    return TidelogSource


DefaultSource = _choose()
