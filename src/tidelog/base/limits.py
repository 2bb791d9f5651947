"""Every bound of the system, in one place: queues, caches, buffers, requests, waits, portions of work.

A setting that an operator may change is in `config`; what stands here protects the process itself. What a
format or a protocol fixes stands where it is read.

**Invariant:** each has its reason beside it; `tests/base/test_limits.py` has what must hold between them.
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
SEND_BUFFERS_MAX = 64  # that one sendmsg is given
CONNECTIONS_MAX = 10_000  # of clients; each has a socket and some KiB
REFUSALS_KEPT = 64  # batches of idempotent producers that were refused on a connection
GAPS_EXCUSED_MS = 30_000  # by such a refusal, or by a leadership that has just begun
PEER_UNSENT_BYTES_MAX = 256 * MIB  # frames that a peer has not taken; then its connection ends
PEER_CONNECT_SECONDS_MAX = 5.0  # for a connection to another broker
FORWARDED_BYTES_MAX = 256 * MIB  # requests that another broker is to answer; then clients are told to retry
PEER_BUFFER_KEPT_SIZE = 4 * MIB + 64 * KIB  # of a larger frame, kept for the next
ANSWERS_PER_FLUSH = 32  # answers made before the first of them is sent
TURN_MS_MAX = 5  # of one client's pipelined requests; then the others have their turn
STORE_TURN_MS_MAX = 5  # of replies of the store, the same
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
OPEN_FILES_MIN = 16  # of the log: a segment and its indexes are open together
OPEN_FILES_YIELDED = 32  # closed at once when the process has reached its limit after all
PINNED_FILES_PASSED = 64  # looked at without success before one more is opened than there should be
COPIED_SIZE_MAX = 256 * KIB  # of a range that is copied because too many files are pinned

# The probe: /metrics and /health
PROBE_CONNECTIONS_MAX = 16  # of scrapers: few, and each is served at once
PROBE_HEAD_SIZE_MAX = 8 * KIB  # of one request's head
PROBE_IDLE_SECONDS_MAX = 90  # between two requests; a scraper comes once a minute or more often
PROBE_ANSWER_SECONDS_MAX = 30  # for a scraper to take an answer
SERIES_PER_PIECE = 250  # made before the loop goes on

# The loop
SPIN_SECONDS = 0.000_1  # how long it looks for more before it sleeps, while that is worth it
SPIN_WORTH_MAX = 8  # empty looks in a row before it stops, if all before were worth it
SPIN_AFTER_SECONDS_MAX = 0.000_2  # that a turn may have taken for it to look for more at all
SOCKETS_SECONDS_MAX = 0.002  # of turns one after the other while the rest of the loop has something to do
SOCKETS_PER_TURN = 32  # served before what follows from that is seen to
TURN_NS_LONG = 1_000_000  # the same by time: clients can go to work on their answers while others are served
STALE_TIMERS_KEPT_MAX = 64  # timers that were set once more or cleared, beyond as many as are set
TICK_MS = 100  # between two ticks, or sooner: when a deadline comes, or a session of a group ends
HAND_OVER_SECONDS_MAX = 15.0  # of a stop, for other brokers to lead what is led here

# Requests
API_KEY_MAX = 127  # above all that Kafka has; there is a counter for each
API_VERSION_BITS = 5  # no API has more versions than these can tell apart
ARRAY_LENGTH_MAX = 100_000  # topics, partitions and all other entries of one request together
TOPIC_NAME_LENGTH_MAX = 249  # Kafka's: with the partition it must be the name of a folder
SOFTWARE_NAME_LENGTH_MAX = 128  # of what a client says it is, kept with its connection
PARTITIONS_CREATED_MAX = 10_000  # by one request, as in Kafka; each is a folder made on the loop
PARTITIONS_SHARED_MAX = 3_000  # of one topic where the store is shared: all are made in one change of it
METADATA_AT_ONCE_MAX = 200  # topics and partitions that are described before others have their turn
PARKED_REQUESTS_MAX = 100_000  # of all connections; then a request is answered without a wait
PARKED_PARTITIONS_MAX = 2_000_000  # that parked requests wait for, all together
RESOLVED_SETTINGS_MAX = 4_096  # sets of topic settings that are kept resolved
CONFIG_RESOURCES_MAX = 10_000  # groups, and client metrics, that have settings of their own
CONFIG_RESOURCES_CHANGED_MAX = 1_000  # groups, and client metrics, by one request
CONFIGS_DESCRIBED_BYTES_MAX = 32 * MIB  # of one answer
SETTING_SIZE_MAX = 2**15 - 1  # of a value; a longer one could not be told in the older versions
SETTINGS_CHANGED_MAX = 1_000  # of one resource by one request
AUTO_CREATED_TOPICS_MAX = 1_000  # by one request
FETCH_SESSION_PARTITIONS_MAX = 100_000  # of one session, as of one request
SESSION_EVICTION_MS = 120_000  # of an unused fetch session, before another client may have its place
DESCRIBED_PRODUCERS_MAX = 100_000  # in one answer
DESCRIBED_PROBLEMS_MAX = 1_000  # partitions of one answer that quote a bad name; the rest have its code
PRODUCE_FRAMES_CACHED_MAX = 20_000  # topics whose Produce answers are kept prepared
NAMES_CACHED_MAX = 20_000  # topic names kept decoded
GONE_SEATS_KEPT_MAX = 64  # of answered requests in the queue of deadlines, beyond as many as wait
RESOURCE_NAME_LENGTH_MAX = 1_000  # of a resource whose settings are changed
MESSAGE_LENGTH_MAX = 1_000  # of an error message: it quotes what the client sent, and that may be 32 KB long

# Waits of requests
FETCH_WAIT_MS_MAX = 5 * 60 * 1_000  # whatever a client asks for; a request that is parked has memory
LISTING_WAIT_MS_MAX = 30_000  # of a ListOffsets by time
LOOKUP_WAIT_MS = 1_000  # of a fetch, at least, for what is being looked up
GROUP_WAIT_MS_MAX = 24 * 60 * 60 * 1_000  # a group decides when to answer its members; this is for the worst
AUTO_CREATE_WAIT_MS = 5_000  # for a topic that a Metadata request makes
METADATA_WAIT_MS = 30_000  # for the turns of a description; then the rest of it is made in one go
ALTER_WAIT_MS = 30_000  # for the store to confirm settings: the request has no timeout
UNREGISTER_WAIT_MS = 30_000  # for the store: the request has no timeout
ELECTION_WAIT_MS = 30_000  # at most, and if the request names no timeout
PRODUCER_ID_WAIT_MS = 10_000  # for a block of ids, from the store
GROUPS_TOPIC_WAIT_MS = 10_000  # for the topic of the groups to be made
SCRAM_WAIT_MS = 10_000  # for the store: these requests have no timeout of their own
FORWARD_WAIT_MS = 30_000  # for the controller, where a request has no timeout of its own
CONTROLLER_WAIT_MS = 1_000  # for the controller itself to say that a client's time is over

# Metrics that clients push
TELEMETRY_CLIENTS_MAX = 16_384  # then the one that was added first is forgotten
TELEMETRY_BYTES_MAX = 32 * MIB  # of what they said, all together
TELEMETRY_CLIENT_ID_LENGTH_MAX = 256  # of what describes a client, on every series of it; the rest is cut off
TELEMETRY_SERIES_MAX = 10_000  # of one client: what a push can have, and what others before it had
TELEMETRY_UNPACKED_MAX = 512 * KIB  # in a second from one address; a client that has reached it must wait
TELEMETRY_PUSHES_MAX = 2  # on one connection in an interval: the usual one and the last
OTLP_FIELDS_MAX = 40_000  # in one push; a microsecond of the loop each
OTLP_POINTS_MAX = 5_000  # in one push
OTLP_NAME_LENGTH_MAX = 256  # of a text in a push: a name, a label; the rest is cut off
OTLP_LABELS_MAX = 16  # of one number
PATTERN_LENGTH_MAX = 1_000  # of a pattern that came over the wire
PATTERN_MEMORY_MAX = 1 * MIB  # of one pattern, as re2 has compiled it
TELEMETRY_KEPT_MS_MIN = 60_000  # of a client that is silent, or three of its intervals

# Groups
MATCHES_AT_ONCE_MAX = 5_000  # of a pattern with a topic's name; beyond it a group looks less often
PATTERNS_PAUSE_MS = 1_000  # between two looks at all topics, where that is little work
PATTERNS_PAUSE_LONG_MS = 10_000  # and where it is more than MATCHES_AT_ONCE_MAX
PATTERNS_KEPT_MAX = 1_000  # whose topics are remembered
GROUP_ID_LENGTH_MAX = 2**15 - 1  # what a record's key has room for
GROUP_METADATA_SIZE_MAX = 4 * MIB  # of all protocols of one member
MEMBER_NAME_LENGTH_MAX = 1_000  # of what a member id begins with
PENDING_MEMBERS_MAX = 10_000  # ids given out by one coordinator that nobody has joined with
PENDING_BYTES_MAX = 2 * MIB  # of those, with the names of their groups
NEW_MEMBER_WAIT_MS_MAX = 5 * 60 * 1_000  # of a member for its first rebalance
COMMITS_MAX = 10_000  # partitions of one OffsetCommit
ENTRIES_GATHERED_MAX = 1_000  # of a journal, decided in one moment and written together
OFFSET_KEYS_KEPT = 10_000  # of pairs of group and topic, so that they need not be written again
GROUP_PROTOCOLS_MAX = 100  # that one member may know
OFFSETS_PER_PIECE = 1_000  # of one group, rewritten in one go
OFFSETS_LOOKED_AT_MAX = 1_000  # in one turn, whether their time or their topic is over
EXPIRY_PAUSE_MS = 100  # between two portions of offsets that expire
JOURNAL_SLICE_SIZE = 256 * KIB  # read, or rewritten, in one go
JOURNAL_ENTRIES_APPLIED = 2_000  # in one go
JOURNAL_BATCH_SIZE = 512 * KIB  # beyond which what is decided together is written in several batches
JOURNAL_RECORDS_KEPT = 100_000  # before a journal is rewritten, at least
JOURNAL_GROWTH_MAX = 4  # records for each that is kept, before a journal is rewritten
JOURNAL_KEY_SIZE_MAX = 8 * KIB  # of a record's key, where nobody means harm
RELOAD_MS = 1_000  # after groups could not go on as they were loaded, times the square of how often
RELOAD_MS_MAX = 60_000  # however often they could not
HASHED_NAMES_KEPT = 1_000  # of groups, with the partitions that keep them
ASSIGNMENT_PASSES_MAX = 16  # over the pools of topics: to even out one may upset another
ASSIGNMENT_STEPS_MAX = 250_000  # of all searches in one assignment: some 50 ms

# Transactions
TRANSACTIONAL_ID_SIZE_MAX = 2**15 - 1  # what a record's key has room for
TRANSACTIONS_PER_PIECE = 500  # rewritten, or asked whether they have expired, in one go
END_WAIT_MS_MAX = 1_000  # of an EndTxn, after its decision, for the markers
RETRY_MS = 1_000  # after a timer's decision could not be kept, or lacked a producer id
TRANSACTION_WAIT_MS = (
    10_000  # for what a coordinator decides to be replicated; then clients are told to retry
)
HELD_BYTES_MAX = 64 * MIB  # copies of batches that wait for their coordinator; then clients are told to retry
HELD_OVERHEAD_SIZE = 1 * KIB  # what one of them costs besides its bytes
VERIFY_WAIT_MS = 5_000  # for a coordinator's answer; twice as long as one may be held for markers
MARKER_WAIT_MS = 1_000  # for the markers of one request to be replicated: later ones are answered behind it
MARKER_ANSWER_MS_MAX = 5_000  # for the answer to it
MARKERS_PER_FRAME_MAX = 10_000  # of one request: a marker for one partition
TRANSACTIONS_TOLD_MAX = 10_000  # ids that one DescribeTransactions asks for
MARKER_PAUSE_MS, MARKER_PAUSE_MS_MAX = 50, 1_000  # before markers are sent again; it doubles

# Quotas
QUOTA_ENTITIES_MAX = 10_000  # all are in memory
QUOTA_ENTITIES_CHANGED_MAX = 1_000  # by one request, in one multi
QUOTA_NAME_LENGTH_MAX = 256  # of a user or client id; longer ones that begin alike share what they have
QUOTA_USES_MAX = 20_000  # what is measured of clients and addresses; beyond it newcomers share
QUOTA_SWEEP_MS = 1_000  # between two looks for uses that are as good as new, while there is no room
QUOTA_USE_KEPT_MS = 3_600_000  # of a client that is silent, as in Kafka
QUOTA_HEADER_SIZE_MAX = 512  # of a client id that a connection remembers; a longer one is looked up each time
THROTTLE_MS_MAX = 2**31 - 1  # what an answer has room for
FETCHED_PARTITION_SIZE = 64  # of an answer, about, besides the records
MUTE_LOOK_MS = 5_000  # between two looks whether a client that is not read has gone
THROTTLED_CONNECTIONS_MAX = 256  # refused, and kept until it is time to close them

# Credentials
SCRAM_USERS_MAX = 10_000  # all are in memory
SCRAM_USERS_CHANGED_MAX = 1_000  # by one request: keys are derived on the loop
SCRAM_USER_LENGTH_MAX = 1_024  # of a name
SCRAM_SALT_SIZE_MAX = 1_024  # of a salt, which is kept with the key
SCRAM_ITERATIONS_MIN = 4_096  # of a key's derivation; Kafka's bounds
SCRAM_ITERATIONS_MAX = 16_384  # the same: clients derive the key at every login

# The log
BATCH_HEADER_SIZE = 61  # of a batch of magic 2
RELATIVE_OFFSET_MAX = 2**31 - 1  # of a record above its segment: an index has four bytes for it
RECORD_ERRORS_MAX = 1_000  # records of one batch that are reported, each with its reason
DECOMPRESSED_SIZE_MAX = 128 * MIB  # of one batch, where its records must be looked at
RECORDS_READ_MAX = 50_000  # of one batch, on the loop, where each must be looked at
RECENT_BATCHES_PER_PRODUCER = 5  # that a repeat is recognised by: what Kafka's producers have in flight
INDEX_ENTRIES_REFILLED = 64  # before a snapshot: their batches are recognised if they are sent again
PRODUCERS_PER_PARTITION_MAX = 100_000  # then the one that has been silent for longest is forgotten
MARKER_SIZE = 78  # of a batch with the marker that ends a transaction
MARKERS_PER_WRITE_MAX = 1_000  # 78 kB: a write that takes as long as one large batch of a producer
SCAN_CHUNK_SIZE = 1 * MIB  # read at a time where batches are checked
HEADERS_CHUNK_SIZE = 8 * KIB  # read at a time where headers alone are wanted
LOOKUP_CHUNKS_MAX = 2_048  # of 4 KiB, walked from where an index points; 40 ms of the smallest batches
DENSE_BATCHES_MAX = 16  # of a segment beside a gap, that are searched for gaps within it
INDEX_ENTRIES_TRIED = 64  # of a damaged index, before a walk begins at the segment's first batch
SEARCH_CHUNKS = 16  # walked in one piece of a search; 1 to 2 ms of the smallest batches
SEARCH_CHUNK_SIZE = 8 * KIB  # of each
SEARCHED_BATCH_SIZE_MAX = 4 * MIB  # of a batch, stored and unpacked, whose records a search by time reads
SEARCHED_RECORDS_MAX = 10_000  # of one batch, by a search by time; 10 ms
SEARCHED_AT_ONCE = 256  # segments and chunks that one ListOffsets looks at before others are served
BROKEN_OFF_SIZE_MAX = 128 * MIB  # of a batch whose write a kill broke off: more than a request can bring
REWRITE_CHUNK_SIZE = 1 * MIB  # of what is written once more, after a kill, in one go
BAD_BATCHES_MAX = 20  # of one segment that is checked; then the rest of it is not looked at
CLEANED_WRITE_SIZE = 1 * MIB  # of compaction's output, gathered before it is written
CLEANED_SYNC_SIZE = 64 * MIB  # of it, between two fsyncs: one of a gigabyte would hold up the others'
INDEX_TAIL_ENTRIES_MAX = 512  # index entries kept in memory before they are written

# Disks
RESERVED_FOR_SIZE = 64 * KIB  # what a batch must have for blocks of the disk to be reserved for more of them
RESERVED_AHEAD_MAX = 4 * MIB  # of one file
DISK_FREE_SHARE_LOW = 0.10  # of a log directory's disk; below it the operator is warned, once
DISK_FREE_SHARE_AGAIN = 0.12  # that ends the warning: a disk at the edge is not told over and over
DISK_SPACE_INTERVAL_MS = 10_000  # between two looks at the disks
COPY_CHUNK_SIZE = 1 * MIB  # of a file that is copied to another directory
MOVE_REST_SIZE_MAX = 64 * KIB  # copied on the loop, with its fsync, when a partition changes directory
MOVE_SEALS_MAX = 10  # rounds that roll the log, so that little of it is read again on the loop
MOVE_ROUNDS_MAX = 20  # after which the rest is taken as it is

# Threads and what they do
FLUSH_THREADS = 4  # fsyncs have threads of their own: acknowledgements wait for them
CLOSING_THREADS = 16  # that fsync at a clean stop; the file system makes their fsyncs durable together
FLUSHES_MAX = 64  # under way or waiting for a thread; each keeps its files open
BACKGROUND_THREADS = 4  # removals, checkpoints, copies
COLD_READ_THREADS = 4  # pages that are not in memory
RETENTION_SLICE = 50  # partitions that retention looks at between two turns of clients,
RETENTION_SEGMENTS_MAX = 4  # and segments that it removes there
ASSESSED_SLICE = 50  # compacted partitions that are assessed between two turns of clients
RETENTION_FLUSHES_MAX = 8  # partitions that are being flushed for it
TRIMS_KEPT_MS = 1_000  # how long a deletion of records may be known to memory alone

# The store
RESTORED_TOGETHER = 500  # nodes of a restored store that one multi changes
STORE_ANSWER_SECONDS_MAX = 30.0  # for one answer of ZooKeeper
STORE_READS_TOGETHER = 1_000  # nodes asked for before the first answer is awaited
STORE_MULTI_SIZE_MAX = 900_000  # bytes: ZooKeeper drops a connection that sends more than its jute.maxbuffer
STORE_REQUESTS_TOGETHER_MAX = 100  # in one transaction of SQLite, with one fsync
STORE_ROWS_TOGETHER_MAX = 1_000  # in one statement; SQLite bounds its variables
STORE_CHANGE_ATTEMPTS_MAX = 10  # as many brokers may want the same at the same moment, and each gets it
STATED_TOGETHER = 500  # replicas whose losses and ends one multi states
RENEWED_TOGETHER = 1_000  # nodes that a registration writes in one multi
ELECTIONS_TOGETHER = 500  # partitions whose leader or replicas one multi changes
NOTICES_DELETED_TOGETHER = 500  # old notices that one multi deletes
UNCLEAN_WAIT_MS_MAX = 30_000  # of a request, for replicas to state their ends and one to lead
NOTICES_KEPT = 1_000  # a broker that missed more of them reads the whole tree
RETURN_WAIT_MS = 3_000  # for brokers whose sessions have ended with ours to come back
FAILURE_STATED_MS_MAX = 5_000  # after the last directory has failed, until the broker ends all the same

# Replication
FOLLOWER_AWAIT_MS_MAX = 500  # for a follower that is about to join the ISR; writes are held back that long
FOLLOWER_AWAIT_PAUSE_MS = 2_000  # before one is awaited again
REPLICA_FETCH_GROWTH_MAX = 4  # times replica.fetch.max.bytes are asked for of a partition that gives much
REPLICA_COPIED_SIZE_MAX = 16 * KIB  # of what a follower is sent in one call with what is around it
FLUSHING_WAIT_MS = 10  # of a fetch that is wanted again soon: a partition is being flushed
FETCH_BACKOFF_MS_FIRST = 20  # after a first failure of a partition; then twice as long each time
FOLLOWER_SESSIONS_MAX = 1_000  # more than a cluster has brokers
FOLLOWER_SILENT_MS_MAX = 1_000  # of a follower that is there, or twice as long as it asks to wait

# What the operator reads
LOSSES_TOLD_MAX = 20  # replicas that a start names one by one
DAMAGE_TOLD_MAX = 1_000  # places that the operator has heard of
EVENT_LINES_MAX = 10  # of one event within its window; the others are counted
EVENT_WINDOW_MS = 10_000  # of that count
EVENT_TEXT_LENGTH_MAX = 256  # of one particular of an event; the rest is cut off
EVENT_TRACEBACK_LENGTH_MAX = 4_096  # of one traceback, its end
EVENT_ITEMS_MAX = 32  # of a list in one event; the others are counted

# The client
ANSWER_SIZE_MAX = 1_024 * MIB  # of one answer: what announces more is no broker
GREETING_SIZE_MAX = 1 * MIB  # before versions are agreed upon: what is longer is no broker
SPARE_SIZE_MIN = 64 * KIB  # of a buffer that is worth keeping for the next answer
SPARE_SIZE_MAX = 5 * MIB  # what a reader asks for, and the answer's own fields
SPARE_COUNT_MAX = 2  # one that is looked at while the next is received
FETCH_BYTES = 4 * MIB  # what sockets hold: the broker sends it all while the last piece is used
FETCH_BYTES_MIN = 64 * KIB  # even if less is left of the range: batches are fetched whole
ANSWER_SECONDS_MIN = 5.0  # a broker that is there is not cut off because the last wait took all the time
SCRAM_ROUNDS_MIN = 4_096  # of a key's derivation, as RFC 7677 asks: fewer give the password away
SCRAM_ROUNDS_MAX = 1_000_000  # a broker may not keep us busy for ever
LIST_TIMEOUT_MS = 30_000  # of a search in tiered storage
ONCE_TIMEOUT_MS = 3_000  # for all leaders together
HERE_SECONDS = 0.1  # for an answer that came while another leader was awaited
COMMITS_AT_ONCE = 5_000  # partitions of one OffsetCommit; brokers bound them
COMMAND_ANSWER_SIZE_MAX = 256 * MIB  # of an answer to a command

# Spark
SPARK_ROOM_MAX = 4 * MIB  # of each column of a page; a record that is larger gets its own
SPARK_MOVED_SIZE_MIN = 1 * MIB  # of batches whose values are not copied: their last page is not filled up
SPARK_PIECE_SIZE = 8 * MIB  # of a segment, read at a time; a larger batch is read whole
SPARK_WALKED_SIZE = 64 * KIB  # the same where headers alone are wanted
