"""Samples as tuples of an iterator's columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from data_stack.dataset.iterator.access import ColumnKey
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.columns_layer import (
    ColumnsLayer,
    check_columns,
    choose_columns,
)


@layer("tuples")
class TuplesDatasetIterator(ColumnsLayer):
    """Samples as tuples of ``columns``, in that order.

    Without ``columns``, dict samples become tuples of all their values, in the order of the keys of
    sample 0. Sample 0 is read once, when the first sample is read, to know that order.

    Columns that are left out are not read where that is possible. Positions in the meta are those
    in the new samples, see ``FieldsDatasetIterator``.

    Args:
        dataset_iterator: the samples; it is not closed.
        columns: keys of dict samples, or positions of tuple samples (negative ones count from the
            end); empty for all.

    Raises:
        ConfigError: a column is named twice. When reading: the samples have no such column, or are
            neither tuples nor dicts.
    """

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, columns: Sequence[ColumnKey] = ()
    ) -> None:
        keys = check_columns(dataset_iterator, columns)
        make_layout = partial(choose_columns, keys, as_tuples=True)
        super().__init__(dataset_iterator, make_layout, keys, columns=list(keys))
