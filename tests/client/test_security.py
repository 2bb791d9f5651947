"""Kafka's security properties: what they mean, what is refused and how; TLS and SASL with Kafka itself."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from bench.peers.kafka import SETTINGS as KAFKA_SETTINGS
from bench.peers.process import PeerMissing
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.chaos.ports import unused_port
from tests.client.certificates import KEY_PASSWORD, Certificates, make_certificates
from tests.client.scripted import TOPIC, Asked, ScriptedBroker
from tests.client.test_sender import batch_of, read_back
from tests.compat.client import eventually
from tests.compat.java.tools import apache_kafka, running_kafka
from tidelog.client.cluster import Cluster, TopicPartition
from tidelog.client.connection import Connection
from tidelog.client.errors import AuthenticationFailed, BadProperty, ClientError
from tidelog.client.security import Security, parse_jaas
from tidelog.client.sender import Sender

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = 'se"cr;et'
JAAS_SECRET = SECRET.replace('"', '\\"')


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            f'{SCRAM_MODULE} required username="alice" password="secret";',
            {"username": "alice", "password": "secret"},
        ),
        (
            f"{SCRAM_MODULE} required\\n  username=alice   password='a b' ;",
            {"username": "alice", "password": "a b"},
        ),
        (
            f'{SCRAM_MODULE} required username="a=b" password="{JAAS_SECRET}";',
            {"username": "a=b", "password": SECRET},
        ),
        ("", {}),
    ],
)
def test_jaas_options_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == options


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS.*SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism=GSSAPI is not supported.*SCRAM-SHA-512"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER.*PLAIN"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "nowhere.pem"},
            "ssl.truststore.location=nowhere",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "none"}, "ssl.truststore.certificates"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "only"}, "ssl.keystore.certificate.chain"),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(properties: dict[str, str], named: str) -> None:
    with pytest.raises(BadProperty, match=named):
        Security(properties)


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.location"])
@pytest.mark.parametrize(
    ("content", "kind"), [(b"\xfe\xed\xfe\xed\0\0\0\2", ""), (b"0\x82", "PKCS12"), (b"", "JKS")]
)
def test_java_s_stores_are_refused_with_the_command_that_converts_them(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(content)
    properties = {"security.protocol": "SSL", name: str(store)}
    if kind:
        properties[name.replace("location", "type")] = kind
    with pytest.raises(BadProperty, match=f"{name}={store} is {kind or 'not PEM'}.*keytool .*{store}"):
        Security(properties)


def test_a_key_that_needs_a_password_is_refused_without_it(certificates: Certificates) -> None:
    properties = {"security.protocol": "SSL", "ssl.keystore.location": str(certificates.client_locked)}
    with pytest.raises(BadProperty, match=r"ssl\.keystore\.location") as refused:
        Security(properties | {"ssl.key.password": "wrong one"})
    assert "wrong one" not in str(refused.value)
    Security(properties | {"ssl.key.password": KEY_PASSWORD})


def test_an_empty_algorithm_switches_the_check_of_names_off(certificates: Certificates) -> None:
    properties = {"security.protocol": "SSL", "ssl.truststore.location": str(certificates.authority)}
    checked = Security(properties).tls
    unchecked = Security(properties | {"ssl.endpoint.identification.algorithm": ""}).tls
    assert checked is not None and checked.check_hostname
    assert (
        unchecked is not None and not unchecked.check_hostname and unchecked.verify_mode == ssl.CERT_REQUIRED
    )


def test_plain_sends_name_and_password_as_they_are() -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    security = Security(properties | {"sasl.username": "ä", "sasl.password": "p"})
    assert list(security.sasl_messages()) == ["\0ä\0p".encode()]


def sasl_broker(handshake_error: int = 0, authenticate_error: int = 0) -> ScriptedBroker:
    def shake(asked: Asked) -> bytes:
        return asked.respond(error_code=handshake_error, mechanisms=("GSSAPI", "OAUTHBEARER"))

    def authenticate(asked: Asked) -> bytes | None:
        if authenticate_error < 0:
            return None
        return asked.respond(error_code=authenticate_error, error_message="go away", auth_bytes=b"")

    broker = ScriptedBroker(sasl_handshake=shake, sasl_authenticate=authenticate)
    broker.versions |= {17: (0, 1), 36: (0, 1)}
    return broker


PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="{JAAS_SECRET}";',
}


@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        (
            lambda: sasl_broker(handshake_error=33),
            "does not offer sasl.mechanism=PLAIN; it offers: GSSAPI, OAUTH",
        ),
        (lambda: sasl_broker(authenticate_error=58), r"rejected the credentials \(PLAIN\): go away"),
        (lambda: sasl_broker(authenticate_error=-1), "which is how some brokers refuse a user"),
    ],
)
def test_a_refused_user_is_told_at_once_and_without_the_password(
    broker: Callable[[], ScriptedBroker], reason: str
) -> None:
    with (
        broker() as scripted,
        Cluster(PLAIN | {"bootstrap.servers": scripted.bootstrap_servers}) as cluster,
        pytest.raises(AuthenticationFailed, match=reason) as refused,
    ):
        cluster.describe(None)
    assert SECRET not in str(refused.value)


def test_a_session_that_is_nearly_over_is_left_for_a_new_one() -> None:
    lifetime = timedelta(milliseconds=1)
    with sasl_broker() as broker:
        broker.answer(
            "sasl_authenticate",
            lambda asked: asked.respond(
                error_code=0, error_message=None, auth_bytes=b"", session_lifetime=lifetime
            ),
        )
        with Cluster(PLAIN | {"bootstrap.servers": broker.bootstrap_servers}) as cluster:
            first = cluster.leader(TopicPartition(TOPIC, 0))
            eventually(lambda: not first.is_fresh, "the session never ends")
            lifetime = timedelta(hours=1)
            second = cluster.leader(TopicPartition(TOPIC, 0))
            assert second is not first and not first.is_open
            assert cluster.leader(TopicPartition(TOPIC, 0)) is second


def test_a_port_without_tls_is_told_for_what_it_is(certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"\0\0\0\x10not TLS at all, no")

        thread = threading.Thread(target=answer)
        thread.start()
        properties = {"security.protocol": "SSL", "ssl.truststore.location": str(certificates.authority)}
        with pytest.raises(AuthenticationFailed, match=r"does not speak TLS.*security\.protocol"):
            Connection("127.0.0.1", listener.getsockname()[1], properties)
        thread.join()


Ports = dict[str, int]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Ports]:
    """A Kafka with a listener for each protocol; `SSL` wants to know its clients."""
    try:
        site = apache_kafka().prepare(tmp_path_factory.mktemp("secured") / "site", KAFKA_SETTINGS)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    ports = {name: unused_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")} | {"PLAINTEXT": site.port}
    written = (site.directory / "server.properties").read_text()
    listeners = next(line for line in written.splitlines() if line.startswith("listeners="))
    more = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items() if name != "PLAINTEXT")
    settings = {
        "listeners": f"{listeners.partition('=')[2]},{more}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{name}" for name in ports),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    plain = f'{PLAIN_MODULE} required user_alice="{SECRET}";'.replace(SECRET, JAAS_SECRET).replace(
        "\\", "\\\\"
    )
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    with (site.directory / "server.properties").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in settings.items())
    with running_kafka(site) as address:
        add_scram_user(address)
        yield ports


def add_scram_user(bootstrap: str) -> None:
    kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    rows = [
        UserScramCredentialUpsertion("alice", ScramCredentialInfo(kind, 4_096), SECRET.encode())
        for kind in kinds
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for row in rows:
        for done in admin.alter_user_scram_credentials([row]).values():
            done.result()


def protocol_properties(protocol: str, mechanism: str, certificates: Certificates) -> dict[str, str]:
    properties = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        properties["ssl.truststore.location"] = str(certificates.authority)
    if protocol == "SSL":
        properties["ssl.keystore.location"] = str(certificates.client)
    if mechanism:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = f'{module} required username="alice" password="{JAAS_SECRET}";'
    return properties


SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
EVERY_WAY = [("PLAINTEXT", ""), ("SSL", "")] + [
    (protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in SASL_MECHANISMS
]


@pytest.mark.java
@pytest.mark.parametrize(("protocol", "mechanism"), EVERY_WAY)
def test_kafka_is_written_to_and_read_by_every_protocol_and_mechanism(
    secured: Ports, certificates: Certificates, protocol: str, mechanism: str
) -> None:
    properties = protocol_properties(protocol, mechanism, certificates)
    properties["bootstrap.servers"] = f"127.0.0.1:{secured[protocol]}"
    place = TopicPartition(f"secured-{protocol}-{mechanism}", 0)
    values = [b"%d" % number + b"." * 30_000 for number in range(40)]
    with Cluster(properties) as cluster:
        sender = Sender(cluster, properties=properties)
        for value in values:
            sender.send(place, batch_of(value), 1)
        sender.flush()
        assert read_back(cluster, place) == values


@pytest.mark.java
def test_kafka_refuses_a_wrong_password(secured: Ports, certificates: Certificates) -> None:
    for mechanism in SASL_MECHANISMS:
        properties = protocol_properties("SASL_PLAINTEXT", mechanism, certificates)
        properties["bootstrap.servers"] = f"127.0.0.1:{secured['SASL_PLAINTEXT']}"
        properties["sasl.password"] = "wrong"
        with Cluster(properties) as cluster, pytest.raises(AuthenticationFailed, match=rf"\({mechanism}\): "):
            cluster.describe(None)


@pytest.mark.java
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ssl.truststore.location": "stranger"}, "certificate is not trusted"),
        ({"ssl.keystore.location": None}, "certificate required|TLS|SSL"),
        ({"security.protocol": "PLAINTEXT"}, "security.protocol|closed the connection"),
    ],
)
def test_kafka_s_tls_is_refused_with_a_reason(
    secured: Ports, certificates: Certificates, changed: dict[str, str | None], reason: str
) -> None:
    properties = protocol_properties("SSL", "", certificates)
    for name, value in changed.items():
        properties.pop(name, None)
        if value is not None:
            properties[name] = str(certificates.stranger) if value == "stranger" else value
    properties |= {"bootstrap.servers": f"127.0.0.1:{secured['SSL']}", "default.api.timeout.ms": "5000"}
    with Cluster(properties) as cluster, pytest.raises(ClientError, match=reason):
        cluster.describe(None)


@pytest.mark.java
def test_certificates_and_keys_may_stand_in_the_properties(
    secured: Ports, certificates: Certificates
) -> None:
    pem = certificates.client_locked.read_text()
    key, _, chain = pem.partition("-----BEGIN CERTIFICATE")
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": certificates.authority.read_text(),
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE{chain}",
        "ssl.key.password": KEY_PASSWORD,
        "bootstrap.servers": f"localhost:{secured['SSL']}",
    }
    with Cluster(properties) as cluster:
        assert isinstance(cluster.describe(None), dict)
