"""Every bound of the system, in one place.

A setting that an operator may change is in `config`; what stands here protects the process itself.
"""

KIB = 1024
MIB = 1024 * KIB

# Connections
RECEIVE_BUFFER_SIZE = 1 * MIB  # one shared buffer: what a single read of a socket may bring
RECEIVE_LOW_WATER = 256 * KIB  # of a larger frame that has begun, read in one go if there is as much to come
FRAME_GROWTH_SIZE = 1 * MIB  # must have come of a larger frame before its announced size is believed
FRAME_BUFFERS_KEPT_SIZE = 16 * MIB  # of larger frames that were served, for the next; none of it while idle
FRAMES_BUFFERED_BYTES_MAX = 512 * MIB  # frames half received or held back, of all connections
PIPELINED_REQUESTS_MAX = 1_024  # requests of one connection that wait for an answer
UNSENT_BYTES_MAX = 8 * MIB  # answers of one connection not yet taken by the client; then it is not read
CONNECTIONS_MAX = 10_000
REFUSALS_KEPT = 64  # batches of idempotent producers that were refused on a connection
GAPS_EXCUSED_MS = 30_000  # by such a refusal, or by a leadership that has just begun
PEER_HEAD_SIZE = 64 * KIB  # what a single read of a peer's socket brings, unless a larger frame has begun
REPLICA_FETCH_GROWTH_MAX = 4  # times replica.fetch.max.bytes are asked for of a partition that gives much
PEER_UNSENT_BYTES_MAX = 256 * MIB  # frames that a peer has not taken; then its connection ends
FORWARDED_BYTES_MAX = 256 * MIB  # requests that another broker is to answer; then clients are told to retry
PEER_BUFFER_KEPT_SIZE = 4 * MIB + 64 * KIB  # of a larger frame, kept for the next
ANSWERS_PER_FLUSH = 32  # answers made before the first of them is sent
TURN_MS_MAX = 5  # of one client's pipelined requests; then the others have their turn
# One sendfile call. What fits one segment of the loopback and one of the kernel's pipes (16 pages, wherever
# the first begins) is passed on at once; larger calls are held back for more and cost four times as much.
SEND_CHUNK_SIZE = 60 * KIB
PROBE_SIZE = 1 * MIB  # how much of a file is probed for cold pages at a time
PAGE_SIZE = 4 * KIB  # of a small read: a block of an index, some headers
COLD_READ_SIZE = 256 * KIB  # what is read of a file at least when a look-up finds it cold
PAGE_PROBE_STRIDE = 256 * KIB  # how far apart a range is probed for cold pages

# Open files. Of the process's limit, connections may have one half and the files of the log the other.
OPEN_FILES_RESERVED = 96  # for the store, the listeners, and what threads open for a moment
OPEN_FILES_DEFAULT = 512  # where nobody has looked at the limit
OPEN_FILES_MIN = 16
OPEN_FILES_YIELDED = 32  # closed at once when the process has reached its limit after all
PINNED_FILES_PASSED = 64  # looked at in vain before one more is opened than there should be
COPIED_SIZE_MAX = 256 * KIB  # of a range that is copied because too many files are pinned
REPLICA_COPIED_SIZE_MAX = 16 * KIB  # of what a follower is sent in one call with what is around it

# The probe: /metrics and /health
PROBE_CONNECTIONS_MAX = 16
PROBE_HEAD_SIZE_MAX = 8 * KIB
PROBE_IDLE_SECONDS_MAX = 90  # between two requests; a scraper comes once a minute or more often
PROBE_ANSWER_SECONDS_MAX = 30

# The loop
SPIN_SECONDS = 0.000_1  # how long it looks for more before it sleeps, while that is worth it
SPIN_WORTH_MAX = 8  # looks in vain before it does no more, if all before were worth it
SPIN_AFTER_SECONDS_MAX = 0.000_2  # that a turn may have taken for it to look for more at all
SOCKETS_SECONDS_MAX = 0.002  # of turns one after the other while the rest of the loop has something to do
SOCKETS_PER_TURN = 32  # served before what follows from that is seen to
TURN_NS_LONG = 1_000_000  # the same by time: clients can go to work on their answers while others are served

