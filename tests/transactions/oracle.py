"""What Apache Kafka 4.3.1 answered: each request of the transaction APIs in each state of a transaction.

`oracle.json.xz` has one node's answers (1,869 rows), to transactions that were made by the new protocol
(Produce 12, EndTxn 5) or by the old one, at the levels of transaction.version named in `tv`. A proxy held
the markers, so that Prepare* stood still.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ORACLE = Path(__file__).with_name("oracle.json.xz")


@cache
def rows() -> list[Row]:
    found: list[Row] = json.loads(lzma.decompress(ORACLE.read_bytes()))["rows"]
    return found
