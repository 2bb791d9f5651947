"""Fetches between brokers in short words, for scripts: those that say something."""

from __future__ import annotations

from tests.log.making import split
from tidelog.base.files import Buffer
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import decode_fetch
from tidelog.protocol.fetch_client import ReceivedPartition, decode_fetch_response
from tidelog.replication.fetcher import CLIENT_ID, FETCH_VERSION

_REQUEST_BODY = 4 + 2 + 2 + 4 + 2 + len(CLIENT_ID) + 1
_ANSWER_BODY = 4 + 1


def batches(headers: list[BatchHeader]) -> str:
    """`0-3@0 4-5@1`: offsets and leader epochs."""
    return " ".join(f"{each.base_offset}-{each.last_offset}@{each.leader_epoch}" for each in headers)


def told_request(sender: int, receiver: int, frame: Buffer) -> list[str]:
    """What a follower asks for that it did not ask for before."""
    request = decode_fetch(frame, _REQUEST_BODY, FETCH_VERSION)
    return [
        f"{sender} asks {receiver} from {asked.fetch_offset} on, its last epoch is {asked.last_fetched_epoch}"
        for _, partitions in request.topics
        for asked in partitions
    ]


def told_answer(sender: int, receiver: int, frame: bytes) -> list[str]:
    body = memoryview(frame)[4:]
    response = decode_fetch_response(body, _ANSWER_BODY, FETCH_VERSION)
    if response.error_code:
        return [f"{sender} answers {receiver}: {ErrorCode(response.error_code).name}"]
    return [
        f"{sender} answers {receiver}: {_partition(each, bytes(body[each.start : each.end]))}"
        for _, partitions in response.topics
        for each in partitions
    ]


def _partition(answer: ReceivedPartition, records: bytes) -> str:
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    if answer.diverging_epoch is not None:
        epoch, end_offset = answer.diverging_epoch
        return f"here epoch {epoch} ended at {end_offset}"
    came = batches([header for header, _ in split(records)]) or "nothing new"
    return f"{came}, committed up to {answer.high_watermark}"