# Requests
API_KEY_MAX = 127
API_VERSION_BITS = 5  # no API has more versions than these can tell apart
ARRAY_LENGTH_MAX = 100_000  # topics, partitions and all other entries of one request together
FETCH_WAIT_MS_MAX = 5 * 60 * 1_000
LISTING_WAIT_MS_MAX = 30_000  # of a ListOffsets by time
LOOKUP_WAIT_MS = 1_000  # of a fetch, at least, for what is being looked up
TOPIC_NAME_LENGTH_MAX = 249
SOFTWARE_NAME_LENGTH_MAX = 128  # of what a client says it is, kept with its connection
PARTITIONS_CREATED_MAX = 10_000  # by one request, as in Kafka; each is a folder made on the loop
PARTITIONS_SHARED_MAX = (
    3_000  # of one topic, where the store is shared: what is made at once is one change of it
)
METADATA_AT_ONCE_MAX = 200  # topics and partitions that are described before others have their turn
PARKED_REQUESTS_MAX = 100_000
PARKED_PARTITIONS_MAX = 2_000_000  # that parked requests wait for, all together
RESOLVED_SETTINGS_MAX = 4_096  # sets of topic settings that are kept resolved
CONFIG_RESOURCES_MAX = 10_000  # groups, and client metrics, that have settings of their own
CONFIG_RESOURCES_CHANGED_MAX = 1_000  # groups, and client metrics, by one request
CONFIGS_DESCRIBED_BYTES_MAX = 32 * MIB  # of one answer
SETTING_SIZE_MAX = 2**15 - 1  # of a value; a longer one could not be told in the older versions
SETTINGS_CHANGED_MAX = 1_000  # of one resource by one request
AUTO_CREATED_TOPICS_MAX = 1_000  # by one request
FETCH_SESSION_PARTITIONS_MAX = 100_000
DESCRIBED_PRODUCERS_MAX = 100_000  # in one answer
DESCRIBED_PROBLEMS_MAX = 1_000  # partitions of one answer that quote a bad name; the rest have its code

# Metrics that clients push
TELEMETRY_CLIENTS_MAX = 16_384
TELEMETRY_BYTES_MAX = 32 * MIB  # of what they said, all together
TELEMETRY_CLIENT_ID_LENGTH_MAX = 256
TELEMETRY_SERIES_MAX = 10_000  # of one client: what a push can have, and what others before it had
TELEMETRY_UNPACKED_MAX = 512 * KIB  # in a second from one address; whoever has reached it must wait
TELEMETRY_PUSHES_MAX = 2  # on one connection in an interval: the usual one and the last
OTLP_FIELDS_MAX = 40_000  # in one push; a microsecond of the loop each
OTLP_POINTS_MAX = 5_000  # in one push
OTLP_NAME_LENGTH_MAX = 256
OTLP_LABELS_MAX = 16  # of one number
PATTERN_LENGTH_MAX = 1_000  # of a pattern that came over the wire
PATTERN_MEMORY_MAX = 1 * MIB

