"""Documents that render as text or HTML, with all contents escaped."""

from __future__ import annotations

import html
import itertools
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Union

#: The maximum number of characters of a text in a line of its own; longer texts are cut.
_MAX_CHARACTERS = 80

#: The maximum number of characters of a cell or paragraph of HTML; longer texts are cut.
_MAX_HTML_CHARACTERS = 800

#: Words of more characters may be broken in a cell of HTML.
_MAX_WORD_CHARACTERS = 28

#: The color and font are those of the page; the greys and blues are readable in light and dark
#: themes.
_STYLE = """\
<style scoped>
.data-stack {font-size: 13px; line-height: 1.45; max-width: 1100px; --line: rgba(128,128,128,.28)}
.data-stack h2, .data-stack h3, .data-stack h4 {
  margin: 1em 0 .3em; font-size: 13px; font-weight: 600; line-height: 1.3}
.data-stack h2 {margin-top: .2em; font-size: 16px}
.data-stack h2 + p, .data-stack summary, .data-stack .soft, .data-stack figcaption,
.data-stack thead th {opacity: .7}
.data-stack table {border-collapse: collapse; margin: 0; font-size: 12px; border: 0}
.data-stack tr, .data-stack tbody tr:nth-child(n):nth-child(n) {background: none; border: 0}
.data-stack.data-stack th, .data-stack.data-stack td {
  padding: 3px 16px 3px 0; vertical-align: top; border: 0; max-width: 34em;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; white-space: normal}
.data-stack.data-stack .number {font-variant-numeric: tabular-nums; white-space: nowrap}
.data-stack.data-stack .long {overflow-wrap: anywhere; min-width: 14em}
.data-stack .wide {overflow-x: auto; margin: .2em 0 .9em}
.data-stack .tiles, .data-stack .beside {
  display: flex; flex-wrap: wrap; gap: 4px 14px; margin: .5em 0; align-items: flex-start}
.data-stack .beside > div {flex: 1 1 360px; max-width: max-content; min-width: 0; overflow-x: auto}
.data-stack figure {margin: 0 0 6px; max-width: 180px; font-size: 12px; overflow-wrap: anywhere}
.data-stack.data-stack img, .data-stack.data-stack svg, .data-stack audio {
  display: block; margin: 0 0 3px; max-width: none}
</style>
"""

#: On each cell, because Jupyter aligns all cells right, and some viewers remove <style>.
_LEFT = 'style="text-align: left"'
_RIGHT = 'style="text-align: right"'

# ---------------------------------------------------------------------- blocks


class Heading(NamedTuple):
    """A title.

    Attributes:
        level: 1 for the title of the document, 2 for that of a section, and so on.
        text: the title.
    """

    level: int
    text: str


class Paragraph(NamedTuple):
    """A sentence or more."""

    text: str


class Facts(NamedTuple):
    """A table of two columns, names and values, without a header."""

    rows: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """Rows below a header.

    Attributes:
        header: the titles of the columns.
        rows: the cells of each row.
        right: the numbers of the columns of numbers, which are flush right.
        max_rows: further rows are only counted.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    max_rows: int = 100

    def limit_rows(self) -> list[Sequence[str]]:
        """Return the first ``max_rows`` rows, and a row with the number of the others, if any."""
        rows = list(self.rows[: self.max_rows])
        n_more = len(self.rows) - len(rows)
        if n_more:
            empty_cells = [""] * (len(self.header) - 1)
            rows.append([f"… {n_more:,} more", *empty_cells])
        return rows


class Gallery(NamedTuple):
    """Pictures side by side.

    Attributes:
        tiles: pictures with their captions, which stand below.
    """

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
    """Make a bar.

    Args:
        share: the length, from 0 to 1.
        width: the number of characters of a bar of length 1.
    """
    n_characters = 0
    if share > 0:
        n_characters = max(1, round(width * share))
    text = "█" * n_characters
    style = f"width:{100 * share:.1f}%; height:9px; margin-top:4px; background:#5b8bd0"
    return Rich(text, f'<div style="width:120px"><div class="bar" style="{style}"></div></div>')


class Document:
    """A document. It prints as text, and shows as HTML in a notebook."""

    __slots__ = ()

    def document(self, level: int = 1) -> list[Block]:
        """Return the parts of the document; ``level`` is that of the first heading."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return the document as self-contained HTML."""
        return as_html(self.document())

    def __str__(self) -> str:
        return as_text(self.document())

    def _repr_html_(self) -> str:
        return self.to_html()


# ---------------------------------------------------------------------- texts of values


def readable(value: Any, most_characters: int = _MAX_CHARACTERS) -> str:
    """Return a value as one line of printable text, cut after ``most_characters``."""
    text = value if isinstance(value, str) else str(value)
    shown_text = printable(text[:most_characters])
    if len(text) > most_characters:
        shown_text += "…"
    return shown_text


def printable(text: str, keep: str = "") -> str:
    """Escape control, escape and bidirectional characters of a text, except those in ``keep``."""
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if not character.isprintable() and character not in keep:
            character = character.encode("unicode_escape").decode("ascii")
        characters.append(character)
    return "".join(characters)


def number_text(number: float | int | str | None) -> str:
    """Return a number as text: an integer with separators, another to six digits.

    None and an empty text become ``"-"``; another text stays.
    """
    if number is None or isinstance(number, str):
        return number or "-"
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.6g}"


def samples_text(n_samples: int) -> str:
    """Return the number of samples in words."""
    noun = "sample" if n_samples == 1 else "samples"
    return f"{n_samples:,} {noun}"


