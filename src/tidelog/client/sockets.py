"""Sockets to brokers: connected, wrapped in TLS if configured, and written to without waiting.

**Invariant:** a failure while connecting is a `ConnectionLost`, which is retriable, or an
`AuthenticationFailed`, which is not.
"""

from __future__ import annotations

import socket
import ssl
import time

from tidelog.client.errors import AuthenticationFailed, ConnectionLost
from tidelog.client.security import Security

PIECES_AT_ONCE = 512
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG")


def connect(host: str, port: int, security: Security, timeout_seconds: float) -> socket.socket:
    deadline = time.monotonic() + timeout_seconds
    address = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, port), max(0.001, timeout_seconds))
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {address}: {error}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if security.tls is None:
            return sock
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        return security.tls.wrap_socket(sock, server_hostname=host)
    except (ssl.SSLCertVerificationError, ssl.CertificateError) as error:
        sock.close()
        raise AuthenticationFailed(f"{address}: the broker's certificate is not trusted: {error}") from error
    except ssl.SSLError as error:
        sock.close()
        if error.reason in _NO_TLS:
            raise AuthenticationFailed(
                f"{address} does not speak TLS ({error.reason}): check security.protocol"
            ) from error
        raise ConnectionLost(f"{address}: TLS: {error}") from error
    except OSError as error:
        sock.close()
        raise ConnectionLost(f"{address}: {error}") from error


def send_some(sock: socket.socket, views: list[memoryview]) -> int:
    """The number of bytes sent; 0 if the socket's buffer is full."""
    sock.settimeout(0)
    try:
        if isinstance(sock, ssl.SSLSocket):
            return sock.send(views[0])
        return sock.sendmsg(views[:PIECES_AT_ONCE])
    except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
        return 0


def skip_sent(views: list[memoryview], size: int) -> None:
    """Remove `size` bytes from the front."""
    count = 0
    while count < len(views) and size >= len(views[count]):
        size -= len(views[count])
        count += 1
    del views[:count]
    if size:
        views[0] = views[0][size:]
