"""The base of the layers of data_stack."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    DatasetIteratorIF,
    as_iterator,
)

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


class LayerDatasetIterator(AccessedDatasetIterator):
    """A layer on one iterator.

    Args:
        dataset_iterator: what lies below; it stays the caller's to close.
        made_with: the other arguments of the layer, for recipes.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, **made_with: Any) -> None:
        as_iterator(dataset_iterator)  # refuses what has no samples
        self._dataset_iterator, self._stacked_on, self._made_with = (
            dataset_iterator,
            [dataset_iterator],
            made_with,
        )

    def _below(self) -> SampleAccess:
        return access_to(as_iterator(self._dataset_iterator))
