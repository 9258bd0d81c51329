"""The layers by their names in recipes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

_Layer = TypeVar("_Layer", bound=type[Any])

LAYERS: dict[str, type[Any]] = {}
"""Classes of iterators by name; importing a module adds its classes."""


def layer(name: str, *, columns: Collection[str] = ()) -> Callable[[_Layer], _Layer]:
    """Decorates a class of iterators to register it as a layer. A subclass is a layer only if it is decorated, too.

    Args:
        name: of the layer in recipes.
        columns: the constructor's arguments that name columns, or lists of columns; the class gets positions in place of the
            names that a meta declares.
    """

    def register(kind: _Layer) -> _Layer:
        kind._layer_name, kind._column_arguments = name, frozenset(columns)
        LAYERS[name] = kind
        return kind

    return register