def size_text(n_bytes: int | None) -> str:
    """Return bytes as text, such as ``"57.5 kB"`` (1 kB is 1,000 bytes); ``"-"`` for None."""
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


# ---------------------------------------------------------------------- text


def as_text(blocks: Iterable[Block]) -> str:
    """Return the document for a terminal, without a line break at its end."""
    return "\n\n".join("\n".join(_text_lines(block)) for block in blocks)


def _text_lines(block: Block) -> Iterator[str]:
    """Yield the lines of a block in a terminal."""
    if isinstance(block, Heading):
        title = printable(block.text)
        underline = "=" if block.level == 1 else "-"
        yield title
        yield underline * _width(title)
    elif isinstance(block, Paragraph):
        yield printable(block.text, keep="\n")
    elif isinstance(block, Facts):
        yield from _table_lines(block.rows, has_header=False)
    elif isinstance(block, Table):
        yield from _table_lines([block.header, *block.limit_rows()], block.right)
    elif isinstance(block, Gallery):
        for picture, captions in block.tiles:
            texts = [printable(text) for text in (picture, *captions) if text]
            yield "  ".join(texts)
    elif isinstance(block, Fold):
        yield as_text([Paragraph(f"{block.title}:"), *block.blocks])
    else:
        yield as_text(itertools.chain.from_iterable(block.documents))


def _table_lines(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), *, has_header: bool = True
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        rows: the cells of each row, which may be untrusted names and labels.
        right: the numbers of the columns that are flush right.
        has_header: whether the first row is underlined.
    """
    printable_rows = [[printable(cell) for cell in row] for row in rows]
    columns = zip(*printable_rows, strict=True)
    widths = [max(_width(cell) for cell in column) for column in columns]
    for number, row in enumerate(printable_rows):
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - _width(cell))
            if column in right:
                cells.append(padding + cell)
            else:
                cells.append(cell + padding)
        yield "  ".join(cells).rstrip()
        if number == 0 and has_header:
            yield _underline(row, widths)


def _underline(header: Sequence[str], widths: Sequence[int]) -> str:
    """Return the line below a header; a column without title has none."""
    lines = []
    for title, width in zip(header, widths, strict=True):
        character = "-" if title else " "
        lines.append(character * width)
    return "  ".join(lines).rstrip()


def _width(text: str) -> int:
    """Return the width of a text in a terminal; Chinese characters and emoji take two columns."""
    if text.isascii():
        return len(text)
    return sum(_width_of_character(character) for character in text)


def _width_of_character(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return 2 if is_wide else 1


# ---------------------------------------------------------------------- HTML


def as_html(blocks: Iterable[Block]) -> str:
    """Return the document as self-contained HTML: a ``<div>`` with its own style."""
    return f'<div class="data-stack">\n{_STYLE}{_html_of_all(blocks)}\n</div>\n'


def _html_of_all(blocks: Iterable[Block]) -> str:
    return "\n".join(_html_of(block) for block in blocks)


def _html_of(block: Block) -> str:
    """Return a block as HTML."""
    if isinstance(block, Heading):
        # The title is below the <h1> of a notebook or page.
        tag = f"h{block.level + 1}"
        return f"<{tag}>{_html(block.text)}</{tag}>"
    if isinstance(block, Paragraph):
        return f"<p>{_html(block.text)}</p>"
    if isinstance(block, Facts):
        return _html_of_facts(block)
    if isinstance(block, Table):
        return _html_of_table(block)
    if isinstance(block, Gallery):
        return _html_of_gallery(block)
    if isinstance(block, Fold):
        blocks = _html_of_all(block.blocks)
        return f"<details><summary>{_html(block.title)}</summary>\n{blocks}\n</details>"
    documents = [f"<div>{_html_of_all(document)}</div>" for document in block.documents]
    return f'<div class="beside">{"".join(documents)}</div>'


def _html_of_facts(facts: Facts) -> str:
    rows = []
    for name, fact in facts.rows:
        rows.append(f"<tr>{_html_cell('th', name)}{_html_cell('td', fact)}</tr>")
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _html_of_table(table: Table) -> str:
    header = _html_row("th", table.header, table.right)
    rows = "\n".join(_html_row("td", row, table.right) for row in table.limit_rows())
    return (
        f'<div class="wide"><table>\n<thead>{header}</thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _html_of_gallery(gallery: Gallery) -> str:
    figures = []
    for picture, captions in gallery.tiles:
        lines = "<br/>".join(_html(caption) for caption in captions if caption)
        figures.append(f"<figure>{_html(picture)}<figcaption>{lines}</figcaption></figure>")
    return f'<div class="tiles">{"".join(figures)}</div>'


def _html_row(tag: str, cells: Sequence[str], right: frozenset[int]) -> str:
    columns = [_html_cell(tag, cell, column in right) for column, cell in enumerate(cells)]
    return f"<tr>{''.join(columns)}</tr>"


def _html_cell(tag: str, cell: str, is_number: bool = False) -> str:
    """Return a cell of a table, ``<th>`` or ``<td>``; numbers are flush right."""
    attributes = _LEFT
    if is_number:
        attributes = f'class="number" {_RIGHT}'
    # Words stay whole, and a wide table scrolls; only long words, such as digests and URLs, are
    # broken.
    elif max(map(len, cell.split()), default=0) > _MAX_WORD_CHARACTERS:
        attributes = f'class="long" {_LEFT}'
    return f"<{tag} {attributes}>{_html(cell)}</{tag}>"


def _html(text: str) -> str:
    """Return a text as HTML, escaped."""
    if isinstance(text, Rich):
        return text.html
    return html.escape(readable(text, _MAX_HTML_CHARACTERS), quote=True)
