"""Documents that render as text or HTML, with all contents escaped."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Union

_MAX_CHARACTERS = 80

# Inherits the colour and font of the page; the greys and blues are readable in light and dark themes.
_STYLE = """\
<style scoped>
.data-stack {font-size: 13px; line-height: 1.45; max-width: 1100px; --line: rgba(128,128,128,.28)}
.data-stack h2, .data-stack h3, .data-stack h4 {margin: 1em 0 .3em; font-size: 13px; font-weight: 600; line-height: 1.3}
.data-stack h2 {margin-top: .2em; font-size: 16px}
.data-stack h2 + p, .data-stack summary, .data-stack .soft, .data-stack figcaption, .data-stack thead th {opacity: .7}
.data-stack table {border-collapse: collapse; margin: 0; font-size: 12px; border: 0}
.data-stack tr, .data-stack tbody tr:nth-child(n):nth-child(n) {background: none; border: 0}
.data-stack.data-stack th, .data-stack.data-stack td {padding: 3px 16px 3px 0; vertical-align: top; border: 0; max-width: 34em;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; white-space: normal}
.data-stack.data-stack .number {font-variant-numeric: tabular-nums; white-space: nowrap}
.data-stack.data-stack .long {overflow-wrap: anywhere; min-width: 14em}
.data-stack .wide {overflow-x: auto; margin: .2em 0 .9em}
.data-stack .tiles, .data-stack .beside {display: flex; flex-wrap: wrap; gap: 4px 14px; margin: .5em 0; align-items: flex-start}
.data-stack .beside > div {flex: 1 1 360px; max-width: max-content; min-width: 0; overflow-x: auto}
.data-stack figure {margin: 0 0 6px; max-width: 180px; font-size: 12px; overflow-wrap: anywhere}
.data-stack.data-stack img, .data-stack.data-stack svg, .data-stack audio {display: block; margin: 0 0 3px; max-width: none}
</style>
"""

# On each cell, because Jupyter aligns all cells right, and some viewers remove <style>.
_LEFT, _RIGHT = 'style="text-align: left"', 'style="text-align: right"'


class Heading(NamedTuple):
    """A title; level 1 is the document's."""

    level: int
    text: str


class Paragraph(NamedTuple):
    """A sentence or more."""

    text: str


class Facts(NamedTuple):
    """Names and values."""

    rows: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """Rows below a header, of which ``max_rows`` are shown; the columns numbered in ``right`` are numbers, flush right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    max_rows: int = 100

    def limit_rows(self) -> list[Sequence[str]]:
        """The rows, or the first ones and the number of the others."""
        rows = list(self.rows[: self.max_rows])
        n_more = len(self.rows) - len(rows)
        if n_more:
            empty_cells = [""] * (len(self.header) - 1)
            rows.append([f"… {n_more:,} more", *empty_cells])
        return rows


class Gallery(NamedTuple):
    """Pictures side by side, each above its captions."""

    tiles: Sequence[tuple[str, Sequence[str]]]


class Fold(NamedTuple):
    """Blocks that unfold below a title; in text they are always shown."""

    title: str
    blocks: Sequence[Block]


class SideBySide(NamedTuple):
    """Documents side by side if the page is wide enough; in text one below the other."""

    documents: Sequence[Sequence[Block]]


Block = Union[Heading, Paragraph, Facts, Table, Gallery, Fold, SideBySide]


class Rich(str):
    """A text of a block, with HTML to show in its place.

    Args:
        text: shown in text.
        html: shown in HTML; the caller has escaped its values.
    """

    __slots__ = ("html",)

    html: str

    def __new__(cls, text: str, html: str) -> Rich:
        rich = super().__new__(cls, text)
        rich.html = html
        return rich


def bar(share: float, width: int = 24) -> Rich:
    """A bar whose length is ``share``, from 0 to 1."""
    text = "█" * (max(1, round(width * share)) if share > 0 else 0)
    style = f"width:{100 * share:.1f}%; height:9px; margin-top:4px; background:#5b8bd0"
    return Rich(text, f'<div style="width:120px"><div class="bar" style="{style}"></div></div>')


class Document:
    """A document. It prints as text, and shows as HTML in a notebook."""

    __slots__ = ()

    def document(self, level: int = 1) -> list[Block]:
        """Its parts; ``level`` is that of the first heading."""
        raise NotImplementedError

    def to_html(self) -> str:
        """The document as self-contained HTML."""
        return as_html(self.document())

    def __str__(self) -> str:
        return as_text(self.document())

    def _repr_html_(self) -> str:
        return self.to_html()


def readable(value: Any, most_characters: int = _MAX_CHARACTERS) -> str:
    """A value as one line of printable text, cut after ``most_characters``."""
    text = value if isinstance(value, str) else str(value)
    shown_text = printable(text[:most_characters])
    if len(text) > most_characters:
        shown_text += "…"
    return shown_text


def printable(text: str, keep: str = "") -> str:
    """``text`` with control, escape and bidirectional characters escaped, except ``keep``."""
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if not character.isprintable() and character not in keep:
            character = character.encode("unicode_escape").decode("ascii")
        characters.append(character)
    return "".join(characters)


def number_text(number: float | int | str | None) -> str:
    """A number of a table: integers with separators, others to six digits; ``"-"`` for None."""
    if number is None or isinstance(number, str):
        return number or "-"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


def size_text(n_bytes: int | None) -> str:
    """``n_bytes`` as text, such as ``"57.5 kB"`` (1 kB is 1,000 bytes); ``"-"`` for None."""
    if n_bytes is None:
        return "-"
    if n_bytes < 1000:
        return f"{n_bytes} B"
    size = n_bytes / 1000
    for unit in ("kB", "MB", "GB"):
        # From here on the text would be "1000.0".
        if size < 999.95:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def as_text(blocks: Iterable[Block]) -> str:
    """The document for a terminal, without a line break at its end."""
    return "\n\n".join("\n".join(_text_lines(block)) for block in blocks)


def _columns(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), *, has_header: bool = True
) -> Iterator[str]:
    """The lines of a table whose first row may be its header; the columns numbered in ``right`` are flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]  # untrusted names and labels
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = []
        for column, (text, width) in enumerate(zip(row, widths, strict=True)):
            room = " " * (width - _width(text))
            cells.append(room + text if column in right else text + room)
        yield "  ".join(cells).rstrip()
        if number == 0 and has_header:
            yield "  ".join(
                ("-" if text else " ") * width for text, width in zip(row, widths, strict=True)
            ).rstrip()


