"""How the bounds hang together: one that is raised alone may promise what another one forbids."""

from __future__ import annotations

import pytest

from tidelog.base import limits as of
from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.base.limits import KIB, MIB
from tidelog.log.format.names import FOLDER_NAME_LENGTH_MAX

BROKER = BrokerSettings({})
TOPIC = TopicSettings(BROKER, {})
PIPE_PAGES = 16
MILLISECONDS = 1_000  # in a second
NANOSECONDS = 1_000_000  # in a millisecond

ASCENDING = {
    "a read of a socket fits the buffer, and a frame that grows the room for all": (
        of.RECEIVE_LOW_WATER,
        of.RECEIVE_BUFFER_SIZE,
        of.FRAME_GROWTH_SIZE,
        of.FRAME_BUFFERS_KEPT_SIZE,
        of.FRAMES_BUFFERED_BYTES_MAX,
    ),
    "the largest request fits the room for all frames": (
        BROKER.number("socket.request.max.bytes"),
        of.FRAMES_BUFFERED_BYTES_MAX,
    ),
    "the largest request can be forwarded": (
        BROKER.number("socket.request.max.bytes"),
        of.FORWARDED_BYTES_MAX,
        of.PEER_UNSENT_BYTES_MAX,
    ),
    "what a kill can break off is more than the largest request": (
        BROKER.number("socket.request.max.bytes"),
        of.BROKEN_OFF_SIZE_MAX,
    ),
    "one sendfile fits a pipe, wherever its first page begins": (
        of.SEND_CHUNK_SIZE,
        (PIPE_PAGES - 1) * of.PAGE_SIZE,
    ),
    "a follower's copies are the smaller ones": (of.REPLICA_COPIED_SIZE_MAX, of.COPIED_SIZE_MAX),
    "a few files may always be open": (of.OPEN_FILES_MIN, of.OPEN_FILES_YIELDED, of.OPEN_FILES_DEFAULT),
    "the loop spins for less than a turn": (
        of.SPIN_SECONDS,
        of.SPIN_AFTER_SECONDS_MAX,
        of.SOCKETS_SECONDS_MAX,
        of.TURN_MS_MAX / MILLISECONDS,
        of.TICK_MS / MILLISECONDS,
    ),
    "a turn is long before it is over": (of.TURN_NS_LONG, of.TURN_MS_MAX * NANOSECONDS),
    "partitions of one request fit its arrays": (
        of.PARTITIONS_SHARED_MAX,
        of.PARTITIONS_CREATED_MAX,
        of.ARRAY_LENGTH_MAX,
    ),
    "a session may name as many partitions as a request": (
        of.ARRAY_LENGTH_MAX,
        of.FETCH_SESSION_PARTITIONS_MAX,
        of.PARKED_PARTITIONS_MAX,
    ),
    "the requests of one connection are few of those that wait": (
        of.PIPELINED_REQUESTS_MAX,
        of.PARKED_REQUESTS_MAX,
    ),
    "a look-up waits for less than a fetch may": (of.LOOKUP_WAIT_MS, of.FETCH_WAIT_MS_MAX),
    "a silent follower is noticed before its session is given away": (
        of.FOLLOWER_SILENT_MS_MAX,
        of.SESSION_EVICTION_MS,
    ),
    "a follower is awaited for less than the pause between two waits": (
        of.FOLLOWER_AWAIT_MS_MAX,
        of.FOLLOWER_AWAIT_PAUSE_MS,
    ),
    "retries begin below the usual pause": (
        of.FETCH_BACKOFF_MS_FIRST,
        BROKER.number("replica.fetch.backoff.ms"),
    ),
    "points of a push fit what a client may have": (
        of.OTLP_POINTS_MAX,
        of.TELEMETRY_SERIES_MAX,
        of.OTLP_FIELDS_MAX,
    ),
    "a batch of a journal is one that a log takes": (of.JOURNAL_BATCH_SIZE, TOPIC.max_message_bytes),
    "so is a record with its key": (of.JOURNAL_KEY_SIZE_MAX, TOPIC.max_message_bytes),
    "groups are loaded again at growing intervals": (of.RELOAD_MS, of.RELOAD_MS_MAX),
    "patterns rest longer where they are much work": (of.PATTERNS_PAUSE_MS, of.PATTERNS_PAUSE_LONG_MS),
    "clients accept the keys that brokers do": (
        of.SCRAM_ROUNDS_MIN,
        of.SCRAM_ITERATIONS_MIN,
        of.SCRAM_ITERATIONS_MAX,
        of.SCRAM_ROUNDS_MAX,
    ),
    "a batch whose records are searched may be unpacked": (
        of.SEARCHED_BATCH_SIZE_MAX,
        of.DECOMPRESSED_SIZE_MAX,
    ),
    "a search looks at fewer records of a batch than a request": (
        of.SEARCHED_RECORDS_MAX,
        of.RECORDS_READ_MAX,
    ),
    "a walk from an index entry is longer than the interval between two": (
        TOPIC.index_interval_bytes,
        of.LOOKUP_CHUNKS_MAX * of.PAGE_SIZE,
    ),
    "a header fits the smallest chunk": (of.BATCH_HEADER_SIZE, of.PAGE_SIZE, of.HEADERS_CHUNK_SIZE),
    "a disk is said to be full before the warning ends": (of.DISK_FREE_SHARE_LOW, of.DISK_FREE_SHARE_AGAIN),
    "room is reserved for more than the batch that asks": (of.RESERVED_FOR_SIZE, of.RESERVED_AHEAD_MAX),
    "a move seals logs in some of its rounds": (of.MOVE_SEALS_MAX, of.MOVE_ROUNDS_MAX),
    "retention leaves flushes to those who wait for them": (of.RETENTION_FLUSHES_MAX, of.FLUSHES_MAX),
    "flushes under way keep all threads busy": (of.FLUSH_THREADS, of.CLOSING_THREADS, of.FLUSHES_MAX),
    "a reader keeps the buffer of what it fetches": (
        of.SPARE_SIZE_MIN,
        of.FETCH_BYTES_MIN,
        of.FETCH_BYTES,
        of.SPARE_SIZE_MAX,
    ),
    "a greeting is a small answer": (of.GREETING_SIZE_MAX, of.ANSWER_SIZE_MAX),
    "a client commits no more at once than a broker takes": (of.COMMITS_AT_ONCE, of.COMMITS_MAX),
    "headers are walked in parts of a piece": (of.SPARK_WALKED_SIZE, of.SPARK_PIECE_SIZE),
}


