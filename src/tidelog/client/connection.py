"""One blocking connection to a broker: TLS, SASL, versions, frames, several requests under way.

    correlation = connection.send(exchange)     # as many as one likes
    answer = connection.receive(correlation)    # waits; other answers that arrive first are kept

**Invariant:** after malformed bytes the connection is closed and all answers under way are lost;
nothing waits without a time limit; memory grows with the bytes received, never with announced sizes.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from typing import Any, TypeVar

from tidelog import __version__
from tidelog.base.files import Buffer
from tidelog.base.limits import ANSWER_SIZE_MAX, GREETING_SIZE_MAX
from tidelog.client.codes import name_of
from tidelog.client.errors import (
    AuthenticationFailed,
    ConnectionLost,
    MalformedAnswer,
    UnsupportedByBroker,
)
from tidelog.client.exchange import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Exchange,
    KioExchange,
)
from tidelog.client.properties import Properties, read_number
from tidelog.client.security import Security
from tidelog.client.sockets import connect, send_some, skip_sent
from tidelog.client.spare import SpareBuffers
from tidelog.protocol import wire
from tidelog.protocol.apis import Api
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.framing import ANSWER_SIZE_MIN, FrameCutter, read_frame
from tidelog.protocol.messages import make

Answer = TypeVar("Answer")

SOFTWARE = "tidelog-client"
# The connection is renewed before the broker ends its session (KIP-368), as in Kafka's own client.
SESSION_SHARE = 0.85


class UnderWay:
    """A request that was sent and is not answered yet."""

    __slots__ = ("correlation", "exchange", "is_forgotten", "version")

    def __init__(self, correlation: int, exchange: Exchange[Any], version: int) -> None:
        self.correlation = correlation
        self.exchange = exchange
        self.version = version
        self.is_forgotten = False


class Connection:
    def __init__(
        self,
        host: str,
        port: int,
        properties: Properties,
        *,
        security: Security | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.request_timeout_seconds = read_number(properties, "request.timeout.ms", 30_000) / 1_000
        self._client_id = properties.get("client.id", SOFTWARE)
        self._under_way: deque[UnderWay] = deque()
        self._answers: dict[int, Any] = {}
        self._last_correlation = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._levels: dict[str, int] = {}
        self._expires = float("inf")
        self._frames = AnswerFrames(ANSWER_SIZE_MIN, GREETING_SIZE_MAX, SpareBuffers())
        self._socket: socket.socket | None = None
        setup_seconds = read_number(properties, "socket.connection.setup.timeout.ms", 10_000) / 1_000
        if timeout_seconds is not None:
            setup_seconds = min(setup_seconds, timeout_seconds)
        security = security or Security(properties)
        self._socket = connect(host, port, security, setup_seconds)
        try:
            self._negotiate()
            if security.mechanism:
                self._authenticate(security)
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def is_fresh(self) -> bool:
        """Whether it is open and its session is not about to end."""
        return self._socket is not None and time.monotonic() < self._expires

    @property
    def under_way_count(self) -> int:
        return len(self._under_way)

    def level_of(self, feature: str) -> int:
        """The level of a feature that the cluster has finalized; 0 for one that it has not."""
        return self._levels.get(feature, 0)

    def version_of(self, api: Api) -> int:
        """The newest version that both ends support."""
        oldest, newest = self._versions.get(api.key, (0, -1))
        version = min(newest, api.newest_version)
        if version < max(oldest, api.oldest_version):
            raise UnsupportedByBroker(
                f"{self.address} supports {api.name} {oldest}–{newest}, "
                f"this client {api.oldest_version}–{api.newest_version}"
                if newest >= 0
                else f"{self.address} does not support {api.name}"
            )
        return version

    def send(self, exchange: Exchange[Any], *, version: int | None = None, is_answered: bool = True) -> int:
        """Send a request; return the number by which its answer is received."""
        version = self.version_of(exchange.api) if version is None else version
        self._last_correlation = (self._last_correlation + 1) & 0x7FFFFFFF
        pieces = exchange.encode(version, self._last_correlation, self._client_id)
        self._write(pieces, exchange.api)
        if is_answered:
            self._under_way.append(UnderWay(self._last_correlation, exchange, version))
        return self._last_correlation

    def receive(self, correlation: int, timeout_seconds: float | None = None) -> Any:
        """The answer to that request, awaited for `request.timeout.ms` or less."""
        deadline = time.monotonic() + self.request_timeout_seconds
        if timeout_seconds is not None:
            deadline = min(deadline, time.monotonic() + timeout_seconds)
        while correlation not in self._answers:
            self._receive_next(deadline)
        return self._answers.pop(correlation)

    def has_arrived(self) -> bool:
        """Whether `receive` would return or fail without waiting: bytes, or the end of the connection."""
        sock = self._socket
        if sock is None or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            return True
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))

    def call(self, exchange: Exchange[Answer], timeout_seconds: float | None = None) -> Answer:
        answer: Answer = self.receive(self.send(exchange), timeout_seconds)
        return answer

    def forget(self, correlation: int) -> None:
        """Drop the answer of that request when it arrives."""
        self._answers.pop(correlation, None)
        for request in self._under_way:
            if request.correlation == correlation:
                request.is_forgotten = True

    def close(self) -> None:
        sock, self._socket = self._socket, None
        self._under_way.clear()
        self._answers.clear()
        if sock is not None:
            sock.close()

    def _receive_next(self, deadline: float) -> None:
        if not self._under_way:
            raise ConnectionLost(f"{self.address}: the connection was lost with the answer")
        request = self._under_way[0]
        api = request.exchange.api
        try:
            data = self._read_frame(deadline, api)
        except BaseException:  # an interrupt, too, leaves half a frame behind
            self.close()
            raise
        try:
            correlation, position = wire.read_int32(data, 0, "correlation id")
            if correlation != request.correlation:
                raise MalformedRequest(f"correlation id {correlation}, expected {request.correlation}")
            if request.version >= api.flexible_version and api is not API_VERSIONS:
                position = wire.skip_tagged_fields(data, position)
            answer = (
                None if request.is_forgotten else request.exchange.decode(data, position, request.version)
            )
        except MalformedRequest as problem:
            self.close()
            raise MalformedAnswer(
                f"{self.address} sent a malformed answer to {api.name}: {problem}"
            ) from None
        self._under_way.popleft()
        if not request.is_forgotten:
            self._answers[correlation] = answer

    def _read_frame(self, deadline: float, api: Api) -> memoryview:
        try:
            frame = read_frame(self._frames, lambda view: self._read_into(view, deadline, api))
        except MalformedRequest as problem:
            self.close()
            raise MalformedAnswer(f"{self.address} answered {api.name} with {problem}") from None
        self._frames.end_frame()  # its memory is the reader's for as long as there is a view of it
        return frame

    def _read_into(self, view: memoryview, deadline: float, api: Api) -> int:
        sock = self._usable(api)
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            count = sock.recv_into(view)
        except TimeoutError:
            self.close()
            raise ConnectionLost(f"{self.address} did not answer {api.name} in time") from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {api.name}: {error}") from error
        if count == 0:
            self.close()
            raise ConnectionLost(f"{self.address} closed the connection before it had answered {api.name}")
        return count

    def _write(self, pieces: list[Buffer], api: Api) -> None:
        deadline = time.monotonic() + self.request_timeout_seconds
        views = [memoryview(piece) for piece in pieces if len(piece)]
        if isinstance(self._socket, ssl.SSLSocket):
            views = [memoryview(b"".join(views))]
        try:
            while views:
                sent = send_some(self._usable(api), views)
                if sent:
                    skip_sent(views, sent)
                else:
                    self._await_room(deadline, api)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {api.name}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _await_room(self, deadline: float, api: Api) -> None:
        """Wait until more can be sent. Answers are received meanwhile, because a broker may have to send
        first."""
        sock = self._usable(api)
        events = select.POLLOUT | (select.POLLIN if self._under_way else 0)
        poll = select.poll()
        poll.register(sock, events)
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1_000)
        if not ready or time.monotonic() > deadline:
            self.close()
            raise ConnectionLost(f"{self.address} did not read {api.name} in time")
        if ready[0][1] & select.POLLIN and self._under_way:
            self._receive_next(deadline)

    def _usable(self, api: Api) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost(f"{self.address}: {api.name}: the connection is closed")
        return self._socket

    def _negotiate(self) -> None:
        """ApiVersions in our newest version; an older broker answers with its own newest one (KIP-511)."""
        version = API_VERSIONS.newest_version
        answer = self._ask_versions(version)
        if answer.error_code == ErrorCode.unsupported_version:
            theirs = [api.max_version for api in answer.api_keys if api.api_key == API_VERSIONS.key]
            answer = self._ask_versions(min(version, theirs[0]) if theirs else 0)
        if answer.error_code != ErrorCode.none:
            self.close()
            raise UnsupportedByBroker(
                f"{self.address} answered ApiVersions with {name_of(answer.error_code)}"
            )
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        features = getattr(answer, "finalized_features", ())
        self._levels = {feature.name: feature.max_version_level for feature in features}
        self._frames.size_max = ANSWER_SIZE_MAX

    def _ask_versions(self, version: int) -> Any:
        return self.receive(self.send(VersionsExchange(), version=version))

    def _authenticate(self, security: Security) -> None:
        mechanism = security.mechanism
        answer = self.call(KioExchange(SASL_HANDSHAKE, lambda t: t.SaslHandshakeRequest(mechanism=mechanism)))
        if answer.error_code != ErrorCode.none:
            offered = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(
                f"{self.address} does not offer sasl.mechanism={mechanism}; it offers: {offered}"
            )
        messages = security.sasl_messages()
        token = next(messages)
        while True:
            answer = self._send_token(token, security)
            try:
                token = messages.send(answer.auth_bytes)
            except StopIteration:
                break
        lifetime = answer.session_lifetime.total_seconds() if hasattr(answer, "session_lifetime") else 0.0
        if lifetime > 0:
            self._expires = time.monotonic() + lifetime * SESSION_SHARE

    def _send_token(self, token: bytes, security: Security) -> Any:
        exchange = KioExchange(
            SASL_AUTHENTICATE, lambda types: types.SaslAuthenticateRequest(auth_bytes=token)
        )
        try:
            answer = self.call(exchange)
        except ConnectionLost as problem:
            raise AuthenticationFailed(f"{problem}, which is how some brokers refuse a user") from None
        if answer.error_code != ErrorCode.none:
            reason = answer.error_message or name_of(answer.error_code)
            raise AuthenticationFailed(
                f"{self.address} rejected the credentials ({security.mechanism}): {reason}"
            )
        return answer


class AnswerFrames(FrameCutter):
    def problem(self, head: bytes, size: int) -> str:
        hint = ""
        if head[:1] in (b"\x15", b"\x16"):
            hint = "; it speaks TLS: check security.protocol"
        elif head == b"HTTP":
            hint = "; this is a web server"
        return f"{size} bytes{hint}"


class VersionsExchange(KioExchange):
    def __init__(self) -> None:
        super().__init__(
            API_VERSIONS,
            lambda types: make(
                types.ApiVersionsRequest, client_software_name=SOFTWARE, client_software_version=__version__
            ),
        )

    def decode(self, data: memoryview, position: int, version: int) -> Any:
        error_code, _ = wire.read_int16(data, position, "error code")
        return super().decode(data, position, 0 if error_code == ErrorCode.unsupported_version else version)
