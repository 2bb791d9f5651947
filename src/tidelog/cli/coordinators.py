"""Coordinators, asked for what they coordinate: each once for all its names.

**Invariant:** a coordinator that has moved or is loading is asked again, and named if the problem lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.nodes import Node
from tidelog.cli.remote import RemoteBroker, check, open_any
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode

RETRY_S = 0.2
RETRIES_MAX = 75  # 15 seconds: the first use of a coordinator may take as long to create its topic
PASSING = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Answer(NamedTuple):
    """A coordinator's answer about one name."""

    error_code: ErrorCode
    message: str | None
    value: Any


Question = Callable[[RemoteBroker, Node, list[str]], dict[str, Answer]]


class Coordinators:
    """Connections to coordinators of one kind, opened as needed and kept."""

    noun = ""  # what it coordinates
    key_type = -1  # of FindCoordinator

    def __init__(self, bootstrap_server: str) -> None:
        self._bootstrap_server = bootstrap_server
        self._brokers: dict[str, RemoteBroker] = {}
        self._found: dict[str, Node] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()
        self._found.clear()

    def _ask(self, names: Sequence[str], question: Question) -> dict[str, Any]:
        answers: dict[str, Answer] = {}
        deadline = time.monotonic() + RETRY_S * RETRIES_MAX
        for attempt in range(RETRIES_MAX):
            if attempt:
                time.sleep(RETRY_S)
            unknown = [name for name in names if name not in answers]
            for node, group in self._coordinators_of(unknown, answers):
                answers |= self._ask_one(node, group, question)
            passing = [name for name, answer in answers.items() if answer.error_code in PASSING]
            if not passing or time.monotonic() > deadline:
                break
            if attempt < RETRIES_MAX - 1:
                for name in passing:
                    self._found.pop(name, None)
                    del answers[name]
        return {name: self._value(name, answers[name]) for name in names}

    def _ask_one(self, node: Node, names: list[str], question: Question) -> dict[str, Answer]:
        """One coordinator's answers. If it cannot be reached, another broker may soon be the coordinator."""
        try:
            return question(self._open(node.address), node, names)
        except BadWord:
            raise
        except Failure as failure:
            broken = self._brokers.pop(node.address, None)
            if broken is not None:
                broken.close()
            message = f"broker {node.id}, which coordinates it, cannot be asked: {failure}"
            return dict.fromkeys(names, Answer(ErrorCode.coordinator_not_available, message, None))

    def _coordinators_of(self, names: list[str], answers: dict[str, Answer]) -> list[tuple[Node, list[str]]]:
        """The names by coordinator; a name without a coordinator gets an error answer."""
        missing = [name for name in names if name not in self._found]
        if missing:
            with open_any(self._bootstrap_server) as broker:
                answers |= self._find(broker, missing)
        by_node: dict[Node, list[str]] = {}
        for name in names:
            if name in self._found:
                by_node.setdefault(self._found[name], []).append(name)
        return list(by_node.items())

    def _find(self, broker: RemoteBroker, names: list[str]) -> dict[str, Answer]:
        answer = broker.ask(
            apis.FIND_COORDINATOR, key=names[0], key_type=self.key_type, coordinator_keys=tuple(names)
        )
        if not hasattr(answer, "coordinators"):
            raise Failure(
                f"the broker at {broker.address} is older than Kafka 3.0: "
                f"it looks up one {self.noun} at a time"
            )
        failed = {}
        for found in answer.coordinators:
            if found.error_code is ErrorCode.none:
                self._found[found.key] = Node(found.node_id, found.host, found.port, None, False)
            else:
                failed[found.key] = Answer(found.error_code, found.error_message, None)
        return failed

    def _open(self, address: str) -> RemoteBroker:
        if address not in self._brokers:
            self._brokers[address] = RemoteBroker(address)
        return self._brokers[address]

    def _value(self, name: str, answer: Answer) -> Any:
        try:
            check(f"{self.noun} {name!r}", answer.error_code, answer.message)
        except Failure as failure:
            return failure
        return answer.value
