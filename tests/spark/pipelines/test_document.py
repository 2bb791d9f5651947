"""Pages of results."""

from __future__ import annotations

from html.parser import HTMLParser

from tidelog.spark.pipelines.document import Section, Table, page
from tidelog.spark.pipelines.drawing import Picture

HOSTILE = "<script>alert('&')</script>\""


class Texts(HTMLParser):
    """The text of a page, and the tags in it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "onerror")]
        self.labels += [value or "" for name, value in attrs if name == "aria-label"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_whatever_is_told_stays_text() -> None:
    table = Table((HOSTILE, "n"), [(HOSTILE, "1"), ("b", "2")], frozenset({1}))
    told = page(HOSTILE, HOSTILE, [(HOSTILE, HOSTILE)], [Section(HOSTILE, HOSTILE, None, table)])
    seen = Texts()
    seen.feed(told)
    assert "script" not in seen.tags
    assert seen.text.count(HOSTILE) == 9


def test_a_picture_is_named_for_those_who_cannot_see_it() -> None:
    drawn = Picture("name", HOSTILE, '<svg viewBox="0 0 1 1" role="img"></svg>', b"")
    told = page("Title", "", [], [Section("A", "b", drawn)])
    seen = Texts()
    seen.feed(told)
    assert seen.labels == [HOSTILE] and "script" not in seen.tags


def test_a_page_fetches_nothing_and_knows_light_and_dark() -> None:
    told = page("Title", "", [], [Section("A", "b")])
    seen = Texts()
    seen.feed(told)
    assert seen.links == [] and "url(" not in told and "http" not in told
    assert "prefers-color-scheme: dark" in told
