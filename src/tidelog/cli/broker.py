"""`tidelog broker list | describe`: the brokers of a cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer
from kio.index import KioIndexError, load_request_schema

from tidelog.cli.connection import cluster_metadata, open_admin
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import Cluster, Node, describe_cluster
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    examples,
)
from tidelog.cli.remote import RemoteBroker
from tidelog.cli.screen import console, print_json, print_table, size_text
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode

app = typer.Typer(help="Show the brokers of a cluster.")


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A folder of partitions; sizes are in bytes, -1 if unknown."""

    path: str
    error: str | None
    partitions: int
    size: int
    total_size: int
    free_size: int


@dataclass(frozen=True, slots=True)
class Feature:
    """The finalized level of a feature, and the levels that this broker supports."""

    name: str
    level: int
    oldest: int
    newest: int


@dataclass(frozen=True, slots=True)
class ServedApi:
    key: int
    name: str
    oldest_version: int
    newest_version: int


@dataclass(slots=True)
class Description:
    """One broker; if it does not answer, its own facts are empty and `error` says why."""

    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    is_fenced: bool
    partitions: int = 0
    leaders: int = 0
    log_directories: list[LogDirectory] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    apis: list[ServedApi] = field(default_factory=list)
    error: str | None = None


@app.command("list", epilog=examples("tidelog broker list"))
def list_brokers(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, format: TableOrJson = TableFormat.TABLE
) -> None:
    """List the brokers of the cluster: id, address, rack, which one is the controller."""
    cluster = describe_cluster(bootstrap_server)
    if format is TableFormat.JSON:
        keys = ("id", "host", "port", "rack", "is_controller", "is_fenced")
        rows = [asdict(_of_node(cluster, node)) for node in cluster.nodes]
        print_json([{key: row[key] for key in keys} for row in rows])
        return
    print_table(
        ("id", "address", "rack", "role"),
        [(node.id, node.address, node.rack or "", _role(cluster, node)) for node in cluster.nodes],
    )


@app.command(epilog=examples("tidelog broker describe", "tidelog broker describe 1 --verbose"))
def describe(
    broker_id: Annotated[
        int | None, typer.Argument(metavar="ID", help="One broker; without it, all.", show_default=False)
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With the APIs that the broker serves.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show a broker's partitions, log directories with their free space, and features."""
    cluster = describe_cluster(bootstrap_server)
    nodes = cluster.nodes if broker_id is None else (cluster.node(broker_id),)
    brokers = [_describe(cluster, node, verbose) for node in nodes]
    _count_partitions(bootstrap_server, brokers)
    if format is TableFormat.JSON:
        found = {"cluster_id": cluster.id, "controller_id": cluster.controller_id}
        print_json(found | {"brokers": [_json(broker, verbose) for broker in brokers]})
        return
    for broker in brokers:
        _print(cluster, broker)


def _of_node(cluster: Cluster, node: Node) -> Description:
    is_controller = node.id == cluster.controller_id
    return Description(node.id, node.host, node.port, node.rack, is_controller, node.is_fenced)


def _describe(cluster: Cluster, node: Node, verbose: bool) -> Description:
    description = _of_node(cluster, node)
    try:
        with RemoteBroker(node.address) as broker:
            answer = broker.ask(apis.DESCRIBE_LOG_DIRS, topics=None)
            description.features = _features(broker.versions)
            description.apis = _apis(broker.versions) if verbose else []
    except Failure as failure:
        if len(cluster.nodes) == 1:
            raise
        description.error = str(failure)
        return description
    description.log_directories = [_log_directory(found) for found in answer.results]
    return description


def _count_partitions(bootstrap_server: str, brokers: list[Description]) -> None:
    topics = cluster_metadata(open_admin(bootstrap_server), bootstrap_server).topics.values()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    for broker in brokers:
        broker.partitions = sum(broker.id in partition.replicas for partition in partitions)
        broker.leaders = sum(broker.id == partition.leader for partition in partitions)


def _log_directory(found: Any) -> LogDirectory:
    partitions = [partition for topic in found.topics for partition in topic.partitions]
    return LogDirectory(
        found.log_dir,
        None if found.error_code is ErrorCode.none else found.error_code.name,
        len(partitions),
        sum(partition.partition_size for partition in partitions),
        getattr(found, "total_bytes", -1),
        getattr(found, "usable_bytes", -1),
    )


def _features(versions: Any) -> list[Feature]:
    levels = {feature.name: feature.max_version_level for feature in versions.finalized_features}
    return [
        Feature(feature.name, levels.get(feature.name, 0), feature.min_version, feature.max_version)
        for feature in sorted(versions.supported_features, key=lambda feature: str(feature.name))
    ]


def _apis(versions: Any) -> list[ServedApi]:
    return [
        ServedApi(api.api_key, _api_name(api.api_key, api.max_version), api.min_version, api.max_version)
        for api in sorted(versions.api_keys, key=lambda api: int(api.api_key))
    ]


def _api_name(key: int, newest_version: int) -> str:
    for version in range(newest_version, -1, -1):
        try:
            return load_request_schema(key, version).__name__.removesuffix("Request")
        except KioIndexError:
            continue
    return ""


def _json(broker: Description, verbose: bool) -> dict[str, Any]:
    facts = asdict(broker)
    if not verbose:
        del facts["apis"]
    return facts


def _role(cluster: Cluster, node: Node) -> str:
    words = ["controller"] if node.id == cluster.controller_id else []
    return ", ".join(words + (["fenced"] if node.is_fenced else []))


def _print(cluster: Cluster, broker: Description) -> None:
    out = console()
    out.print(f"broker {broker.id} at {broker.host}:{broker.port}", style="bold", markup=False)
    controller = "this broker" if broker.is_controller else f"broker {cluster.controller_id}"
    facts = [
        ("cluster", cluster.id),
        ("controller", controller),
        ("rack", broker.rack or "none"),
        ("partitions", f"{broker.partitions}, leader of {broker.leaders}"),
    ]
    facts += [("fenced", "yes: it is shutting down or has not caught up")] if broker.is_fenced else []
    facts += [("no answer", broker.error)] if broker.error is not None else []
    for name, value in facts:
        print(f"  {name:<12} {value}")
    if broker.log_directories:
        columns = ("log directory", "partitions", "size", "free", "of")
        print_table(columns, map(_directory_row, broker.log_directories))
    if broker.features:
        features = broker.features
        rows = [(found.name, found.level, f"{found.oldest}–{found.newest}") for found in features]
        print_table(("feature", "level", "supported"), rows)
    if broker.apis:
        apis = [(api.key, api.name, f"{api.oldest_version}–{api.newest_version}") for api in broker.apis]
        print_table(("key", "API", "versions"), apis)


def _directory_row(directory: LogDirectory) -> tuple[object, ...]:
    path = directory.path if directory.error is None else f"{directory.path} ({directory.error})"
    sizes = (directory.size, directory.free_size, directory.total_size)
    return path, directory.partitions, *map(size_text, sizes)
