"""Samples of an iterator with other classes: ``iterator.map_classes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.iterator.access import ColumnKey
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.encoded import EncodedDatasetIterator
from data_stack.dataset.iterator.layers.encoder_fitting import naming_errors
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.exception import ConfigError


@layer("mapped_classes", columns=["columns"])
class MappedClassesView(DatasetIteratorView):
    """The samples of ``dataset_iterator`` whose labels a class mapping names, in their order.

    The labels are read when the view is made. ``iterator.map_classes`` puts the view below a
    mapping that drops labels. A pickle has the positions that were found.

    Args:
        dataset_iterator: the samples; it is not closed.
        mapping: the mapping, which names the labels that stay.
        columns: the columns of labels. A sample stays if all of its labels do.

    Raises:
        ConfigError: there is no such column, or its values are arrays.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        mapping: ClassMapping,
        columns: Sequence[ColumnKey],
    ) -> None:
        below = access_to(as_iterator(dataset_iterator))
        stays = np.ones(below.n_samples, dtype=bool)
        for key, labels in zip(columns, below.columns(list(columns)), strict=True):
            if labels.ndim != 1:
                raise ConfigError(
                    f"column {key!r}: a label is a single value, "
                    f"not one of shape {labels.shape[1:]}"
                )
            with naming_errors(f"column {key!r}"):
                stays &= mapping.is_mapped(labels)
        super().__init__(dataset_iterator, np.flatnonzero(stays))
        self._made_with = {"mapping": mapping, "columns": list(columns)}


def map_classes(
    iterator: DatasetIteratorIF,
    mapping: ClassMapping | Mapping[Any, Any],
    columns: Sequence[ColumnKey] | None = None,
) -> DatasetIteratorIF:
    """Replace classes by others, as ``iterator.map_classes`` does.

    The labels are read now if the mapping drops some.

    Args:
        iterator: the samples.
        mapping: a mapping from old labels to new ones.
        columns: the columns of labels; None for the target.

    Raises:
        ConfigError: the mapping names a label twice, or there is no column.
    """
    class_mapping = mapping if isinstance(mapping, ClassMapping) else ClassMapping(mapping)
    stacked = as_iterator(iterator)
    if columns is None:
        keys = [stacked._class_column(None)]
    elif isinstance(columns, (str, int, np.integer)) or len(columns) == 0:
        raise ConfigError(f"columns must be a list, or None for the target, got {columns!r:.80}")
    else:
        keys = list(columns)
    if class_mapping.unmapped == "drop":
        stacked = stacked._stack_layer(MappedClassesView, mapping=class_mapping, columns=keys)
    return stacked._stack_layer(EncodedDatasetIterator, encoders=dict.fromkeys(keys, class_mapping))