# Groups
MATCHES_AT_ONCE_MAX = 5_000  # of a pattern with a topic's name; beyond it a group looks less often
PATTERNS_KEPT_MAX = 1_000  # whose topics are remembered
GROUP_ID_LENGTH_MAX = 2**15 - 1  # what a record's key has room for
GROUP_METADATA_SIZE_MAX = 4 * MIB  # of all protocols of one member
PENDING_MEMBERS_MAX = 10_000  # ids given out by one coordinator that nobody has joined with
PENDING_BYTES_MAX = 2 * MIB  # of those, with the names of their groups
COMMITS_MAX = 10_000  # partitions of one OffsetCommit
ENTRIES_GATHERED_MAX = 1_000  # of a journal, decided in one moment and written together
OFFSET_KEYS_KEPT = 10_000  # of pairs of group and topic, so that they need not be written again
GROUP_PROTOCOLS_MAX = 100  # that one member may know
OFFSETS_PER_PIECE = 1_000  # of one group, written anew in one go
OFFSETS_LOOKED_AT_MAX = 1_000  # in one turn, whether their time or their topic is over
JOURNAL_SLICE_SIZE = 256 * KIB  # read, or written anew, in one go
JOURNAL_ENTRIES_APPLIED = 2_000  # in one go
JOURNAL_BATCH_SIZE = 512 * KIB  # beyond which what is decided together is written in several batches
JOURNAL_RECORDS_KEPT = 100_000  # before a journal is written anew, at least

# Credentials
SCRAM_USERS_MAX = 10_000
SCRAM_USERS_CHANGED_MAX = 1_000  # by one request: keys are derived on the loop
SCRAM_USER_LENGTH_MAX = 1_024
SCRAM_SALT_SIZE_MAX = 1_024

# The log
BATCH_HEADER_SIZE = 61
RELATIVE_OFFSET_MAX = 2**31 - 1  # of a record above its segment: an index has four bytes for it
RECORD_ERRORS_MAX = 1_000  # records of one batch that are told of, each with its reason
DECOMPRESSED_SIZE_MAX = 128 * MIB  # of one batch, where its records must be looked at
RECORDS_READ_MAX = 50_000  # of one batch, on the loop, where each must be looked at
RECENT_BATCHES_PER_PRODUCER = 5
PRODUCERS_PER_PARTITION_MAX = 100_000
SCAN_CHUNK_SIZE = 1 * MIB
LOOKUP_CHUNKS_MAX = 2_048  # of 4 KiB, walked from where an index points; 40 ms of the smallest batches
SEARCH_CHUNKS = 16  # of 8 KiB, walked in one piece of a search; 1 to 2 ms of the smallest batches
SEARCHED_AT_ONCE = 256  # segments and chunks that one ListOffsets looks at before others are served
DAMAGE_TOLD_MAX = 1_000  # places that the operator has heard of
BROKEN_OFF_SIZE_MAX = 128 * MIB  # of a batch whose write a kill broke off: more than a request can bring
INDEX_TAIL_ENTRIES_MAX = 512  # index entries kept in memory before they are written
FLUSH_THREADS = 4  # fsyncs have threads of their own: acknowledgements wait for them
CLOSING_THREADS = 16  # that fsync at a clean stop; the file system makes their fsyncs durable together
FLUSHES_MAX = 64  # under way or waiting for a thread; each keeps its files open
RETENTION_SLICE = 50  # partitions that retention looks at between two turns of clients,
RETENTION_SEGMENTS_MAX = 4  # and segments that it removes there
RETENTION_FLUSHES_MAX = 8  # partitions that are being flushed for it
BACKGROUND_THREADS = 4  # removals, checkpoints, copies
COLD_READ_THREADS = 4  # pages that are not in memory
RESERVED_FOR_SIZE = 64 * KIB  # what a batch must have for blocks of the disk to be reserved for more of them
RESERVED_AHEAD_MAX = 4 * MIB  # of one file
DISK_FREE_SHARE_LOW = 0.10  # of a log directory's disk; below it the operator is warned, once
DISK_FREE_SHARE_AGAIN = 0.12  # that ends the warning: a disk at the edge is not told over and over
DISK_SPACE_INTERVAL_MS = 10_000
COPY_CHUNK_SIZE = 1 * MIB  # of a file that is copied to another directory
MOVE_REST_SIZE_MAX = (
    64 * KIB
)  # what is copied on the loop, with its fsync, when a partition changes directory
MOVE_ROUNDS_MAX = 20  # after which the rest is taken as it is
