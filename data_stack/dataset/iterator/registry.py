"""What stands behind the names that iterators stack themselves by: layers, and operations that are no layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_stack.dataset.iterator.iterator import DatasetIteratorIF

__all__ = ["LAYERS", "OPERATIONS"]

# The base class offers `iterator.shuffle(...)`, but a shuffled iterator is built on the base class. So the base class knows
# names only; each layer puts itself here when its class is made, and `data_stack.dataset` imports all of them.

LAYERS: dict[str, type[DatasetIteratorIF]] = {}
"""Classes by the name that stands for them in a recipe."""

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""Functions of an iterator by the name of the method that calls them."""
