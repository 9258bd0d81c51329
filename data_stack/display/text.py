"""Columns and sizes as text for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from data_stack.dataset.reports.markup import printable, size_text

__all__ = ["columns", "printable", "size_text"]


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """The lines of a table whose first row is its header; the columns numbered in ``right`` are flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]  # names and labels are a stranger's
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(text.rjust(width) if column in right else text.ljust(width) for column, (text, width) in cells).rstrip()
        if number == 0:
            yield "  ".join(("-" if text else " ") * width for text, width in zip(row, widths, strict=True)).rstrip()
