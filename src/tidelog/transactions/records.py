"""The records of `__transaction_state`, in Kafka's own formats: one for each transactional id.

| part        | version      | fields                                                                  |
|-------------|--------------|-------------------------------------------------------------------------|
| key         | 0            | transactional id                                                        |
| value       | 0 (read)     | producer id, epoch, timeout, state, partitions by topic, time of the    |
|             |              | update, time of the start                                               |
| value       | 1 (written)  | the same with compact lengths, and tagged fields                        |
| tag 0       | int64        | the producer id before the last change of the id                        |
| tag 1       | int64        | the producer id that follows                                            |
| tag 2       | int16        | the protocol of the client: 0 or 1 old, 2 new                           |
| tag 3       | int16        | the epoch that follows, for two-phase commit, which is not served; let be |
| tag 126     | int16        | ours: the epoch before the last raise, where the rest does not say it   |
| tag 127     | int64        | ours: how many ends of this id were prepared                            |

No value: the id has expired. A field with a tag is left out where it has its default. Kafka skips tags that
it does not know; what 126 says it loses at a change of coordinator (KAFKA-20357).

**Invariant:** what is written here is read here, and by Kafka 4.3; other bytes raise `CorruptBatch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, pack

from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.fields import INT16, INT64, FieldReader
from tidelog.protocol.wire import write_compact_string, write_string, write_unsigned_varint
from tidelog.transactions.transaction import (
    EPOCH_MAX,
    NEW_PROTOCOL,
    NO_EPOCH,
    NO_PRODUCER_ID,
    OLD_PROTOCOL,
    Spot,
    State,
    Transaction,
)

_KEY_VERSION, _VALUE_VERSION = 0, 1
_HEAD = Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES = Struct(">qq")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = range(3)
_LAST_EPOCH, _NUMBER = 126, 127


def transaction_key(transactional_id: str) -> bytes:
    out = bytearray(INT16.pack(_KEY_VERSION))
    write_string(out, transactional_id)
    return bytes(out)


def read_key(key: bytes) -> str:
    """The transactional id."""
    reader = FieldReader(key)
    reader.version(_KEY_VERSION, _KEY_VERSION)
    return reader.string()


# Values.


def transaction_value(transaction: Transaction) -> bytes:
    out = bytearray(
        _HEAD.pack(
            _VALUE_VERSION,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    _write_partitions(out, transaction)
    out += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    _write_tags(out, transaction)
    return bytes(out)


def _write_partitions(out: bytearray, transaction: Transaction) -> None:
    if transaction.state is State.EMPTY:
        write_unsigned_varint(out, 0)  # null, as Kafka has it
        return
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    write_unsigned_varint(out, len(topics) + 1)
    for topic, indexes in topics.items():
        write_compact_string(out, topic)
        write_unsigned_varint(out, len(indexes) + 1)
        out += pack(f">{len(indexes)}i", *indexes)
        out.append(0)


def _write_tags(out: bytearray, transaction: Transaction) -> None:
    tags: list[tuple[int, bytes]] = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_ID, INT64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_ID, INT64.pack(transaction.next_producer_id)))
    if transaction.client_version != OLD_PROTOCOL:
        tags.append((_CLIENT_VERSION, INT16.pack(transaction.client_version)))
    if transaction.last_epoch != _implied_last_epoch(transaction):
        tags.append((_LAST_EPOCH, INT16.pack(transaction.last_epoch)))
    if transaction.number:
        tags.append((_NUMBER, INT64.pack(transaction.number)))
    write_unsigned_varint(out, len(tags))
    for tag, content in tags:
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(content))
        out += content


def _implied_last_epoch(transaction: Transaction) -> int:
    """The epoch before the last raise, from the rest of a record: Kafka's own have no field for it."""
    if not transaction.has_raised_epoch:
        return NO_EPOCH
    return transaction.producer_epoch - 1 if transaction.producer_epoch else EPOCH_MAX - 1


def read_value(transactional_id: str, value: bytes) -> Transaction:
    reader = FieldReader(value)
    reader.is_flexible = reader.version(0, _VALUE_VERSION) >= 1
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader.int8())
    partitions = _read_partitions(reader)
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = reader.tags() if reader.is_flexible else {}
    transaction = Transaction(
        transactional_id,
        producer_id,
        epoch,
        state,
        timeout_ms,
        partitions if state is not State.EMPTY else frozenset(),
        updated_ms,
        started_ms,
        previous_producer_id=_tagged(tags, _PREVIOUS_ID, INT64, NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, _NEXT_ID, INT64, NO_PRODUCER_ID),
        client_version=_tagged(tags, _CLIENT_VERSION, INT16, OLD_PROTOCOL),
        number=_tagged(tags, _NUMBER, INT64, 0),
    )
    if producer_id < 0 or epoch < 0 or transaction.client_version not in range(NEW_PROTOCOL + 1):
        raise CorruptBatch(f"{transaction} is no transaction")
    implied = _implied_last_epoch(transaction)
    return transaction._replace(last_epoch=_tagged(tags, _LAST_EPOCH, INT16, implied))


def _state(number: int) -> State:
    try:
        return State(number)
    except ValueError:  # or one of those that Kafka has in memory only
        raise CorruptBatch(f"a transaction is in state {number}, which is not known") from None


def _read_partitions(reader: FieldReader) -> frozenset[Spot]:
    def topic() -> list[Spot]:
        name, indexes = reader.text(), reader.numbers()
        reader.end_struct()
        return [(name, index) for index in indexes]

    return frozenset(spot for spots in reader.array(topic) for spot in spots)


def _tagged(tags: Mapping[int, bytes], tag: int, form: Struct, default: int) -> int:
    content = tags.get(tag)
    if content is None:
        return default
    if len(content) != form.size:
        raise CorruptBatch(f"tagged field {tag} of {form.size} bytes has {len(content)}")
    return int(form.unpack(content)[0])
