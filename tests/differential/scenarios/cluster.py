"""Metadata, FindCoordinator, ApiVersions and InitProducerId."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.differential.case import Case
from tests.differential.entities import NOBODY, milliseconds, topic_id
from tests.differential.scenarios.topics import BAD_NAMES, INTERNAL
from tests.differential.world import ORDERS, SMALL


def metadata(case: Case) -> None:
    def ask(scenario: str, *names: str, **values: Any) -> None:
        topics = tuple(case.make("MetadataRequestTopic", name=name) for name in names)
        values = {"topics": topics, "allow_auto_topic_creation": False} | values
        case.ask(scenario, **values)

    ask("one topic", ORDERS)
    ask("two topics", SMALL, ORDERS)
    ask("the same twice", ORDERS, ORDERS)
    if case.version > 0:
        ask("none")
    if case.version >= 4:
        ask("an unknown one, not to be created", "absent")
        for name in (*BAD_NAMES, *INTERNAL[1:]):
            ask(f"the name {name[:20]!r}", name)
        ask("a name that collides, not to be created", "small_batches")
    for name in BAD_NAMES:
        ask(f"the name {name[:20]!r}, to be created", name, allow_auto_topic_creation=True)
    ask("a name that collides", "small_batches", allow_auto_topic_creation=True)
    new = case.fresh("asked-for")
    ask("an unknown one, to be created", new, allow_auto_topic_creation=True)
    case.pair.settle(new, 2)
    ask("one that asking has created", new)
    if case.version >= 8:
        asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
        ask("what I may do", ORDERS, **asked)
        ask("what I may do to an unknown one", "absent", **asked)
    if case.version >= 10:
        _metadata_by_id(case)


def _metadata_by_id(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str | None, UUID | None]) -> None:
        topics = tuple(case.make("MetadataRequestTopic", name=name, topic_id=uuid) for name, uuid in asked)
        case.ask(scenario, topics=topics, allow_auto_topic_creation=False)

    ask("name and id", (ORDERS, topic_id(ORDERS)))
    ask("by id", (None, topic_id(ORDERS)))
    ask("two by id", (None, topic_id(ORDERS)), (None, topic_id(SMALL)))
    ask("by id, twice", (None, topic_id(ORDERS)), (None, topic_id(ORDERS)))
    ask("an id nobody has", (None, NOBODY))
    ask("ids known and unknown", (None, NOBODY), (None, topic_id(SMALL)))
    ask("neither", (None, None))
    ask("by id and by name", (None, topic_id(ORDERS)), (SMALL, None))
    ask("a name and an id nobody has", (ORDERS, NOBODY))
    ask("an unknown name and an id", ("absent", topic_id(ORDERS)))


def api_versions(case: Case) -> None:
    for name, software in (("client", "1.0"), ("", ""), ("a b", "1"), ("-x", "1"), ("client", "1/2")):
        case.ask(f"{name!r} {software!r}", client_software_name=name, client_software_version=software)


def init_producer_id(case: Case) -> None:
    minute = milliseconds(60_000)
    case.ask("idempotent", transactional_id=None, transaction_timeout=minute)
    case.ask("idempotent, without a timeout", transactional_id=None, transaction_timeout=milliseconds(0))
    case.ask("idempotent, a negative timeout", transactional_id=None, transaction_timeout=milliseconds(-1))
    case.ask("an empty transactional id", transactional_id="", transaction_timeout=minute)
    case.ask("transactional", transactional_id=case.fresh(), transaction_timeout=minute)
    for producer_id, epoch in ((5, -1), (-1, 5), (5, 5), (-2, -1), (-1, -2), (-2, -2), (0, 0), (5, 32_767)):
        values = {"producer_id": producer_id, "producer_epoch": epoch, "transaction_timeout": minute}
        if case.version >= 3:
            case.ask(f"as producer {producer_id} in epoch {epoch}", transactional_id=None, **values)
