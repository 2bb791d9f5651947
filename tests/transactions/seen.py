"""Records of `__transaction_state` as Kafka 4.3.1 writes them, and what they say.

Written by its own `TransactionLogKey` and `TransactionLogValue`, versions 0 and 1.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.transactions.transaction import NEW_PROTOCOL, State, Transaction

SEEN_ID = "münze"
SEEN_KEY = bytes.fromhex("000000066dc3bc6e7a65")
UPDATED_MS, STARTED_MS = 1_700_000_000_123, 1_700_000_000_001
_TIMES = "0000018bcfe5687b0000018bcfe56801"


class Seen(NamedTuple):
    name: str
    value: bytes
    says: Transaction


EMPTY = Transaction(SEEN_ID, 2003, 7, State.EMPTY, 60_000, frozenset(), UPDATED_MS)
ONGOING = EMPTY._replace(
    state=State.ONGOING,
    partitions=frozenset({("a", 0), ("a", 2), ("__consumer_offsets", 49)}),
    started_ms=STARTED_MS,
)
COMPLETE = ONGOING._replace(state=State.COMPLETE_COMMIT, partitions=frozenset())
PREPARED = ONGOING._replace(
    state=State.PREPARE_COMMIT,
    producer_epoch=8,
    last_epoch=7,
    previous_producer_id=2003,
    client_version=NEW_PROTOCOL,
    partitions=frozenset({("a", 0)}),
)
OVERFLOW = PREPARED._replace(
    state=State.PREPARE_ABORT, producer_epoch=32_767, last_epoch=32_766, next_producer_id=3000
)
OVERFLOWN = OVERFLOW._replace(
    state=State.COMPLETE_ABORT,
    producer_id=3000,
    producer_epoch=0,
    next_producer_id=-1,
    partitions=frozenset(),
)
OLD_SEEN = (
    Seen(
        "empty",
        bytes.fromhex("0000 00000000000007d3 0007 0000ea60 00 ffffffff 0000018bcfe5687b ffffffffffffffff"),
        EMPTY,
    ),
    Seen(
        "ongoing",
        bytes.fromhex(
            "0000 00000000000007d3 0007 0000ea60 01 00000002 0001 61 00000002 00000000 00000002"
            "0012 5f5f636f6e73756d65725f6f666673657473 00000001 00000031" + _TIMES
        ),
        ONGOING,
    ),
    Seen(
        "complete",
        bytes.fromhex("0000 00000000000007d3 0007 0000ea60 04 00000000" + _TIMES),
        COMPLETE,
    ),
)
NEW_SEEN = (
    Seen(
        "empty",
        bytes.fromhex("0001 00000000000007d3 0007 0000ea60 00 00 0000018bcfe5687b ffffffffffffffff 00"),
        EMPTY,
    ),
    Seen(
        "ongoing",
        bytes.fromhex(
            "0001 00000000000007d3 0007 0000ea60 01 03 02 61 03 00000000 00000002 00"
            "13 5f5f636f6e73756d65725f6f666673657473 02 00000031 00" + _TIMES + "00"
        ),
        ONGOING,
    ),
    Seen(
        "complete",
        bytes.fromhex("0001 00000000000007d3 0007 0000ea60 04 01" + _TIMES + "00"),
        COMPLETE,
    ),
    Seen(
        "prepared",
        bytes.fromhex(
            "0001 00000000000007d3 0008 0000ea60 02 02 02 61 02 00000000 00"
            + _TIMES
            + "02 00 08 00000000000007d3 02 02 0002"
        ),
        PREPARED,
    ),
    Seen(
        "overflow",
        bytes.fromhex(
            "0001 00000000000007d3 7fff 0000ea60 03 02 02 61 02 00000000 00"
            + _TIMES
            + "03 00 08 00000000000007d3 01 08 0000000000000bb8 02 02 0002"
        ),
        OVERFLOW,
    ),
    Seen(
        "overflown",
        bytes.fromhex(
            "0001 0000000000000bb8 0000 0000ea60 05 01" + _TIMES + "02 00 08 00000000000007d3 02 02 0002"
        ),
        OVERFLOWN,
    ),
)
