"""Addresses of brokers as users write them, and the timeouts for answers."""

from __future__ import annotations

from tidelog.cli.failure import BadWord, Failure

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 30.0


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or a bare host with port 9092."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or address.strip().endswith("]"):
        host, port = address.strip(), "9092"
    if not host or not port.isdigit() or int(port) > 65535:
        raise BadWord(f"--bootstrap-server {address}: not an address; write host:port")
    return host.strip("[]"), int(port)


def unreachable(bootstrap_server: str, why: str) -> Failure:
    """The failure for a broker that does not accept connections."""
    return Failure(
        f"no broker at {bootstrap_server} ({why}); start one with 'tidelog serve' or set --bootstrap-server"
    )


def unanswered(bootstrap_server: str) -> Failure:
    """The failure for a broker that accepts connections but does not answer."""
    return Failure(
        f"the broker at {bootstrap_server} did not answer within {ANSWER_TIMEOUT_S:.0f} s; "
        "see 'tidelog cluster health' and the broker's log"
    )
