"""What goes between brokers: frames to peers, and what comes back, by lane.

| lane      | carries                                   | why its own connection                          |
|-----------|-------------------------------------------|-------------------------------------------------|
| REPLICATE | one Fetch at a time                       | it waits at the leader for records              |
| FORWARD   | requests that are the controller's, and   | answers come in order; none waits for records   |
|           | fetches of groups that move               |                                                 |
| MARKERS   | the ends of transactions, to leaders      | an answer waits until its markers are committed |
| VERIFY    | leaders ask the coordinators of           | an answer may wait for markers, so it must not  |
|           | transactions                              | stand in front of the answers to them           |
"""

from __future__ import annotations

from typing import NamedTuple

REPLICATE, FORWARD, MARKERS, VERIFY = range(4)


class PeerClose(NamedTuple):
    """Give a connection up: what was sent on it is not waited for any more, and its end is not told."""

    node_id: int
    lane: int


class PeerSend(NamedTuple):
    """A frame for another broker. Its answer, or the end of the connection, comes back to the core."""

    node_id: int
    lane: int
    host: str
    port: int
    frame: bytes | bytearray
