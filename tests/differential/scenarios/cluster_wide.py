"""DescribeCluster, UnregisterBroker, UpdateFeatures, SCRAM credentials and access control lists."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case
from tests.differential.entities import milliseconds, parts, request

TIMEOUT = milliseconds(20_000)
SHA_256, SHA_512 = 1, 2
DESCRIBE_CLIENT_QUOTAS = 48


def describe_cluster(case: Case) -> None:
    for allowed in (False, True):
        case.ask(f"allowed {allowed}", include_cluster_authorized_operations=allowed)
    if case.version >= 1:
        for kind in (0, 1, 2, 3, -1):
            case.ask(f"endpoints of type {kind}", endpoint_type=kind)
    if case.version >= 2:
        case.ask("fenced ones too", include_fenced_brokers=True)


def update_features(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str, int, int]) -> None:
        rows = tuple(
            case.make(
                "FeatureUpdateKey",
                feature=feature,
                max_version_level=level,
                upgrade_type=kind,
                allow_downgrade=kind > 1,
            )
            for feature, level, kind in asked
        )
        # Version 0 cannot ask for a rehearsal.
        case.ask(scenario, feature_updates=rows, timeout=TIMEOUT, validate_only=True)

    ask("an unknown one", ("no.such.feature", 1, 1))
    ask("an unknown one, down", ("no.such.feature", 1, 2))
    ask("an unknown one to 0", ("no.such.feature", 0, 1))
    ask("no name", ("", 1, 1))
    ask("a negative level", ("no.such.feature", -1, 1))
    ask("twice", ("no.such.feature", 1, 1), ("no.such.feature", 2, 1))
    ask("two", ("no.such.feature", 1, 1), ("nor.this.one", 2, 1))
    if case.version >= 1:
        for kind in (0, 4, -1):
            ask(f"upgrade type {kind}", ("no.such.feature", 1, kind))
    ask("nothing")


Entity = tuple[tuple[str, str | None], ...]
NO_VALUE = 0.0  # of an operation that removes


def alter_client_quotas(case: Case) -> None:
    """No entity here is that of the suite's own connections: nobody is throttled."""
    rate, percentage, mutations = "producer_byte_rate", "request_percentage", "controller_mutation_rate"
    ann: Entity = (("user", case.fresh("ann")),)

    def entry(entity: Entity, *ops: tuple[str, float | None]) -> Any:
        return case.make(
            "EntryData",
            entity=tuple(
                case.make("EntityData", entity_type=kind, entity_name=name) for kind, name in entity
            ),
            ops=tuple(
                case.make("OpData", key=key, value=NO_VALUE if value is None else value, remove=value is None)
                for key, value in ops
            ),
        )

    def ask(scenario: str, *entries: Any, dry: bool = False) -> None:
        case.ask(scenario, entries=entries, validate_only=dry)

    def look(scenario: str, entity: Entity) -> None:
        part = parts(DESCRIBE_CLIENT_QUOTAS, 1)
        components = tuple(
            part.ComponentData(entity_type=kind, match_type=0 if name is not None else 1, match=name)
            for kind, name in entity
        )
        asked = request(DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=True)
        case.pair.ask_until_same(scenario, DESCRIBE_CLIENT_QUOTAS, 1, asked)

    ask("none")
    ask("one, to look at", entry(ann, (rate, 1_000.0)), dry=True)
    look("after a look", ann)
    ask("one", entry(ann, (rate, 1_000.0), (percentage, 12.5)))
    look("after one", ann)
    ask("the same again", entry(ann, (rate, 1_000.0)))
    ask("another value, and one less", entry(ann, (rate, 2_000.0), (percentage, None)))
    look("after another value", ann)
    ask("remove what is not there", entry(ann, (mutations, None)))
    ask("remove what nobody knows", entry(ann, ("no.such.quota", None)))
    ask("the same key twice", entry(ann, (rate, 1.0), (rate, 2.0)))
    ask("remove the same key twice", entry(ann, (rate, None), (rate, None)))
    ask("the same entity twice", entry(ann, (rate, 1.0)), entry(ann, (rate, 2.0)))
    ask("after the same entity twice", entry(ann, (rate, 2_000.0)))
    ask("an unknown key", entry(ann, ("no.such.quota", 1.0)))
    ask("a good key and an unknown one", entry(ann, (mutations, 1.0), ("no.such.quota", 1.0)))
    look("after an unknown key", ann)
    ask("a good entry and a bad one", entry(ann, (mutations, 7.0)), entry((("user", ""),), (rate, 1.0)))
    look("after a bad entry", ann)
    ask("no operations", entry(ann))
    for value in (0.0, -1.0, 0.5, 1.0000001, 1e300, float("inf")):
        for key in (rate, percentage, mutations):
            ask(f"{key} of {value}", entry((("user", case.fresh("values")),), (key, value)))
        look(f"after values of {value}", (("user", case.fresh("values")),))
    ask("no number", entry((("user", case.fresh("values")),), (rate, float("nan"))), dry=True)
    ask("no entity", entry((), (rate, 1.0)))
    ask("an unknown type", entry((("group", "g"),), (rate, 1.0)))
    ask("an empty type", entry((("", "g"),), (rate, 1.0)))
    for kind in ("user", "client-id", "ip"):
        ask(f"no name of {kind}", entry(((kind, ""),), (rate, 1.0)))
    ask("the same type twice", entry((("user", "a"), ("user", "b")), (rate, 1.0)))
    ask("a user and an address", entry((("user", "a"), ("ip", "127.0.0.9")), (rate, 1.0)))
    pair: Entity = (("user", case.fresh("ann")), ("client-id", "a b/ü%<default>"))
    ask("a user and a client", entry(pair, (rate, 9.0)))
    look("after a user and a client", pair)
    ask("in the other order", entry((pair[1], pair[0]), (mutations, 9.0)))
    look("after the other order", pair)
    client: Entity = (("client-id", case.fresh("client")),)
    ask("a client", entry(client, (rate, 5.0), ("consumer_byte_rate", 6.0)))
    ask("addresses have none of these", entry(client, ("connection_creation_rate", 5.0)))
    address: Entity = (("ip", "127.0.0.9"),)
    for host in ("127.0.0.9", "::1", "no.such.host.invalid", "1.2.3", "300.1.1.1"):
        ask(f"address {host}", entry((("ip", host),), ("connection_creation_rate", 50.0)))
    ask("half a connection", entry(address, ("connection_creation_rate", 0.5)))
    ask("bytes of an address", entry(address, (rate, 5.0)))
    look("after an address", address)
    default: Entity = (("user", case.fresh("ann")), ("client-id", None))
    ask("default clients of a user", entry(default, (rate, 1e12)))
    look("after a default", default)
    for each in (ann, pair, client, default):
        gone = (rate, percentage, mutations, "consumer_byte_rate")
        ask("remove all", entry(each, *((key, None) for key in gone)))
    for name in ("127.0.0.9", "::1", "1.2.3"):
        ask("remove an address", entry((("ip", name),), ("connection_creation_rate", None)))
    look("after all are removed", ann)


