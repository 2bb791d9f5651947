"""A Spark session with suitable settings, and a Java to run it.

    spark = tidelog.spark.session("my-query", master="local[4]", config={"spark.driver.memory": "4g"})

The purpose of each setting stands beside it. They are defaults: values set by `config`, `spark-submit`,
`spark-defaults.conf`, the environment or a running session are kept.

Workers talk to the JVM through Unix sockets, which Spark does not remove; on one machine they get a directory
that is removed when this process ends. On a cluster every node has its own temporary directory for them.

**Invariant:** importing this module imports no pyspark.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.java import find_java
from tidelog.spark.replanning import MARK, give_queries_own_plans

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")
LOOPBACK = "127.0.0.1"
SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
SOCKET_DIRECTORY_LENGTH_MAX = 61  # the path of a Unix socket in it has 108 bytes at most
CONSOLE_PROGRESS = "spark.ui.showConsoleProgress"
STREAMING = "org.apache.spark.sql.execution.streaming"
PUSH_DOWN = {
    # Without it Spark refuses a source with filters.
    "spark.sql.python.filterPushdown.enabled": "true",
}
SETTINGS = PUSH_DOWN | {
    # Through TCP each Python task waits about 45 ms for an acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers are forked from a process with the compiled loops loaded.
    "spark.python.daemon.module": "tidelog.spark.daemon",
    # State outside of the heap; required by `transformWithState`.
    "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
    # A record's timestamp is an instant; show it the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    CONSOLE_PROGRESS: "false",
}
# Spark puts these into the environment of a registered source when one of its streams begins. All streams
# share that map, and nothing guards it: two that began at once damaged it, and no task of either could be
# read any more. What is there from the start is only replaced.
STREAM_VARIABLES = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
LOCAL_SETTINGS = {
    # The default forks some twenty processes for each micro-batch: 40 ms on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.enabled": "false",
}


def session(
    app_name: str = "tidelog",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    is_java_install_allowed: bool = True,
) -> SparkSession:
    """The running session, or a new one, with `format("tidelog")` registered.

    `master` is Spark's; `local[*]` by default. If there is no Java 17 or newer, one is installed from PyPI,
    unless `is_java_install_allowed` or the environment forbids it.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    wanted = dict(config or {}) | ({"spark.master": master} if master else {})
    is_new = SparkContext._active_spark_context is None
    if is_new:
        taken = _launch(wanted, is_java_install_allowed=is_java_install_allowed)
        wanted.setdefault("spark.app.name", app_name)
    else:
        taken = SparkSession.builder.getOrCreate().conf.getAll
    is_local = is_local_master((taken | wanted).get("spark.master", ""))
    builder = SparkSession.builder
    for name, value in (without(default_settings(is_local=is_local), taken) | wanted).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if is_new:
        expect_the_end(spark.sparkContext._accumulatorServer)
    register(spark)
    return spark


def expect_the_end(server: BaseServer) -> None:
    """Let PySpark's accumulator server end quietly when the JVM ends first, as it may at a Ctrl-C; otherwise
    it prints a traceback."""
    tell = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            tell(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def register(spark: SparkSession) -> None:
    """Register `format("tidelog")` in this session, including filters and a plan for each query."""
    from tidelog.spark.source import TidelogSource

    for name, value in without(PUSH_DOWN, spark.conf.getAll).items():
        spark.conf.set(name, value)
    register_source(spark, TidelogSource)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    environment = spark.sparkContext.environment
    added = without(dict.fromkeys(STREAM_VARIABLES, ""), environment)
    if give_queries_own_plans(spark, source.name()):
        added |= without({MARK: "1"}, environment)
    environment.update(added)
    try:
        spark.dataSource.register(source)
    finally:
        for name in added:
            del environment[name]


def default_settings(*, is_local: bool) -> dict[str, str]:
    if not is_local:
        return dict(SETTINGS)
    # Each is a task, and for a stateful stream also a RocksDB: Spark's default of 200 is for clusters.
    shuffles = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
    return SETTINGS | LOCAL_SETTINGS | shuffles | {SOCKET_DIRECTORY: str(socket_directory())}


def without(settings: Mapping[str, str], taken: Mapping[str, str]) -> dict[str, str]:
    """The settings that have no value yet."""
    return {name: value for name, value in settings.items() if name not in taken}


def is_local_master(master: str) -> bool:
    return re.match(r"local($|\[|-cluster\[)", master) is not None


def _launch(wanted: Mapping[str, str], *, is_java_install_allowed: bool) -> dict[str, str]:
    """Start the JVM if it does not run yet; return the settings that it got from any source.

    Only the JVM knows the settings of `spark-submit` and `spark-defaults.conf`, and memory settings of
    `config` apply only at its start. So the JVM is started with them, and then asked, before there is a
    session.
    """
    from pyspark import SparkConf, SparkContext

    is_ours = "PYSPARK_GATEWAY_PORT" not in os.environ  # not `spark-submit`'s
    if is_ours and SparkContext._gateway is None:
        os.environ["JAVA_HOME"] = str(find_java(is_install_allowed=is_java_install_allowed))
        if is_local_master(declared_master(wanted) or "local"):
            # The name of this machine may not resolve.
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Otherwise workers run the first `python3` on the path, which may lack Tidelog.
    os.environ.setdefault("PYSPARK_PYTHON", wanted.get("spark.pyspark.python", sys.executable))
    with _quietly():
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(wanted.items())))
    taken = dict(SparkConf().getAll())
    if is_ours:
        taken.pop(CONSOLE_PROGRESS, None)  # set by Spark in everything that looks like a shell
    return taken


def declared_master(wanted: Mapping[str, str]) -> str | None:
    """The master, if it is set where it can be seen before the JVM runs; None if not."""
    if "spark.master" in wanted:
        return wanted["spark.master"]
    arguments = re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    if arguments:
        return arguments[1]
    return _master_of_the_defaults_file() or os.environ.get("MASTER")


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the start of this JVM, but not programs that are started later."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = quiet_options()
    try:
        yield
    finally:
        del os.environ["SPARK_SUBMIT_OPTS"]
        if before is not None:
            os.environ["SPARK_SUBMIT_OPTS"] = before


def quiet_options() -> str:
    """Options that keep the JVM quiet while it starts, unless the user has settings for its log."""
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "log4j" in options or list(_configuration_folder().glob("log4j2.*")):
        return options
    return f"{options} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}".strip()


def _configuration_folder() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf"))


def _master_of_the_defaults_file() -> str | None:
    try:
        text = (_configuration_folder() / "spark-defaults.conf").read_text()
    except OSError:
        return None
    found = re.search(r"^\s*spark\.master[\s=:]+(\S+)", text, re.MULTILINE)
    return found[1] if found else None


@cache
def socket_directory() -> Path:
    """A directory of this process for its sockets, with a short path. Removed at exit."""
    is_short = len(tempfile.gettempdir()) < SOCKET_DIRECTORY_LENGTH_MAX - len("/tidelog-spark-12345678")
    directory = Path(tempfile.mkdtemp(prefix="tidelog-spark-", dir=None if is_short else "/tmp"))
    atexit.register(_remove, directory, os.getpid())
    return directory


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(directory, ignore_errors=True)
