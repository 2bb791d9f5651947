"""Each client reads what each other wrote: every pair, every codec that both have."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.compat.aio.driver import Aio
from tests.compat.client import CODECS, Client, Sent, contents
from tests.compat.confluent.driver import Confluent
from tests.compat.conftest import NewTopic
from tests.compat.java.driver import Java
from tests.compat.kcat.driver import KCAT, Kcat
from tests.compat.kpython.driver import KafkaPython

CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent": Confluent,
    "aiokafka": Aio,
    "kafka-python": KafkaPython,
    "kcat": Kcat,
}
MIXED = [
    Sent(b"plain " + b"x" * 300),
    Sent(b"keyed " + b"x" * 300, b"key"),
    Sent(None, b"gone"),
    Sent(b"headed " + b"x" * 300, b"key", (("one", b"1"), ("two", b"2"))),
]


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [
        pytest.param(*pair, marks=pytest.mark.java if "Java" in pair else ())
        for pair in product([*CLIENTS, "Java"], repeat=2)
    ],
)
def test_each_reads_what_each_wrote(
    request: pytest.FixtureRequest, new_topic: NewTopic, wrote: str, reads: str
) -> None:
    writer, reader = _client(wrote, request), _client(reads, request)
    topic = new_topic()
    codecs = [codec for codec in CODECS if codec in writer.codecs and codec in reader.codecs]
    for codec in codecs:
        writer.produce(topic, MIXED, codec=codec)
    records = reader.consume(topic, len(codecs) * len(MIXED))
    assert [record.content for record in records] == len(codecs) * contents(MIXED)
    assert [record.offset for record in records] == list(range(len(records)))


def _client(name: str, request: pytest.FixtureRequest) -> Client:
    bootstrap = request.getfixturevalue("bootstrap")
    if name == "Java":
        return Java(bootstrap, request.getfixturevalue("jvm"))
    if name == "kcat" and KCAT is None:
        pytest.skip("kcat is not installed (Debian: apt install kcat)")
    return CLIENTS[name](bootstrap)
