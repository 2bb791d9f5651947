"""The Java clients of Kafka 4.3 and 4.4 in transactions, with one broker and with three."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from bench.peers.process import PeerMissing

from tests.compat.java.jars import NEWER_VERSION, newer_clients
from tests.compat.java.jvm import Jvm
from tests.compat.java.transactor import JavaTransactor
from tests.compat.transactional import MakeTransactor, Transactions


@pytest.fixture(scope="module")
def newer_jvm(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    try:
        jars = newer_clients()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    with jvm.another(tmp_path_factory.mktemp("newer") / "stderr", jars) as newer:
        assert newer.call("version") == NEWER_VERSION
        yield newer


class TestJavaTransactions(Transactions):
    @pytest.fixture
    def make_transactor(self, jvm: Jvm, tmp_path: Path) -> MakeTransactor:
        return partial(JavaTransactor, jvm=jvm, folder=tmp_path)


class TestNewerJavaTransactions(Transactions):
    """In a JVM of its own, where the newer client stands before the other."""

    @pytest.fixture
    def make_transactor(self, newer_jvm: Jvm, tmp_path: Path) -> MakeTransactor:
        return partial(JavaTransactor, jvm=newer_jvm, folder=tmp_path, protocol="classic")