def describe_client_quotas(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[str, int, str | None], strict: bool = False) -> None:
        rows = tuple(
            case.make("ComponentData", entity_type=kind, match_type=how, match=name)
            for kind, how, name in asked
        )
        case.ask(scenario, components=rows, strict=strict)

    ask("all")
    ask("all, strictly", strict=True)
    for kind in ("user", "client-id", "ip", "group", ""):
        for how in (0, 1, 2, 3, -1):
            ask(f"{kind!r} by {how}", (kind, how, "x" if how == 0 else None))
    ask("an exact one without a name", ("user", 0, None))
    ask("a default one with a name", ("user", 1, "x"))
    ask("any one with a name", ("user", 2, "x"))
    ask("the same kind twice", ("user", 2, None), ("user", 1, None))
    ask("a user and an address", ("user", 2, None), ("ip", 2, None))


def describe_scram(case: Case) -> None:
    def ask(scenario: str, *names: str) -> None:
        case.ask(scenario, users=tuple(case.make("UserName", name=name) for name in names))

    ask("unknown", "nobody")
    ask("twice", "nobody", "nobody")
    ask("no name", "")
    ask("none")
    case.ask("all", users=None)


def alter_scram(case: Case) -> None:
    def upsert(name: str, mechanism: int = SHA_256, iterations: int = 4_096, **values: bytes) -> Any:
        made = {"salt": b"salt", "salted_password": b"p" * 32} | values
        return case.make(
            "ScramCredentialUpsertion", name=name, mechanism=mechanism, iterations=iterations, **made
        )

    def delete(name: str, mechanism: int = SHA_256) -> Any:
        return case.make("ScramCredentialDeletion", name=name, mechanism=mechanism)

    def ask(scenario: str, upsertions: tuple[Any, ...] = (), deletions: tuple[Any, ...] = ()) -> None:
        case.ask(scenario, upsertions=upsertions, deletions=deletions)

    ask("nothing")
    ask("delete unknown", (), (delete("nobody"),))
    for mechanism in (0, 3, -1, SHA_512):
        ask(f"mechanism {mechanism}", (upsert("user-a", mechanism),))
        ask(f"delete mechanism {mechanism}", (), (delete("user-b", mechanism),))
    for iterations in (0, -1, 4_095, 16_384, 16_385, 2**31 - 1):
        ask(f"{iterations} iterations", (upsert("user-c", SHA_256, iterations),))
    ask("no name", (upsert(""),))
    ask("no salt", (upsert("user-d", salt=b""),))
    ask("no password", (upsert("user-d", salted_password=b""),))
    ask("twice", (upsert("user-e"), upsert("user-e")))
    ask("twice, two mechanisms", (upsert("user-f"), upsert("user-f", SHA_512)))
    ask("set and delete", (upsert("user-g"),), (delete("user-g"),))
    ask("a good one and a bad one", (upsert("user-h"), upsert("")))
    ask("one", (upsert("user-i"),))
    ask("one more for it", (upsert("user-i", SHA_512),))
    ask("delete it", (), (delete("user-i"),))
    ask("delete it twice", (), (delete("user-i", SHA_512), delete("user-i", SHA_512)))


