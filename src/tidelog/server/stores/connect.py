"""Which ZooKeeper a broker shares with others, by its settings."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.base.config import BrokerSettings
from tidelog.base.extras import install_command
from tidelog.base.setting import InvalidSetting
from tidelog.server.locks import StartFailed

if TYPE_CHECKING:
    from tidelog.server.stores.zookeeper import ZooKeeperStore

CONNECT = "zookeeper.connect"
TLS = "zookeeper.ssl.client.enable"
CHECK_NAMES = "zookeeper.ssl.endpoint.identification.algorithm"
POLL_SECONDS = 0.02  # between two looks at a connection, which takes milliseconds
# How soon kazoo tries again, in seconds: a broker cannot do without its store for long.
RETRIES = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}


class LastWarning(logging.Handler):
    """What kazoo has said last of a connection that it did not get."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "no answer"

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


async def connect(settings: BrokerSettings, notify: Callable[[], object]) -> ZooKeeperStore:
    """The store, connected. Raises InvalidSetting or StartFailed."""
    try:
        from tidelog.server.stores.zookeeper import ZooKeeperStore
    except ImportError:
        raise InvalidSetting(f"{CONNECT} needs kazoo; {install_command('cluster')}") from None
    hosts = settings.text(CONNECT)
    heard = LastWarning()
    store = ZooKeeperStore(_client(settings, heard), notify)
    until = time.monotonic() + settings.number("zookeeper.connection.timeout.ms") / 1_000
    try:
        while not store.is_connected:
            if time.monotonic() >= until:
                raise StartFailed(
                    f"{CONNECT}={hosts}: no ZooKeeper server answered within zookeeper.connection.timeout.ms "
                    f"({heard.text}); start ZooKeeper (tidelog zookeeper), or correct {_doubtful(settings)}"
                )
            await asyncio.sleep(POLL_SECONDS)
        if not await asyncio.get_running_loop().run_in_executor(None, store.is_allowed):
            raise StartFailed(_forbidden(settings))
    except BaseException:
        store.close()
        raise
    return store


def _doubtful(settings: BrokerSettings) -> str:
    return "the addresses, or zookeeper.ssl.…" if settings.flag(TLS) else "the addresses"


def _forbidden(settings: BrokerSettings) -> str:
    """Waiting does not help: somebody has to say who this broker is."""
    username = settings.text("zookeeper.username")
    who = f"to zookeeper.username={username}" if username else "(no zookeeper.username is set)"
    return (
        f"{CONNECT}={settings.text(CONNECT)}: ZooKeeper denies access {who}, and the path has ACLs; set "
        "zookeeper.username and zookeeper.password to those that created it, or use another path"
    )


def _client(settings: BrokerSettings, heard: LastWarning) -> Any:
    from kazoo.client import KazooClient
    from kazoo.security import CREATOR_ALL_ACL

    logger = logging.Logger("tidelog.zookeeper")  # which nobody else hears
    logger.addHandler(heard)
    username, password = settings.text("zookeeper.username"), settings.text("zookeeper.password")
    if settings.flag("zookeeper.set.acl") and not username:
        raise InvalidSetting("zookeeper.set.acl=true needs zookeeper.username and zookeeper.password")
    options: dict[str, Any] = {}
    if username:
        options["auth_data"] = [("digest", f"{username}:{password or ''}")]
    if settings.flag("zookeeper.set.acl"):
        options["default_acl"] = CREATOR_ALL_ACL
    if settings.flag(TLS):
        options |= _tls(settings)
    try:
        return KazooClient(
            hosts=settings.text(CONNECT),
            timeout=settings.number("zookeeper.session.timeout.ms") / 1_000,
            connection_retry=RETRIES,
            logger=logger,
            **options,
        )
    except ValueError as problem:
        raise InvalidSetting(f"{CONNECT}={settings.text(CONNECT)}: {problem}") from None


def _tls(settings: BrokerSettings) -> dict[str, Any]:
    algorithm = settings.text(CHECK_NAMES)
    if algorithm.lower() not in ("https", ""):
        raise InvalidSetting(f"{CHECK_NAMES}={algorithm}: expected https, or empty to check no host names")
    options: dict[str, Any] = {"use_ssl": True, "verify_certs": True, "check_hostname": bool(algorithm)}
    options["keyfile_password"] = settings.text("zookeeper.ssl.keystore.password") or None
    for name, words in (("truststore", ("ca",)), ("keystore", ("certfile", "keyfile"))):
        setting = f"zookeeper.ssl.{name}.location"
        path = settings.text(setting)
        if path and not os.path.isfile(path):
            raise InvalidSetting(f"{setting}={path}: no such file")
        if path:
            options |= dict.fromkeys(words, path)
    return options