def _width(text: str) -> int:
    """The width of ``text`` in a terminal; Chinese characters and emoji are two columns wide."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _text_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield printable(block.text)
        yield ("=" if block.level == 1 else "-") * _width(printable(block.text))
    elif isinstance(block, Paragraph):
        yield printable(block.text, keep="\n")
    elif isinstance(block, Facts):
        yield from _columns(block.rows, has_header=False)
    elif isinstance(block, Table):
        yield from _columns([block.header, *block.limit_rows()], block.right)
    elif isinstance(block, Gallery):
        yield from (
            "  ".join(printable(each) for each in (picture, *captions) if each)
            for picture, captions in block.tiles
        )
    elif isinstance(block, Fold):
        yield as_text([Paragraph(f"{block.title}:"), *block.blocks])
    else:
        yield as_text(each for document in block.documents for each in document)


def as_html(blocks: Iterable[Block]) -> str:
    """The document as self-contained HTML: a ``<div>`` with its own style."""
    parts = "\n".join(_html_of(block) for block in blocks)
    return f'<div class="data-stack">\n{_STYLE}{parts}\n</div>\n'


def _html_of(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level + 1}>{_html(block.text)}</h{block.level + 1}>"  # below the <h1> of a notebook or page
    if isinstance(block, Paragraph):
        return f"<p>{_html(block.text)}</p>"
    if isinstance(block, Facts):
        rows = "".join(
            f"<tr>{_html_cell('th', name)}{_html_cell('td', fact)}</tr>"
            for name, fact in block.rows
        )
        return f'<div class="wide"><table>{rows}</table></div>'
    if isinstance(block, Gallery):
        lines = [
            "<br/>".join(_html(caption) for caption in captions if caption)
            for _, captions in block.tiles
        ]
        tiles = zip(block.tiles, lines, strict=True)
        shown = (
            f"<figure>{_html(picture)}<figcaption>{line}</figcaption></figure>"
            for (picture, _), line in tiles
        )
        return f'<div class="tiles">{"".join(shown)}</div>'
    if isinstance(block, Fold):
        parts = "\n".join(map(_html_of, block.blocks))
        return f"<details><summary>{_html(block.title)}</summary>\n{parts}\n</details>"
    if isinstance(block, SideBySide):
        documents = ("\n".join(map(_html_of, document)) for document in block.documents)
        return f'<div class="beside">{"".join(f"<div>{each}</div>" for each in documents)}</div>'
    header = _html_row("th", block.header, block.right)
    rows = "\n".join(_html_row("td", row, block.right) for row in block.limit_rows())
    return f'<div class="wide"><table>\n<thead>{header}</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'


def _html_row(kind: str, cells: Sequence[str], right: frozenset[int]) -> str:
    return f"<tr>{''.join(_html_cell(kind, cell, column in right) for column, cell in enumerate(cells))}</tr>"


def _html_cell(kind: str, cell: str, is_number: bool = False) -> str:
    # Words stay whole, and a wide table scrolls; only long words, such as digests and URLs, are broken.
    is_long = not is_number and max(map(len, cell.split()), default=0) > 28
    attributes = _LEFT
    if is_number:
        attributes = f'class="number" {_RIGHT}'
    elif is_long:
        attributes = f'class="long" {_LEFT}'
    return f"<{kind} {attributes}>{_html(cell)}</{kind}>"


def _html(text: str) -> str:
    if isinstance(text, Rich):
        return text.html
    return html.escape(readable(text, 10 * _MAX_CHARACTERS), quote=True)
