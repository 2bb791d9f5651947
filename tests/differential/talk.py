"""What is said about one group by several members, each on connections of its own.

A scenario runs for one API in one version; the other APIs that it needs are asked in their newest. Members
are known by ids that the suite makes up; `learn` ties them to those that the brokers gave.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from tests.differential.case import Case
from tests.differential.entities import build, frame_of, parts, request
from tests.differential.pair import Pair
from tests.differential.plain import decode
from tests.differential.sides import Side, Silence

DELETE_GROUPS = 42
UUID_LENGTH = 36
Answers = tuple[Any, Any]


class Seat:
    """A connection to each of the two."""

    def __init__(self, pair: Pair) -> None:
        self.sides = (Side("kafka", pair.kafka.port), Side("tidelog", pair.tidelog.port))

    def close(self) -> None:
        for side in self.sides:
            side.close()


class Sent(NamedTuple):
    """A request that is not answered yet."""

    api_key: int
    version: int
    entity: Any
    seat: Seat


class Talk:
    def __init__(self, case: Case, stem: str) -> None:
        self.case = case
        self.pair = case.pair
        self.group_id = f"{stem}-{case.api_key}-{case.version}"
        self._seats: dict[str, Seat] = {}

    def version_of(self, api_key: int) -> int:
        return self.case.version if api_key == self.case.api_key else self.pair.served_by_both()[api_key][-1]

    def make(self, api_key: int, part: str, /, **values: Any) -> Any:
        return build(getattr(parts(api_key, self.version_of(api_key)), part), **values)

    def send(self, who: str, api_key: int, /, **values: Any) -> Sent:
        version = self.version_of(api_key)
        seat = self._seats.setdefault(who, Seat(self.pair))
        sent = Sent(api_key, version, request(api_key, version, **values), seat)
        for side in seat.sides:
            side.send(self.pair.translated(side, frame_of(api_key, version, sent.entity)))
        self.pair.asked_count += 1
        return sent

    def answer(self, scenario: str, sent: Sent) -> Answers:
        """Both answers, their differences noted."""
        found = self.heard(sent)
        self.pair.compare(scenario, sent.api_key, sent.version, found[1], repr(sent.entity))
        return found[0]

    def heard(self, sent: Sent) -> tuple[Answers, tuple[Any, Any]]:
        """Both answers, decoded and as they came, without comparing."""
        kafka, tidelog = (side.receive() for side in sent.seat.sides)
        decoded = [
            reply if isinstance(reply, Silence) else decode(sent.api_key, sent.version, reply)
            for reply in (kafka, tidelog)
        ]
        return (decoded[0], decoded[1]), (kafka, tidelog)

    def ask(self, scenario: str, who: str, api_key: int, /, **values: Any) -> Answers:
        return self.answer(scenario, self.send(who, api_key, **values))

    def ask_until(self, who: str, api_key: int, error: int, /, **values: Any) -> None:
        """Until both say so: what one member did takes a moment to reach the others."""

        def is_so() -> bool:
            answers = self.heard(self.send(who, api_key, **values))[0]
            return all(getattr(answer, "error_code", None) == error for answer in answers)

        self.pair.wait_until(f"error {error} for {who}", is_so)

    def learn(self, name: str, answers: Answers) -> str:
        """The id that a member has in requests from now on."""
        kafka, tidelog = (answer.member_id for answer in answers)
        made_up = uuid5(NAMESPACE_URL, f"{self.group_id}/{name}")
        if len(kafka) > UUID_LENGTH:
            canonical: str = kafka[:-UUID_LENGTH] + str(made_up)
        else:
            canonical = urlsafe_b64encode(made_up.bytes).decode().rstrip("=")
        self.pair.know_member(canonical, kafka, tidelog)
        return canonical

    def forget(self) -> None:
        """Let go of a group that one of the two may have kept: Kafka keeps it of a join that it refused."""
        self.heard(self.send("forgetter", DELETE_GROUPS, groups_names=(self.group_id,)))
        self.close()

    def close(self) -> None:
        for seat in self._seats.values():
            seat.close()
