"""The operator's log: one line for each fact, whatever is in it, and not too many."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.wire_client import WireClient
from tests.tidy_rules import ROOT, Source, in_package, sources
from tidelog.base.config import BrokerSettings
from tidelog.base.events import Event, Level, debug, error, info, warning
from tidelog.base.limits import (
    EVENT_ITEMS_MAX,
    EVENT_LINES_MAX,
    EVENT_TEXT_LENGTH_MAX,
    EVENT_TRACEBACK_LENGTH_MAX,
    EVENT_WINDOW_MS,
)
from tidelog.server.listeners import Listener
from tidelog.server.watch.report import HIDDEN, Report, as_json, as_text, settings_told, start_events
from tidelog.testing.process import BrokerProcess

WALL_MS = 1_794_776_400_123
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO |WARN |ERROR) \S.*")
SECRET = "correct horse battery staple"


class Log:
    """A report with a clock that the test moves and the lines it wrote."""

    def __init__(self, level: str = "info", is_json: bool = False) -> None:
        self.lines: list[str] = []
        self.now_ms = 0
        self.level = level
        self.report = Report(
            self.lines.append, lambda: self.level, is_json, lambda: WALL_MS, lambda: self.now_ms
        )

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.report.tick()


def test_a_line_has_time_level_fact_and_particulars() -> None:
    event = info("topic created", topic="tides", partitions=3, is_new=True, rack=None)
    assert as_text(event, WALL_MS) == (
        "2026-11-15T21:00:00.123Z INFO  topic created: topic=tides partitions=3 is_new=true rack=null"
    )
    assert as_text(error("disk gone"), WALL_MS) == "2026-11-15T21:00:00.123Z ERROR disk gone"


def test_the_same_as_json() -> None:
    line = as_json(warning("connection closed", peer="::1", seen=["a", "b"], count=2), WALL_MS)
    assert json.loads(line) == {
        "time": "2026-11-15T21:00:00.123Z",
        "level": "warning",
        "event": "connection closed",
        "peer": "::1",
        "seen": ["a", "b"],
        "count": 2,
    }
    assert list(json.loads(line))[:3] == ["time", "level", "event"]


def test_a_particular_cannot_pass_for_the_head_of_a_line() -> None:
    line = json.loads(as_json(info("x", level="error", event="y", time="now"), WALL_MS))
    assert (line["level"], line["event"], line["time"]) == ("info", "x", "2026-11-15T21:00:00.123Z")


HOSTILE = [
    "a\n2026-11-15T21:00:00.123Z ERROR directory offline: directory=/",
    "\r\n\r\n",
    "\x1b[2J\x1b]0;title\x07",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe",
    "\N{LINE SEPARATOR}\N{NEXT LINE}\0\x7f",
    '" topic="x',
    "\ud800 a lone surrogate",
    "x" * 100_000,
]


def check_hostile(text: str) -> None:
    event = warning("connection closed", reason=text, topics=[text], topic="t")
    for line in (as_text(event, WALL_MS), as_json(event, WALL_MS)):
        assert line.isprintable() and len(line.splitlines()) == 1
        assert len(line) < 20 * EVENT_TEXT_LENGTH_MAX
        line.encode()
    assert LINE.fullmatch(as_text(event, WALL_MS))
    fields = json.loads(as_json(event, WALL_MS))
    assert fields["reason"].startswith(text[:EVENT_TEXT_LENGTH_MAX]) and fields["topic"] == "t"


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_client_can_write_a_line_of_its_own(text: str) -> None:
    check_hostile(text)


@given(st.text(st.characters()))
def test_whatever_was_sent_is_one_printable_line(text: str) -> None:
    check_hostile(text)


def test_what_would_not_be_one_word_is_in_quotes() -> None:
    def word(value: str) -> str:
        return as_text(info("x", field=value), WALL_MS).partition("field=")[2]

    assert word("/data/one") == "/data/one"
    assert word("Müller") == "Müller"
    assert word("two words") == '"two words"'
    assert word('a="b"') == '"a=\\"b\\""'
    assert word("") == '""'


def test_long_lists_and_texts_are_cut_and_a_traceback_at_its_beginning() -> None:
    event = error("failed", names=[str(n) for n in range(EVENT_ITEMS_MAX + 5)], traceback="a" * 9_999 + "end")
    fields = json.loads(as_json(event, WALL_MS))
    assert len(fields["names"]) == EVENT_ITEMS_MAX + 1 and fields["names"][-1] == "… 5 more"
    assert fields["traceback"].endswith("end") and len(fields["traceback"]) == EVENT_TRACEBACK_LENGTH_MAX + 1


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("TRACE", 4), ("WARN", 2), ("FATAL", 1)],
)
def test_less_than_the_level_is_not_written(level: str, written: int) -> None:
    log = Log(level)
    for event in (debug("a"), info("b"), warning("c"), error("d")):
        log.report.tell(event)
    assert len(log.lines) == written


def test_the_level_may_change_while_it_runs() -> None:
    log = Log("error")
    log.report.tell(info("a"))
    log.level = "INFO"
    log.report.tell(info("a"))
    assert len(log.lines) == 1


def test_a_kind_of_line_is_left_out_when_there_are_too_many() -> None:
    log = Log()
    for _ in range(EVENT_LINES_MAX + 7):
        log.report.tell(warning("connection closed", peer="x"))
    log.report.tell(info("topic created"))
    assert len(log.lines) == EVENT_LINES_MAX + 1
    log.advance(EVENT_WINDOW_MS)
    assert log.lines[-1].endswith('WARN  lines suppressed: of="connection closed" count=7')
    log.advance(EVENT_WINDOW_MS)
    assert len(log.lines) == EVENT_LINES_MAX + 2


def test_what_was_left_out_is_told_before_the_next_of_its_kind_and_at_the_end() -> None:
    log = Log(is_json=True)
    for _ in range(EVENT_LINES_MAX + 1):
        log.report.tell(info("a"))
    log.now_ms += EVENT_WINDOW_MS
    for _ in range(EVENT_LINES_MAX + 2):
        log.report.tell(info("a"))
    log.report.close()
    told = [json.loads(line) for line in log.lines]
    assert [fields["count"] for fields in told if "of" in fields] == [1, 2]
    assert len(told) == 2 * EVENT_LINES_MAX + 2


def test_nobody_to_read_it_is_no_reason_to_fail() -> None:
    def write(line: str) -> None:
        raise BrokenPipeError

    report = Report(write, lambda: "info", False, lambda: WALL_MS, lambda: 0)
    report.tell(info("a"))
    Report(None, lambda: "info", False, lambda: WALL_MS, lambda: 0).tell(info("a"))


def test_a_start_tells_settings_but_no_secrets() -> None:
    settings = BrokerSettings(
        {"ssl.keystore.password": SECRET, "num.partitions": "3", "num.io.threads": "9", "listeners": "x"}
    )
    told = settings_told(settings)
    assert (told["ssl.keystore.password"], told["num.partitions"]) == (HIDDEN, "3")
    events = list(start_events(settings, [Listener("", 9092)], ["/data"]))
    names = [event.name for event in events]
    assert names == ["starting", "insecure listener opened", "settings loaded", "settings unused"]
    assert not any(SECRET in line(event, WALL_MS) for line in (as_text, as_json) for event in events)


def lines_of(process: BrokerProcess) -> list[str]:
    return process.stderr().splitlines()


def test_a_life_can_be_read_in_the_log(tmp_path: Path) -> None:
    properties = {"operator.log.level": "debug", "ssl.key.password": SECRET}
    process = BrokerProcess(tmp_path, properties)
    with process:
        with WireClient(process.port) as client:
            client.create_topic("tides")
            client.socket.sendall(b"\x7f\xff\xff\xff\x1b[2J\n")
            assert client.is_closed_by_peer()
        assert process.stop() == 0
    lines = lines_of(process)
    assert all(LINE.fullmatch(line) for line in lines), lines
    facts = [line[31:].split(":")[0] for line in lines]
    expected = ["starting", "settings loaded", "logs opened", "ready", "topic created", "connection closed"]
    assert [fact for fact in facts if fact in expected] == expected
    assert facts[-2:] == ["stopping", "stopped"]
    assert not any(SECRET in line for line in lines)


def test_a_life_can_be_read_by_a_program(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, {"operator.log.format": "json", "probe.listener": "127.0.0.1:0"})
    with process:
        process.kill()
    told: list[dict[str, Any]] = [json.loads(line) for line in lines_of(process)]
    assert told[0]["event"] == "starting"
    (ready,) = (fields for fields in told if fields["event"] == "ready")
    assert ready["address"] == f"127.0.0.1:{process.port}" and ready["level"] == "info"
    assert any(fields["event"] == "probe started" and fields["address"] for fields in told)


def test_a_recovery_tells_what_was_cut(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        with WireClient(process.port) as client:
            client.create_topic("tides")
            client.produce("tides")
        process.kill()
        (segment,) = (tmp_path / "data" / "tides-0").glob("*.log")
        with segment.open("ab") as file:
            file.write(b"\0" * 10)
        process.start()
    lines = [line for line in lines_of(process) if "log repaired" in line or "logs opened" in line]
    assert len(lines) == 3, lines
    assert "log=tides-0" in lines[1]
    assert "after_clean_stop=false" in lines[2] and "cut_bytes=10" in lines[2]


def test_events_are_the_levels_they_are_called() -> None:
    made = [debug("x"), info("x"), warning("x"), error("x", a=1)]
    assert made == [Event(level, "x", {} if level < Level.ERROR else {"a": 1}) for level in Level]


LEVELS_TOLD = tuple(level.name.lower() for level in Level)
# What is neither a noun with a past participle nor of use to be one.
PLAIN_NAMES = {
    "starting",
    "ready",
    "stopping",
    "log missing",
    "directory offline",
    "disk space low",
    "disk space available",
}


def events_in(source: Source) -> Iterator[tuple[str, str]]:
    """(level, name) of every event that the file makes; of one whose name is chosen, both names."""
    names: dict[str, list[str]] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "event":
            names["event"] = names.get("event", []) + texts_in(node.value)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            maker, first = node.func.id, node.args[0]
            if maker == "Event":
                maker, first = ast.unparse(first).rpartition(".")[2].lower(), node.args[1]
            if maker in LEVELS_TOLD:
                yield from ((maker, name) for name in texts_in(first) or names[ast.unparse(first)])


def texts_in(node: ast.expr) -> list[str]:
    branches = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,)
    return [each.value for each in branches if isinstance(each, ast.Constant) and type(each.value) is str]


def events_on_the_page() -> Iterator[tuple[str, str]]:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    for table in page.split("\n\n"):
        level, *rows = [line.split("|")[1] for line in table.splitlines() if line[:1] == "|"] or [""]
        if level.strip() in LEVELS_TOLD:
            yield from ((level.strip(), name) for row in rows for name in re.findall("`(.+?)`", row))


def events_of_the_source() -> set[tuple[str, str]]:
    made = (
        source
        for source in sources()
        if in_package(source) and "tidelog.base.events" in source.text and "base/events" not in source.path
    )
    return {event for source in made for event in events_in(source)}


def test_the_page_for_operators_lists_every_event_under_its_level() -> None:
    told = list(events_on_the_page())
    assert len(told) > 50
    assert sorted(told) == sorted(events_of_the_source())


def test_an_event_is_named_by_a_noun_and_a_past_participle() -> None:
    names = {name for _, name in events_of_the_source()} - PLAIN_NAMES
    assert [
        name for name in names if not re.fullmatch(r"[a-z -]*\b(\w+ed|lost|rebuilt|set aside)", name)
    ] == []


def test_events_of_every_form_are_seen() -> None:
    made = "tell(info('a b', x=1))\nEvent(Level.DEBUG, 'c', {})\ntell(info('d') if x else warning('e'))"
    chosen = "event = 'f' if x else 'g'\nerror(event, y=2)"
    seen = set(events_in(Source("a.py", f"{made}\n{chosen}")))
    expected = {
        ("info", "a b"),
        ("debug", "c"),
        ("info", "d"),
        ("warning", "e"),
        ("error", "f"),
        ("error", "g"),
    }
    assert seen == expected
