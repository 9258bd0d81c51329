"""The splits of a dataset as a dict that shows them side by side."""

from __future__ import annotations

from typing import Any, TypeVar

from data_stack.dataset.display.page import IteratorPage, Parts
from data_stack.dataset.reports.markup import Beside, Block, Document, Heading, Paragraph, as_text

__all__ = ["Splits"]

_Iterator = TypeVar("_Iterator")

_MOST_SHOWN = 8
_N_BYTES = 130_000


class Splits(dict[str, _Iterator]):
    """Iterators by the name of their split: a dict in all respects, which notebooks show side by side.

    ``print(splits)`` is the same as text; ``repr`` is that of a dict.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return str(_SplitsPage(self))

    def _repr_html_(self) -> str:
        return _SplitsPage(self).to_html()


class _SplitsPage(Document):
    """A column for each split."""

    def __init__(self, splits: dict[str, Any]) -> None:
        self._splits = splits

    def document(self, level: int = 1) -> list[Block]:
        """Title, the splits side by side, and once what they share."""
        shown = list(self._splits.items())[:_MOST_SHOWN]
        n_bytes = _N_BYTES // max(1, len(shown))
        pages = {str(name): IteratorPage(iterator, n_bytes=n_bytes).parts() for name, iterator in shown}
        if not pages:
            return [Paragraph("no splits")]
        first, *others = pages.values()
        shares_columns = bool(others) and all(each.columns == first.columns for each in others)
        sides = [self._side(level + 1, name, parts, not shares_columns) for name, parts in pages.items()]
        n_more = len(self._splits) - len(shown)
        more: list[Block] = [Paragraph(f"… {n_more:,} more splits")] if n_more else []
        title = first.title.rpartition(", ")[0] or first.title
        return [Heading(level, title), Beside(sides), *(first.columns if shares_columns else []), *more]

    def __str__(self) -> str:
        return as_text(self.document())

    def _side(self, level: int, name: str, parts: Parts, has_columns: bool) -> list[Block]:
        columns = parts.columns if has_columns else []
        return [Heading(level, name), *parts.facts, *parts.samples, *columns, *parts.targets]
