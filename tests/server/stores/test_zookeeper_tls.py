"""TLS to a real ZooKeeper that wants to know its clients by their certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.ports import unused_port
from tests.client.certificates import KEY_PASSWORD, Certificates, make_certificates
from tests.server.stores.contract.client import Client
from tidelog.base.config import BrokerSettings
from tidelog.base.setting import InvalidSetting
from tidelog.cli.zookeeper_process import ZooKeeperProcess
from tidelog.cluster.paths import TOPICS
from tidelog.cluster.store import Create, Done, Node
from tidelog.server.locks import StartFailed
from tidelog.server.stores.connect import connect
from tidelog.server.stores.zookeeper import ZooKeeperStore

NODES = 1_500
OF_THIS_HOST, OF_NO_NAME = "localhost", "127.0.0.2"  # by the certificate
SSL = "zookeeper.ssl"


class SecureZooKeeper(ZooKeeperProcess):
    """One that serves TLS as well, on a port of its own."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        super().__init__(directory)
        self.certificates = certificates
        self.secure_port = unused_port()

    def _write_settings(self) -> None:
        super()._write_settings()
        settings = {
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": "0.0.0.0",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.certificates.broker,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self.certificates.authority,
            "ssl.trustStore.type": "PEM",
        }
        with open(self.directory / "zoo.cfg", "a", encoding="utf-8") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def secure(
    zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureZooKeeper]:
    directory = tmp_path_factory.mktemp("secure")
    with SecureZooKeeper(directory, make_certificates(directory)) as process:
        yield process


def join(secure: SecureZooKeeper, folder: str, host: str, **more: str) -> Client[ZooKeeperStore]:
    """As somebody whom the server knows, unless told otherwise."""
    certificates = secure.certificates
    known = {
        "client_enable": "true",
        "truststore_location": str(certificates.authority),
        "keystore_location": str(certificates.client),
    }
    properties = {f"{SSL}.{name.replace('_', '.')}": value for name, value in (known | more).items()}
    properties["zookeeper.connect"] = f"{host}:{secure.secure_port}{folder}"
    settings = BrokerSettings(properties | {"zookeeper.connection.timeout.ms": "5000"})
    return Client(lambda notify: asyncio.run(connect(settings, notify)))


def test_much_is_written_and_read_by_who_is_known(
    secure: SecureZooKeeper, new_folder: Callable[[], str]
) -> None:
    client = join(secure, new_folder(), OF_THIS_HOST)
    paths = [f"{TOPICS}/{number}" for number in range(NODES)]
    assert client.change(*(Create(path, b"x" * 100) for path in paths)) == Done()
    assert client.tree() == {path: Node(b"x" * 100, 0) for path in sorted(paths)}
    client.store.close()


def test_a_key_may_have_a_password(secure: SecureZooKeeper, new_folder: Callable[[], str]) -> None:
    locked = str(secure.certificates.client_locked)
    join(
        secure, new_folder(), OF_THIS_HOST, keystore_location=locked, keystore_password=KEY_PASSWORD
    ).store.close()


def test_a_certificate_must_be_of_the_host_that_was_asked_for(
    secure: SecureZooKeeper, new_folder: Callable[[], str]
) -> None:
    folder = new_folder()
    with pytest.raises(StartFailed, match=r"certificate is not valid for '127\.0\.0\.2'"):
        join(secure, folder, OF_NO_NAME)
    join(secure, folder, OF_NO_NAME, endpoint_identification_algorithm="").store.close()


def test_a_server_that_is_not_trusted_is_not_spoken_to(
    secure: SecureZooKeeper, new_folder: Callable[[], str]
) -> None:
    stranger = str(secure.certificates.stranger)
    with pytest.raises(StartFailed, match=r"CERTIFICATE_VERIFY_FAILED.* or zookeeper\.ssl"):
        join(secure, new_folder(), OF_THIS_HOST, truststore_location=stranger)


def test_who_shows_no_certificate_is_told_that_it_did_not_get_in(
    secure: SecureZooKeeper, new_folder: Callable[[], str]
) -> None:
    with pytest.raises(StartFailed, match=r"no ZooKeeper server answered .* or zookeeper\.ssl"):
        join(secure, new_folder(), OF_THIS_HOST, keystore_location="")


def test_what_cannot_be_is_refused_by_name(secure: SecureZooKeeper) -> None:
    with pytest.raises(InvalidSetting, match=r"endpoint\.identification\.algorithm=ldaps: expected https"):
        join(secure, "", OF_THIS_HOST, endpoint_identification_algorithm="ldaps")
    with pytest.raises(InvalidSetting, match=r"truststore\.location=/none: no such file"):
        join(secure, "", OF_THIS_HOST, truststore_location="/none")
