"""The base of the layers of data_stack."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF

_Layer = TypeVar("_Layer", bound=type[Any])

LAYERS: dict[str, type[Any]] = {}
"""Classes of layers by name; importing a module adds its classes."""


def layer(name: str, *, columns: Collection[str] = ()) -> Callable[[_Layer], _Layer]:
    """Return a decorator that registers a class of iterators as a layer.

    A subclass is a layer only if it is decorated, too.

    Args:
        name: the name of the layer in recipes.
        columns: the arguments of the constructor that name a column, or a list of columns. On an
            iterator with meta, the constructor is passed positions where the user passed names.
    """

    def register(layer_class: _Layer) -> _Layer:
        layer_class._layer_name = name
        layer_class._column_arguments = frozenset(columns)
        LAYERS[name] = layer_class
        return layer_class

    return register


class LayerDatasetIterator(AccessedDatasetIterator):
    """A layer on one iterator.

    A random layer also sets ``_draw``, which :func:`~data_stack.dataset.randomness.check_draw`
    makes. :func:`~data_stack.dataset.iterator.epochs.at_epoch` then makes the layer again for
    another epoch.

    Args:
        dataset_iterator: the iterator below; it is not closed.
        made_with: the other arguments of the layer, for recipes.

    Raises:
        ConfigError: ``dataset_iterator`` is nothing that has samples.
    """

    #: The iterator below, as it was given; a list or the like is not wrapped.
    _dataset_iterator: DatasetIteratorIF

    def __init__(self, dataset_iterator: DatasetIteratorIF, **made_with: Any) -> None:
        as_iterator(dataset_iterator)  # refuses what has no samples
        self._dataset_iterator = dataset_iterator
        self._stacked_on = [dataset_iterator]
        self._made_with = made_with

    def _below(self) -> SampleAccess:
        """Return the access to the samples below."""
        return access_to(as_iterator(self._dataset_iterator))