ACL = {"resource_type": 2, "resource_name": "x", "principal": "User:a", "host": "*"}


def describe_acls(case: Case) -> None:
    for kind in (0, 1, 2, 99, -1):
        for pattern in (0, 1, 3) if case.version >= 1 else (3,):
            case.ask(
                f"type {kind}, pattern {pattern}",
                resource_type_filter=kind,
                pattern_type_filter=pattern,
                operation=1,
                permission_type=1,
            )
    case.ask("operation 0", resource_type_filter=1, operation=0, permission_type=1)
    case.ask("permission 99", resource_type_filter=1, operation=1, permission_type=99)


def create_acls(case: Case) -> None:
    def ask(scenario: str, *changes: dict[str, Any]) -> None:
        usual = ACL | {"resource_pattern_type": 3, "operation": 3, "permission_type": 3}
        case.ask(scenario, creations=tuple(case.make("AclCreation", **usual | change) for change in changes))

    ask("one", {})
    ask("two", {}, {"resource_name": "y"})
    ask("an unknown type", {"resource_type": 99})
    ask("any type", {"resource_type": 1})
    ask("any operation", {"operation": 1})
    ask("a bad principal", {"principal": "a"})
    ask("nothing")


def delete_acls(case: Case) -> None:
    def ask(scenario: str, *changes: dict[str, Any]) -> None:
        usual = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        case.ask(
            scenario, filters=tuple(case.make("DeleteAclsFilter", **usual | change) for change in changes)
        )

    ask("all", {})
    ask("two filters", {}, {"resource_type_filter": 2})
    ask("an unknown type", {"resource_type_filter": 99})
    ask("an unknown operation", {"operation": 0})
    ask("nothing")


def unregister_broker(case: Case) -> None:
    for node_id in (7, -1, 2**31 - 1):
        case.ask(f"broker {node_id}", broker_id=node_id)
