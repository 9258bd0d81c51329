"""Recipes as dicts that show themselves."""

from __future__ import annotations

import html
import json
from typing import Any

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.reports.markup import (
    Block,
    Document,
    Facts,
    Fold,
    Heading,
    Paragraph,
    Rich,
    Table,
    as_text,
    printable,
    readable,
)

__all__ = ["Recipe"]

_MOST_JSON = 20_000


class Recipe(dict[str, Any]):
    """The plain JSON data of ``iterator.recipe()``: a dict in all respects, which notebooks show as a table of its layers.

    ``print(recipe)`` is the same as text; ``repr`` and ``json.dumps`` are those of a dict.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return str(_RecipePage(self))

    def _repr_html_(self) -> str:
        return _RecipePage(self).to_html()


class _RecipePage(Document):
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def document(self, level: int = 1) -> list[Block]:
        """The nodes from below, and in HTML the JSON text."""
        recipe = self._recipe
        try:
            rows = [_row(number, node) for number, node in enumerate(recipe["nodes"])]
            why_not = [("why not", str(reason)) for reason in recipe.get("why_not", ())]
            is_complete = "yes" if recipe.get("reproducible") else "no"
            facts = Facts([("from_recipe can make it without help", is_complete), *why_not])
            shown: list[Block] = [facts, Table(["node", "layer", "of", "arguments"], rows)]
        except Exception:  # noqa: BLE001  # somebody changed it
            shown = []
        text = _json_text(recipe)
        block = Rich("", f"<pre>{html.escape(text)}</pre>")
        return [Heading(level, "Recipe"), *shown, Fold("JSON", [Paragraph(block)])]

    def __str__(self) -> str:
        return as_text(self.document()[:-1])


def _row(number: int, node: dict[str, Any]) -> list[str]:
    arguments = {name: value for name, value in node["arguments"].items() if value is not None}
    told = ", ".join(f"{name}={shorten(value)}" for name, value in arguments.items())
    return [str(number), str(node["layer"] or "not of data_stack"), ", ".join(map(str, node["of"])), readable(told, 120)]


def _json_text(recipe: dict[str, Any]) -> str:
    try:
        text = json.dumps(recipe, indent=1, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"no JSON: {error}"
    cut = printable(text[:_MOST_JSON], keep="\n")
    return cut if len(text) <= _MOST_JSON else f"{cut}…"
