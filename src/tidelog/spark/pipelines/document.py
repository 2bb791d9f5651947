"""One HTML page with figures, tables and facts, without external resources.

**Invariant:** every text is escaped; only pictures, which are drawn here, are inserted unescaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tidelog.spark.pipelines.drawing import Picture

CSS = """
:root {
  color-scheme: light dark;
  --ink: #22262e; --faint: #6b7280; --rule: #e3e6eb; --paper: #f6f7f9; --card: #fff;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --faint: #98a1b0; --rule: #333945; --paper: #14171c; --card: #1c2027; }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; }
h1 { margin: 0; font-size: 1.7rem; letter-spacing: -0.01em; }
h2 { margin: 0 0 .2rem; font-size: 1.1rem; overflow-wrap: anywhere; }
p { margin: 0 0 .8rem; color: var(--faint); }
.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem; margin: 1.2rem 0;
}
.fact, section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.fact { padding: .8rem 1rem; }
.fact b { display: block; font-size: 1.45rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.fact span { color: var(--faint); font-size: .85rem; }
section { padding: 1.2rem 1.3rem; margin-top: 1rem; }
section svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table {
  border-collapse: collapse; width: 100%; margin-top: .8rem;
  font-size: .9rem; font-variant-numeric: tabular-nums;
}
th { text-align: left; font-weight: 500; color: var(--faint); }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
.n { text-align: right; }
footer { margin-top: 2rem; color: var(--faint); font-size: .85rem; }
"""


@dataclass(frozen=True)
class Table:
    """Texts by row and column; columns of numbers are right-aligned."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    heading: str
    text: str
    picture: Picture | None = None
    table: Table | None = None


def page(title: str, subtitle: str, facts: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    cards = "".join(
        f'<div class="fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in facts
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><main><h1>{escape(title)}</h1>"
        f'<p>{escape(subtitle)}</p><div class="facts">{cards}</div>\n'
        + "\n".join(section_html(section) for section in sections)
        + "\n<footer>Times are in UTC.</footer></main></body></html>\n"
    )


def section_html(section: Section) -> str:
    drawn = named(section.picture) if section.picture else ""
    table = table_html(section.table) if section.table else ""
    return f"<section><h2>{escape(section.heading)}</h2><p>{escape(section.text)}</p>{drawn}{table}</section>"


def named(picture: Picture) -> str:
    """The drawing with an accessible name."""
    return picture.svg.replace('role="img"', f'role="img" aria-label="{escape(picture.title)}"', 1)


def table_html(table: Table) -> str:
    def cell(tag: str, index: int, text: str) -> str:
        kind = ' class="n"' if index in table.numbers else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    def row(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(cell(tag, index, text) for index, text in enumerate(texts)) + "</tr>"

    body = "".join(row("td", texts) for texts in table.rows)
    head = row("th", table.columns)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
