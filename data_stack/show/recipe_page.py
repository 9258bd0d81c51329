"""Shows recipes in notebooks."""

from __future__ import annotations

from typing import Any

from data_stack.codecs.plain_data import shorten
from data_stack.show.markup import Block, Heading, Paragraph, Table, TextDocument, readable


class Recipe(dict[str, Any], TextDocument):
    """The plain JSON data of ``iterator.recipe()``: a dict, which notebooks show as a table of its layers.

    ``print(recipe)`` prints the table as text; ``repr`` and ``json.dumps`` are those of a dict.
    """

    __slots__ = ()

    def document(self, level: int = 1) -> list[Block]:
        """The nodes, lowest first, and the reasons why ``from_recipe`` needs help."""
        try:
            rows = [_row(number, node) for number, node in enumerate(self["nodes"])]
            shown: list[Block] = [Table(["node", "layer", "of", "arguments"], rows)]
            shown += [Paragraph(f"from_recipe needs help for {reason}") for reason in self.get("why_not", ())]
        except Exception:  # noqa: BLE001  # a client changed it
            shown = [Paragraph(shorten(dict(self)))]
        return [Heading(level, "Recipe"), *shown]


def _row(number: int, node: dict[str, Any]) -> list[str]:
    arguments = ", ".join(f"{name}={shorten(value)}" for name, value in node["arguments"].items() if value is not None)
    return [
        str(number),
        str(node["layer"] or "a class outside of data_stack"),
        ", ".join(map(str, node["of"])),
        readable(arguments, 120),
    ]
