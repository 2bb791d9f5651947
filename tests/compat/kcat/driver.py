"""kcat (Debian's package) as a `Client`: one process for each call.

Its input is lines, so keys and values here are text without newlines and without the key delimiter. Headers
and null handling are switches of the whole process: records that need other switches go to another one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from tests.compat.client import (
    CODECS,
    CONSUME_SECONDS_MAX,
    LONG_POLL_MS,
    MESSAGE_TOO_LARGE,
    Acknowledged,
    Acks,
    Received,
    Refused,
    Sent,
    Start,
    enough,
)

KCAT = shutil.which("kcat")
KEY_DELIMITER = "|"
DELIVERED = re.compile(r"% Message delivered to partition 0 \(offset (-?\d+)\)")
QUERIED = re.compile(r"\[0\] offset (-?\d+)$", re.MULTILINE)
FETCH_SENT = "toppar(s)"
REFUSALS = {"Broker: Message size too large": MESSAGE_TOO_LARGE}
EARLIEST_TIME, LATEST_TIME = -2, -1


class Kcat:
    name = "kcat"
    codecs = CODECS
    sets_timestamps = False
    sends_both_null = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Acknowledged]:
        settings = {
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": "50",
            "topic.produce.offset.report": "true",
        }
        acknowledged: list[Acknowledged] = []
        for switches, group in groupby(records, _switches):
            command = self._command("-P", topic, settings, ["-vvv", *switches])
            text = "".join(_line(record, KEY_DELIMITER in switches) for record in group)
            acknowledged += _delivered(_run(command, text))
        return acknowledged

    def consume(
        self, topic: str, count: int, *, start: Start = "earliest", committed_only: bool = False
    ) -> list[Received]:
        settings = {"isolation.level": "read_committed" if committed_only else "read_uncommitted"}
        switches = ["-J", "-c", str(count), "-o", _place(start)]
        command = self._command("-C", topic, settings, switches)
        lines = _output(command).splitlines()
        return enough([_received(line) for line in lines], count, topic)

    def consume_after(self, topic: str, act: Callable[[], object], *, start: Start) -> Received:
        settings = {"fetch.wait.max.ms": str(LONG_POLL_MS), "debug": "fetch"}
        command = self._command("-C", topic, settings, ["-J", "-c", "1", "-o", _place(start)])
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                assert any(FETCH_SENT in line for line in process.stderr), "kcat sent no fetch"
                act()
                line, _ = process.communicate(timeout=CONSUME_SECONDS_MAX)
            finally:
                process.kill()
        return _received(line)

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        offset = self._query(topic, timestamp_ms)
        return None if offset < 0 else offset

    def edges(self, topic: str) -> tuple[int, int]:
        return self._query(topic, EARLIEST_TIME), self._query(topic, LATEST_TIME)

    def topics(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._listed()["topics"]}

    def leader(self, topic: str) -> int:
        (partitions,) = (each["partitions"] for each in self._listed()["topics"] if each["topic"] == topic)
        return int(partitions[0]["leader"])

    def brokers(self) -> set[int]:
        return {broker["id"] for broker in self._listed()["brokers"]}

    def values_between(self, topic: str, start_ms: int, end_ms: int) -> list[str]:
        """The values of the records from one time to another (exclusive)."""
        switches = ["-q", "-o", f"s@{start_ms}", "-o", f"e@{end_ms}"]
        return _output(self._command("-C", topic, {}, switches)).splitlines()

    def _listed(self) -> Any:
        assert KCAT is not None
        return json.loads(_output([KCAT, "-L", "-J", "-b", self.bootstrap]))

    def _query(self, topic: str, timestamp_ms: int) -> int:
        assert KCAT is not None
        command = [KCAT, "-Q", "-b", self.bootstrap, "-t", f"{topic}:0:{timestamp_ms}"]
        found = QUERIED.search(_output(command))
        assert found is not None
        return int(found[1])

    def _command(self, mode: str, topic: str, settings: dict[str, str], switches: Iterable[str]) -> list[str]:
        assert KCAT is not None
        options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
        return [KCAT, mode, "-b", self.bootstrap, "-t", topic, "-p", "0", *options, *switches]


def _run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=CONSUME_SECONDS_MAX, check=False
    )


def _output(command: Sequence[str]) -> str:
    done = _run(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _switches(record: Sent) -> tuple[str, ...]:
    headers = [part for name, value in record.headers for part in ("-H", f"{name}={(value or b'').decode()}")]
    if record.key is None and record.value:
        return tuple(headers)
    nulls = ["-Z"] if record.key is None or record.value is None else []
    return (*headers, "-K", KEY_DELIMITER, *nulls)


def _line(record: Sent, keyed: bool) -> str:
    key = (record.key or b"").decode() + KEY_DELIMITER if keyed else ""
    return key + (record.value or b"").decode() + "\n"


def _delivered(done: subprocess.CompletedProcess[str]) -> list[Acknowledged]:
    for said, code in REFUSALS.items():
        if said in done.stderr:
            raise Refused(code, said)
    assert done.returncode == 0, done.stderr
    return [Acknowledged(int(offset)) for offset in DELIVERED.findall(done.stderr)]


def _received(line: str) -> Received:
    record = json.loads(line)
    flat = record.get("headers", [])
    return Received(
        offset=record["offset"],
        key=_encoded(record["key"]),
        value=_encoded(record["payload"]),
        headers=tuple((name, _encoded(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)),
        timestamp_ms=record["ts"],
        timestamp_type=record["tstype"] if record["tstype"] == "create" else "append",
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _place(start: Start) -> str:
    return {"earliest": "beginning", "latest": "end"}[start] if isinstance(start, str) else str(start)
