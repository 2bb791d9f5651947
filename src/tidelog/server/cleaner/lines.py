"""What a broker and the process of its cleaner say to each other: a line of JSON each.

| from        | line                                                          |
|-------------|---------------------------------------------------------------|
| the broker  | `{"path": …, "request": …}`                                   |
| the process | `{"compiled": true}`, once, when it is there                  |
|             | `{"done": bytes}`, now and then: read and written since       |
|             | one of `result`, `changed`, `damage`, `error`, `failed`       |

**Invariant:** the last line about a round says how it ended.
"""

from __future__ import annotations

import json

from tidelog.broker.data_plane.compacting import RoundFailed
from tidelog.log.compaction.request import (
    CleaningRequest,
    CleaningResult,
    SourcesChanged,
    decode_request,
    decode_result,
    encode_request,
    encode_result,
)
from tidelog.log.scan import Damage


def encode_order(path: str, request: CleaningRequest) -> str:
    return json.dumps({"path": path, "request": encode_request(request)})


def decode_order(line: str) -> tuple[str, CleaningRequest]:
    order = json.loads(line)
    return order["path"], decode_request(order["request"])


def encode_end(end: CleaningResult | Exception) -> str:
    if isinstance(end, CleaningResult):
        return json.dumps({"result": encode_result(end)})
    if isinstance(end, SourcesChanged):
        return json.dumps({"changed": str(end)})
    if isinstance(end, Damage):
        return json.dumps({"damage": [end.file, end.position, end.problem]})
    if isinstance(end, OSError) and end.errno is not None:
        return json.dumps({"error": [end.errno, end.strerror]})
    return json.dumps({"failed": f"{type(end).__name__}: {end}"})


def decode_end(line: dict[str, object]) -> CleaningResult | None:
    """The result; raises what has ended the round. None if it has not ended."""
    for kind, told in line.items():
        if kind == "result":
            return decode_result(str(told))
        if kind == "changed":
            raise SourcesChanged(str(told))
        if kind == "damage":
            assert isinstance(told, list)
            raise Damage(*told)
        if kind == "error":
            assert isinstance(told, list)
            raise OSError(*told)
        if kind == "failed":
            raise RoundFailed(f"the cleaner has failed: {told}")
    return None
