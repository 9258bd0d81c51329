"""Shows the splits of a dataset in notebooks."""

from __future__ import annotations

from typing import Any, TypeVar

from data_stack.show.markup import Beside, Block, Document, Facts, Heading, Paragraph, as_text
from data_stack.show.page import IteratorPage

_Iterator = TypeVar("_Iterator")

_MAX_SHOWN = 8
_N_BYTES = 130_000


class Splits(dict[str, _Iterator], Document):
    """Iterators by the name of their split: a dict, whose splits notebooks show side by side.

    ``print(splits)`` lists their lengths and licences, and reads no sample; ``repr`` is that of a dict.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if self and not name.startswith("_"):
            first = next(iter(self))
            message += f": it is a dict of splits. Take one of {', '.join(map(repr, self))}, as in splits[{first!r}]"
        raise AttributeError(message, name=name, obj=self)

    def __str__(self) -> str:
        facts = [(str(name), as_text(IteratorPage(iterator).facts())) for name, iterator in self.items()]
        title = IteratorPage(next(iter(self.values()))).title.rpartition(", ") if self else ("", "", "no splits")
        return as_text([Heading(1, title[0] or title[2]), Facts(facts)])

    def document(self, level: int = 1) -> list[Block]:
        """The title, the splits side by side, and the columns that they share."""
        shown = list(self.items())[:_MAX_SHOWN]
        pages = {str(name): IteratorPage(iterator, n_bytes=_N_BYTES // len(shown)) for name, iterator in shown}
        if not pages:
            return [Paragraph("no splits")]
        columns = [page.columns() for page in pages.values()]
        shared = columns[0] if len(columns) > 1 and all(each == columns[0] for each in columns) else []
        sides = [
            [Heading(level + 1, name), *page.facts(), *page.samples(), *([] if shared else own), *page.targets()]
            for (name, page), own in zip(pages.items(), columns, strict=True)
        ]
        n_more = len(self) - len(shown)
        more: list[Block] = [Paragraph(f"… {n_more:,} more splits")] if n_more else []
        title = next(iter(pages.values())).title
        return [Heading(level, title.rpartition(", ")[0] or title), Beside(sides), *shared, *more]
