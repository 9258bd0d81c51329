"""Documents of headings, facts and tables, as text, Markdown and HTML, with all contents escaped."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

__all__ = [
    "Block",
    "Document",
    "Facts",
    "Heading",
    "Paragraph",
    "Table",
    "as_html",
    "as_markdown",
    "as_text",
    "columns",
    "fact_lines",
    "number_text",
    "printable",
    "readable",
    "size_text",
]

_MOST_CHARACTERS = 80
_MOST_ROWS = 100

# Without colours, for light and dark pages.
_STYLE = """\
<style scoped>
.data-stack {font-family: sans-serif; font-size: 13px; line-height: 1.4}
.data-stack table {border-collapse: collapse; margin: 0.4em 0 1em}
.data-stack th, .data-stack td {padding: 2px 10px 2px 0; vertical-align: top; border: 0}
.data-stack th {border-bottom: 1px solid; font-weight: bold}
.data-stack .number {font-variant-numeric: tabular-nums}
</style>
"""

# On each cell, as Jupyter aligns all cells right, and some viewers remove <style>.
_LEFT, _RIGHT = 'style="text-align: left"', 'style="text-align: right"'

_MARKDOWN_SIGNS = {sign: "\\" + sign for sign in "\\`*_[]#~|"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass(frozen=True, slots=True)
class Heading:
    """A title; level 1 is the document's."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or more."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a header, of which 100 are shown; the columns numbered in ``right`` are numbers, flush right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()

    def limit_rows(self) -> list[Sequence[str]]:
        """The rows, or the first ones and how many more there are."""
        n_more = len(self.rows) - _MOST_ROWS
        more = [[f"… {n_more:,} more", *[""] * (len(self.header) - 1)]] if n_more > 0 else []
        return [*self.rows[:_MOST_ROWS], *more]


Block = Union[Heading, Paragraph, Facts, Table]


class Document:
    """A document. It prints as Markdown, and shows as HTML in a notebook."""

    __slots__ = ()

    def document(self, level: int = 1) -> list[Block]:
        """Its parts; ``level`` is that of the first heading."""
        raise NotImplementedError

    def to_markdown(self) -> str:
        """The document as Markdown."""
        return as_markdown(self.document())

    def to_html(self) -> str:
        """The document as self-contained HTML."""
        return as_html(self.document())

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()


def readable(value: Any, most_characters: int = _MOST_CHARACTERS) -> str:
    """A value as one line of printable text, cut after ``most_characters``."""
    text = value if isinstance(value, str) else str(value)
    shown = text[:most_characters]
    return printable(shown) + "…" if len(text) > most_characters else printable(shown)


def printable(text: str, keep: str = "") -> str:
    """``text`` with control, escape and bidirectional characters escaped, except ``keep``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii") for each in text)


def number_text(number: float | int | str | None) -> str:
    """A number of a table: integers with separators, others to six digits; ``"-"`` for None."""
    if number is None:
        return "-"
    if isinstance(number, str):
        return number
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


def size_text(n_bytes: int | None) -> str:
    """``n_bytes`` in words, ``"57.5 kB"`` (1 kB is 1,000 bytes); ``"-"`` if it is not known."""
    if n_bytes is None:
        return "-"
    if n_bytes < 1000:
        return f"{n_bytes} B"
    size, units = n_bytes / 1000, ["kB", "MB", "GB", "TB"]
    while size >= 999.95 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.1f} {units[0]}"


def as_text(blocks: Iterable[Block]) -> str:
    """The document for a terminal, without a line break at its end."""
    return "\n\n".join("\n".join(_text_lines(block)) for block in blocks)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """The lines of a table whose first row is its header; the columns numbered in ``right`` are flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]  # untrusted names and labels
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(_pad(text, width, column in right) for column, (text, width) in cells).rstrip()
        if number == 0:
            yield "  ".join(("-" if text else " ") * width for text, width in zip(row, widths, strict=True)).rstrip()


def fact_lines(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Names and values in two columns."""
    width = max((_width(printable(name)) for name, _ in rows), default=0)
    yield from (f"{_pad(printable(name), width)}  {printable(fact)}".rstrip() for name, fact in rows)


def _pad(text: str, width: int, right: bool = False) -> str:
    room = " " * (width - _width(text))
    return room + text if right else text + room


def _width(text: str) -> int:
    """The columns of a terminal that ``text`` takes; Chinese characters and emoji take two each."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _text_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield printable(block.text)
        yield ("=" if block.level == 1 else "-") * _width(printable(block.text))
    elif isinstance(block, Paragraph):
        yield printable(block.text, keep="\n")
    elif isinstance(block, Facts):
        yield from fact_lines(block.rows)
    else:
        yield from columns([block.header, *block.limit_rows()], block.right)


def as_markdown(blocks: Iterable[Block]) -> str:
    """The document as GitHub's Markdown; ends with a line break."""
    return "\n\n".join("\n".join(_markdown_lines(block)) for block in blocks) + "\n"


def as_html(blocks: Iterable[Block]) -> str:
    """The document as self-contained HTML: a ``<div>`` with its own style."""
    parts = "\n".join(_html_of(block) for block in blocks)
    return f'<div class="data-stack">\n{_STYLE}{parts}\n</div>\n'


def _markdown_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {_markdown(block.text)}"
    elif isinstance(block, Paragraph):
        yield _markdown(block.text)
    elif isinstance(block, Facts):
        for name, fact in block.rows:
            yield f"- **{_markdown(name)}**: {_markdown(fact)}"
    else:
        yield _markdown_row([_markdown(cell) for cell in block.header])
        yield _markdown_row(["--:" if column in block.right else ":--" for column in range(len(block.header))])
        for row in block.limit_rows():
            yield _markdown_row([_markdown(cell) for cell in row])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return "".join(_MARKDOWN_SIGNS.get(each, each) for each in readable(text, 10 * _MOST_CHARACTERS))


def _html_of(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level + 2}>{_html(block.text)}</h{block.level + 2}>"
    if isinstance(block, Paragraph):
        return f"<p>{_html(block.text)}</p>"
    if isinstance(block, Facts):
        rows = "".join(f"<tr><th {_LEFT}>{_html(name)}</th><td {_LEFT}>{_html(fact)}</td></tr>" for name, fact in block.rows)
        return f"<table>{rows}</table>"
    header = _html_row("th", block.header, block.right)
    rows = "\n".join(_html_row("td", row, block.right) for row in block.limit_rows())
    return f"<table>\n<thead>{header}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _html_row(kind: str, cells: Sequence[str], right: frozenset[int]) -> str:
    shown = []
    for column, cell in enumerate(cells):
        sort = f' class="number" {_RIGHT}' if column in right else f" {_LEFT}"
        shown.append(f"<{kind}{sort}>{_html(cell)}</{kind}>")
    return f"<tr>{''.join(shown)}</tr>"


def _html(text: str) -> str:
    return html.escape(readable(text, 10 * _MOST_CHARACTERS), quote=True)
