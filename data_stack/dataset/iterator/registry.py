"""What stands behind the names that iterators stack themselves by: layers, and operations that are no layers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

# The base class offers `iterator.shuffle(...)`, but a shuffled iterator is built on the base class. So the base class knows
# names only; modules below and above put in what they mean, each when it is imported.

_Layer = TypeVar("_Layer", bound=type[Any])
_Operation = TypeVar("_Operation", bound=Callable[..., Any])


class _Layers(dict[str, type[Any]]):
    """Classes by name. The modules of all are imported when one is asked for that is not there: a worker needs few of them."""

    def __missing__(self, name: str) -> type[Any]:
        import_all()
        if name not in self:
            raise KeyError(name)
        return self[name]


class _Operations(dict[str, Callable[..., Any]]):
    """Functions by name, imported likewise. One that no module puts in is the package's public function of that name."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        import_all()
        # The package is imported before each of its modules; it names its functions in its stub.
        found: Callable[..., Any] = self[name] if name in self else getattr(sys.modules[__name__.partition(".")[0]], name)
        return found


LAYERS: dict[str, type[Any]] = _Layers()
"""Classes of iterators by the name that stands for them in a recipe."""

OPERATIONS: dict[str, Callable[..., Any]] = _Operations()
"""Functions of an iterator by the name of the method that calls them."""


def import_all() -> None:
    """Import the modules of all layers and operations, which put them in."""
    sys.modules[__name__.rpartition(".")[0]].import_all()


def store_of(storage: Any) -> Any:
    """A store, by its path or URL, which only modules above know; anything else as it is."""
    is_named = isinstance(storage, (str, os.PathLike))
    return OPERATIONS["storage_connector_from_url"](storage) if is_named else storage


def layer(name: str) -> Callable[[_Layer], _Layer]:
    """Decorates a class of iterators that a recipe calls ``name``. A subclass of it is no layer unless it is decorated, too."""

    def register(kind: _Layer) -> _Layer:
        kind._layer_name = name
        LAYERS[name] = kind
        return kind

    return register


def operation(function: _Operation) -> _Operation:
    """Decorates a function of an iterator that the method of the same name calls."""
    OPERATIONS[function.__name__] = function
    return function
