"""DescribeLogDirs and AlterReplicaLogDirs: where on this broker the partitions are, and may be moved to."""

from __future__ import annotations

from typing import Any

from tidelog.broker.broker import Broker
from tidelog.handlers.names import facts_of
from tidelog.handlers.request import Request, Result
from tidelog.log.directory import LogDirectory
from tidelog.log.format.names import FOLDER_NAME_LENGTH_MAX
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

UNKNOWN_SIZE = -1
FUTURE_SUFFIX_LENGTH = len(".-future") + 32  # the copy that is being made has a random name besides


def handle_describe_log_dirs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the partitions asked for (null: all) by directory, with their sizes; one that is on its
    way to another directory is shown in both.

    *Versions*: 2 is flexible; 3 adds a top-level error; 4 the size of the disk; 5 whether it takes no more.
    """
    asked = request.decode()
    wanted = None
    if asked.topics is not None:
        wanted = {(topic.topic, index) for topic in asked.topics for index in topic.partitions}
    results = tuple(_directory(broker, request, directory, wanted) for directory in broker.disks.directories)
    return request.respond(error_code=ErrorCode.none, results=results)


Wanted = set[tuple[str, int]] | None


def _directory(broker: Broker, request: Request, directory: LogDirectory, wanted: Wanted) -> Any:
    topics: dict[str, list[Any]] = {}
    error, total, usable = ErrorCode.kafka_storage_error, UNKNOWN_SIZE, UNKNOWN_SIZE
    if directory.failure is None:
        try:
            total, usable = directory.directory.space()
            error = ErrorCode.none
        except OSError as failure:
            broker.disks.fail(directory, failure)
    for partition in broker.partitions.all() if not error else ():
        if wanted is None or (partition.topic, partition.index) in wanted:
            for row in _rows(broker, request, partition, directory):
                topics.setdefault(partition.topic, []).append(row)
    return request.make(
        "DescribeLogDirsResult",
        error_code=error,
        log_dir=directory.path,
        topics=tuple(
            request.make("DescribeLogDirsTopic", name=name, partitions=tuple(rows))
            for name, rows in topics.items()
        ),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )


def _rows(broker: Broker, request: Request, partition: Partition, directory: LogDirectory) -> list[Any]:
    """The partition as far as it is in that directory: its log, or the copy that is being made."""
    log = partition.log
    move = broker.relocation.moves.of(partition)
    found = []
    if partition.directory is directory:
        found.append((log.size, 0, False))
    if move is not None and move.target is directory:
        found.append((move.copied_size, log.end_offset - move.copied_offset, True))
    return [
        request.make(
            "DescribeLogDirsPartition",
            partition_index=partition.index,
            partition_size=size,
            offset_lag=lag,
            is_future_key=is_future,
        )
        for size, lag, is_future in found
    ]


def handle_alter_replica_log_dirs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: each partition begins to move to the directory it is named under; DescribeLogDirs shows
    how far it is. The directory it is in calls a move off.

    *Versions*: 2 is flexible.
    """
    asked = request.decode()
    # A partition that is named twice goes where it is named last.
    wanted = {
        (topic.name, index): target.path
        for target in asked.dirs
        for topic in target.topics
        for index in topic.partitions
    }
    results: dict[str, list[Any]] = {}
    for (name, index), path in wanted.items():
        error = _move(broker, path, name, index)
        row = request.make("AlterReplicaLogDirPartitionResult", partition_index=index, error_code=error)
        results.setdefault(name, []).append(row)
    topics = tuple(
        request.make("AlterReplicaLogDirTopicResult", topic_name=name, partitions=tuple(rows))
        for name, rows in results.items()
    )
    return request.respond(results=topics)


def _move(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    directory = next((home for home in broker.disks.directories if home.path == path), None)
    if len(f"{topic}-{index}") + FUTURE_SUFFIX_LENGTH > FOLDER_NAME_LENGTH_MAX:
        return ErrorCode.invalid_topic_exception
    if directory is None:
        return ErrorCode.log_dir_not_found
    partition = broker.partitions.find(topic, index)
    if partition is None:
        is_elsewhere = facts_of(broker.image, topic, index) is not None
        return ErrorCode.replica_not_available if is_elsewhere else ErrorCode.unknown_topic_or_partition
    if not partition.is_open or directory.failure is not None:
        return ErrorCode.kafka_storage_error
    broker.relocation.move(partition, directory)
    return ErrorCode.none
