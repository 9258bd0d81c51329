"""Columns and sizes as text for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

__all__ = ["columns", "size_text"]


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """The lines of a table whose first row is its header; the columns numbered in ``right`` are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(text.rjust(width) if column in right else text.ljust(width) for column, (text, width) in cells).rstrip()
        if number == 0:
            yield "  ".join(("-" if text else " ") * width for text, width in zip(row, widths, strict=True)).rstrip()


def size_text(n_bytes: int | None) -> str:
    """``n_bytes`` in words, ``"57.5 kB"`` (1 kB is 1,000 bytes); ``"-"`` if it is not known."""
    if n_bytes is None:
        return "-"
    if n_bytes < 1000:
        return f"{n_bytes} B"
    size = float(n_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"