@pytest.mark.parametrize("claim", ASCENDING)
def test_bounds_that_depend_on_each_other_ascend(claim: str) -> None:
    numbers = ASCENDING[claim]
    assert list(numbers) == sorted(numbers)


def test_a_topic_with_its_partition_is_the_name_of_a_folder() -> None:
    assert of.TOPIC_NAME_LENGTH_MAX + len("-99999") == FOLDER_NAME_LENGTH_MAX


def test_every_field_of_a_code_has_room_for_its_kind() -> None:
    assert of.API_KEY_MAX < 2**7
    assert of.SETTING_SIZE_MAX == of.GROUP_ID_LENGTH_MAX == 2**15 - 1  # of a string with two bytes of length
    assert of.RELATIVE_OFFSET_MAX == 2**31 - 1


def test_pages_divide_what_is_read_of_a_file() -> None:
    for size in (
        of.PROBE_SIZE,
        of.COLD_READ_SIZE,
        of.PAGE_PROBE_STRIDE,
        of.SEARCH_CHUNK_SIZE,
        of.HEADERS_CHUNK_SIZE,
        of.SCAN_CHUNK_SIZE,
        of.COPY_CHUNK_SIZE,
        of.REWRITE_CHUNK_SIZE,
    ):
        assert size % of.PAGE_SIZE == 0
    assert (KIB, MIB) == (2**10, 2**20)
