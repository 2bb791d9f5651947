"""What a follower does with its leader's answer: take records, cut its log, begin anew, or wait (R2, R8).

Pure: from where both logs stand to one step.

| the leader says                    | the follower                                                   |
|------------------------------------|----------------------------------------------------------------|
| records                            | appends them and follows the high watermark                    |
| its epoch `e` ended at offset `o`  | cuts to the lower of `o` and where its own epoch `e` ended     |
| OFFSET_OUT_OF_RANGE, log starts at | begins anew there if its own log ends before, else cuts        |
| any other error                    | asks again later: the store will say who leads                 |

**Invariant:** a cut never goes below what both logs have in common.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.log import Log
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch_client import ReceivedPartition


class Take(NamedTuple):
    """Append the records, if any."""


TAKE = Take()


class Cut(NamedTuple):
    offset: int


class BeginAt(NamedTuple):
    offset: int


class Wait(NamedTuple):
    error_code: int


Step = Take | Cut | BeginAt | Wait
_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)


def next_step(log: Log, received: ReceivedPartition) -> Step:
    if received.error_code == _OUT_OF_RANGE and received.log_start_offset > log.end_offset:
        return BeginAt(received.log_start_offset)
    if received.error_code:
        return Wait(received.error_code)
    if received.diverging_epoch is not None:
        return Cut(_common_end(log, *received.diverging_epoch))
    return TAKE


def _common_end(log: Log, epoch: int, end_offset: int) -> int:
    """Where to cut, given the leader's largest epoch not above ours, and where that one ended there."""
    own_epoch, own_end_offset = log.epochs.end_of(epoch, log.end_offset)
    if own_epoch < 0:  # we have nothing of that epoch or before
        return min(end_offset, log.end_offset)
    return min(end_offset, own_end_offset)
