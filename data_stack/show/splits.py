"""The splits of a dataset as a dict that notebooks show side by side."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from data_stack.show.markup import Block, Document, Facts, Heading, Paragraph, SideBySide, as_text
from data_stack.util.suggestions import did_you_mean

# The page of an iterator is imported by the methods that show it: loading a dataset makes Splits,
# and the import takes as long as a fifth of the rest of the first load.

#: The maximum number of splits that are shown side by side; of others the number is shown.
_MAX_SHOWN = 8
#: Bytes of the pictures and sounds of all splits together.
_MAX_MEDIA_BYTES = 130_000

_Iterator = TypeVar("_Iterator")


class Splits(dict[str, _Iterator], Document):
    """Iterators by the name of their split: a dict, whose splits notebooks show side by side.

    ``print(splits)`` lists their lengths and licenses, and reads no sample. Equality, ``repr`` and
    pickling are those of a dict.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if self and not name.startswith("_"):
            names = list(self)
            message += (
                f": it is a dict of splits. Take one of {', '.join(map(repr, names))}, "
                f"as in splits[{names[0]!r}]"
            )
        raise AttributeError(message, name=name, obj=self)

    def __missing__(self, name: object) -> NoReturn:
        known = ", ".join(map(repr, self))
        raise KeyError(f"no split {name!r:.80}{did_you_mean(name, self)}; the splits are {known}")

    def __str__(self) -> str:
        from data_stack.show.page import IteratorPage

        if not self:
            return as_text([Heading(1, "no splits"), Facts([])])
        pages = {str(name): IteratorPage(iterator) for name, iterator in self.items()}
        first_page = next(iter(pages.values()))
        facts = [(name, as_text(page.facts())) for name, page in pages.items()]
        return as_text([Heading(1, _without_split(first_page.title)), Facts(facts)])

    def document(self, level: int = 1) -> list[Block]:
        """Return the title, the splits side by side, and the columns that they share."""
        from data_stack.show.page import IteratorPage

        if not self:
            return [Paragraph("no splits")]
        shown = list(self.items())[:_MAX_SHOWN]
        n_bytes = _MAX_MEDIA_BYTES // len(shown)
        pages = {str(name): IteratorPage(iterator, n_bytes=n_bytes) for name, iterator in shown}

        # Columns that all splits have alike are shown once, below the splits.
        columns = {name: page.columns() for name, page in pages.items()}
        first_columns = next(iter(columns.values()))
        are_alike = all(columns_of_split == first_columns for columns_of_split in columns.values())
        are_shared = len(columns) > 1 and are_alike

        sides: list[list[Block]] = []
        for name, page in pages.items():
            side: list[Block] = [Heading(level + 1, name), *page.facts(), *page.samples()]
            if not are_shared:
                side += columns[name]
            side += page.targets()
            sides.append(side)

        first_page = next(iter(pages.values()))
        blocks: list[Block] = [Heading(level, _without_split(first_page.title)), SideBySide(sides)]
        if are_shared:
            blocks += first_columns
        n_more = len(self) - len(shown)
        if n_more:
            blocks.append(Paragraph(f"… {n_more:,} more splits"))
        return blocks


def _without_split(title: str) -> str:
    """Return the title of an iterator's page without the name of its split."""
    name, _, split = title.rpartition(", ")
    return name or split
