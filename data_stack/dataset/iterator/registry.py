"""The layers by the names that stand for them in recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Layer = TypeVar("_Layer", bound=type[Any])

LAYERS: dict[str, type[Any]] = {}
"""Classes of iterators by name; a class is here once its module is imported."""


def layer(name: str) -> Callable[[_Layer], _Layer]:
    """Decorates a class of iterators that a recipe calls ``name``. A subclass is a layer only if it is decorated, too."""

    def register(kind: _Layer) -> _Layer:
        kind._layer_name = name
        LAYERS[name] = kind
        return kind

    return register
