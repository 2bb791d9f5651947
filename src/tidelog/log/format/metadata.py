"""The small files that say whose a log directory or a partition's folder is, and how the last life ended.

**Invariant:** what cannot be read is reported as missing, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import ascii_letters, digits

_TOPIC_ID = frozenset(ascii_letters + digits + "-_")  # its characters, base64 for URLs
_TOPIC_ID_LENGTH = 22


def encode_topic_id(topic_id: str) -> bytes:
    """The content of a `partition.metadata` file."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def decode_topic_id(content: bytes | None) -> str | None:
    """The topic id in a `partition.metadata` file; None if there is none that can be read."""
    words = (content or b"").decode(errors="replace").split()
    is_whole = words[:3] == ["version:", "0", "topic_id:"] and len(words) == 4
    return (
        words[3]
        if is_whole and _TOPIC_ID.issuperset(words[3]) and len(words[3]) == _TOPIC_ID_LENGTH
        else None
    )


def encode_meta_properties(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    lines = [
        "version=1",
        f"cluster.id={cluster_id}",
        f"node.id={node_id}",
        f"directory.id={directory_id}",
        "",
    ]
    return "\n".join(lines).encode()


def decode_properties(content: bytes) -> dict[str, str]:
    """`key=value` lines; `#` begins a comment."""
    found = {}
    for line in content.decode(errors="replace").splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith("#"):
            found[key.strip()] = value.strip()
    return found


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return encode_fields({"version": 0, "brokerEpoch": broker_epoch})


def decode_clean_shutdown(content: bytes | None) -> int:
    """The epoch of the broker that stopped; -1 if it is unknown."""
    found = decode_fields(content).get("brokerEpoch")
    return found if isinstance(found, int) else -1


def encode_fields(fields: Mapping[str, object]) -> bytes:
    """A small JSON file: one line, no spaces."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_fields(content: bytes | None) -> dict[str, object]:
    """The fields of a small JSON file; nothing if it is missing or something else."""
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
