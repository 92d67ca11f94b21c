"""Lay out a page of HTML: headings, tables, and figures as inline SVG whose letters are never too small to read."""

import io
import math
import re
import zlib
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Width and height of a figure in units, and the size of its letters. A small one is shown 312 units wide or wider, and
# one over the whole width at 700 or wider, or else as a small one, so that no letter is below 10 pixels.
SMALL, WIDE = ((340, 240), 11), ((900, 330), 13)
STYLE = """
@page { margin: 12mm; }
:root { color-scheme: light; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; }
body { max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0; } .about { color: #555; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .8rem; padding-bottom: .2rem; border-bottom: 1px solid #ddd; }
h2, .note { break-after: avoid; } .note { font-size: .9rem; color: #444; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .95rem; } tr { break-inside: avoid; border-bottom: 1px solid #eee; }
td, th { padding: .2rem 1.2rem .2rem 0; vertical-align: top; text-align: left; font-weight: normal; }
th, small { color: #555; font-size: .85rem; } td:last-child, th:last-child { padding-right: 0; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.words tr { border: 0; } .words td:first-child { min-width: 7rem; color: #555; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19.5rem), 1fr)); gap: 1.2rem 1rem; }
.wide { grid-column: 1 / -1; } figure { margin: 0; break-inside: avoid; } figcaption { font-weight: 600; }
figcaption { font-size: .9rem; } svg { display: block; width: 100%; height: auto; } .phone { display: none; }
.warning { background: #fff4e0; border-left: .3rem solid #e08a00; padding: .4rem .8rem; margin: .4rem 0; }
.good { background: #eaf6ec; border-left: .3rem solid #3a9b4b; padding: .4rem .8rem; }
@media screen and (max-width: 760px) {
  .desk { display: none; } .phone { display: block; } .words td:first-child { min-width: 5rem; }
  td, th { padding-right: .7rem; } table { font-size: .85rem; } .rows, .rows tbody { display: block; }
  .rows tr { display: flex; flex-wrap: wrap; } .rows td, .rows th { flex: 1 1 0; min-width: min-content; }
  .rows :is(td, th):first-child { flex: 1 0 100%; }
}
@media print { body { padding: 0; } * { print-color-adjust: exact; } }
"""


def page(title: str, heading: str, about: list[str], sections: dict[str, str]) -> str:
    """Return a page; sections have titles and HTML, and those without content are left out."""
    body = "".join(f"<h2>{escape(name)}</h2>{content}" for name, content in sections.items() if content)
    lines = "".join(f'<p class="about">{_words(line)}</p>' for line in about)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><h1>{escape(heading)}</h1>{lines}{body}</body></html>\n"
    )


def paragraphs(warnings: list[str]) -> str:
    """Return warnings, or the good news that there are none."""
    if not warnings:
        return '<p class="good">Nothing unusual was found.</p>'
    return "".join(f'<p class="warning">{escape(warning)}</p>' for warning in warnings)


def table(rows: Sequence[Sequence[Any]], head: Sequence[str] = (), kind: str = "numbers") -> str:
    """Return rows of cells as a table; numbers stay on one line, and a second line of words is small.

    kind: "numbers", "words", or "rows" with many cells, of which narrow windows show the first above the others.
    """
    first = f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>" if head else ""
    lines = ("".join(map(_cell, row)) for row in rows)
    return f'<table class="{kind}">{first}{"".join(f"<tr>{line}</tr>" for line in lines)}</table>' if rows else ""


def _cell(content: Any) -> str:
    if isinstance(content, str):
        first, *more = _words(content).split("\n")
        return f"<td>{first}{''.join(f'<br><small>{line}</small>' for line in more)}</td>"
    return f'<td class="number">{escape(shown(content))}</td>'


def _words(text: str) -> str:
    """Return text as HTML in which no line ends within a date."""
    return re.sub(r"\d{4}-\d\d-\d\d", r'<span class="number">\g<0></span>', escape(text))


def shown(value: float) -> str:
    """Return a number with four digits, thousands apart.

    >>> shown(1234.5), shown(0.012345), shown(-2.0), shown(3e-7)
    ('1,234', '0.01235', '-2', '3e-07')
    """
    digits = 3 - math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    if digits > 7 or digits < -11:
        return f"{value:.4g}"
    text = f"{value:,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def grid(note: str, figures: Sequence[str]) -> str:
    """Return figures side by side, as many as there is room for, after a note that explains them."""
    return f'{paragraph(note)}<div class="figures">{"".join(figures)}</div>'


def paragraph(text: str) -> str:
    """Return a note on what follows."""
    return f'<p class="note">{escape(text)}</p>'


def figure(plot: Callable[..., Axes], caption: str, *, wide: bool = False, **labels: str) -> str:
    """Return a figure of one plot as inline SVG; a wide one has two forms, of which narrow windows show the second."""
    text = escape(caption)
    images = f'<div class="desk">{_svg(plot, caption, WIDE, labels)}</div><div class="phone">' * wide
    images += _svg(plot, caption + wide * "-", SMALL, labels) + "</div>" * wide
    attributes = ' class="wide"' if wide else ""
    return f'<figure{attributes} role="img" aria-label="{text}"><figcaption>{text}</figcaption>{images}</figure>'


def _svg(plot: Callable[..., Axes], name: str, form: tuple, labels: dict[str, str]) -> str:
    """Return one plot as SVG with ids that are unique on the page, as the names of figures are."""
    (width, height), size = form
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "font.size": size}
    style |= {"text.parse_math": False}  # of names with dollar signs
    style |= {f"{part}.labelsize": size for part in ("axes", "xtick", "ytick")} | {"legend.fontsize": size}
    style |= {"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7}
    with matplotlib.rc_context(style):
        drawing = Figure(figsize=(width / 72, height / 72), layout="constrained")
        plot(ax=drawing.subplots()).set(**labels)
        stream = io.StringIO()
        drawing.savefig(stream, format="svg", metadata={"Date": None})
    prefix, svg = f"f{zlib.crc32(name.encode()):x}-", stream.getvalue()
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg[svg.index("<svg") :])
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", svg)
