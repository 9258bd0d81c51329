"""What stands behind the names that iterators stack themselves by: layers, and operations that are no layers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from data_stack.exception import MissingDependencyError

if TYPE_CHECKING:
    from data_stack.dataset.iterator.iterator import DatasetIteratorIF

__all__ = ["LAYERS", "known_layers", "operation"]

# The base class offers `iterator.shuffle(...)`, but a shuffled iterator is built on the base class. So the base class knows
# names only, and what they mean is looked up when they are used.

LAYERS: dict[str, type[DatasetIteratorIF]] = {}
"""Classes by the name that stands for them in a recipe; each puts itself here when it is made."""

# By name alone: a loader is above iterators, but a recipe may name what it brings.
_OUTSIDE_OF_THIS_PACKAGE = (
    "data_stack.dataset.splits.parts",
    "data_stack.loader.sources",
)
# Of modules that need an optional package: who lacks it cannot have such a layer either.
_WITH_EXTRAS = ("data_stack.formats.parquet.ngram", "data_stack.formats.parquet.transformed")

_OPERATIONS = {
    "at_epoch": "data_stack.dataset.recipes.recipe",
    "code_digest": "data_stack.dataset.recipes.recipe",
    "encode": "data_stack.dataset.encoding",
    "explain": "data_stack.dataset.reports.explanation",
    "fingerprint": "data_stack.dataset.recipes.recipe",
    "folds": "data_stack.dataset.splits.parts",
    "map_classes": "data_stack.dataset.encoding",
    "one_hot": "data_stack.dataset.encoding",
    "recipe": "data_stack.dataset.recipes.recipe",
    "report": "data_stack.dataset.reporting",
    "split": "data_stack.dataset.splits.parts",
    "why_untold": "data_stack.dataset.recipes.recipe",
}


def operation(name: str) -> Callable[..., Any]:
    """The function of an iterator that the method of that name calls."""
    function: Callable[..., Any] = getattr(import_module(_OPERATIONS[name]), name)
    return function


def known_layers() -> dict[str, type[DatasetIteratorIF]]:
    """All layers there are."""
    for module in ("data_stack.dataset.iterator", *_OUTSIDE_OF_THIS_PACKAGE):
        import_module(module)
    for module in _WITH_EXTRAS:
        with contextlib.suppress(MissingDependencyError):
            import_module(module)
    return LAYERS
