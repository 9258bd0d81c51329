"""Samples with only some of an iterator's columns."""

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
from data_stack.exception import ConfigError


@layer("fields")
class FieldsDatasetIterator(ColumnsLayer):
    """Samples of only the columns ``columns``, in that order. Tuples stay tuples, dicts stay dicts.

    The other columns are not read where the iterator below can read columns by themselves. To know
    whether samples are tuples or dicts, sample 0 is read once, when a column or batch is read for
    the first time.

    Columns may be given by their names where the dataset declares them. A column that does not
    exist is an error at once: without names and a schema, sample 0 is read for that.

    Positions in the meta are those in the new samples. In place of the position of a column that is
    left out, the meta has the word ``"sample"``, ``"target"`` or ``"tag"``; a key stays as it is.
    Both name no column, so that reading it is a ConfigError. The meta also loses what it said of
    the values of that column (target kind, class names, feature names). Where neither names nor a
    schema tell what columns there are, sample 0 is read for the meta when this is made.

    Args:
        dataset_iterator: the samples; it is not closed.
        columns: positions of tuple samples (negative ones count from the end) or keys of dict
            samples; at least one.

    Raises:
        ConfigError: there are no columns, or one is named twice. When reading: the samples have no
            such column, or are neither tuples nor dicts.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, columns: Sequence[ColumnKey]) -> None:
        keys = check_columns(dataset_iterator, columns)
        if not keys:
            raise ConfigError("samples need at least one column; none was selected")
        make_layout = partial(choose_columns, keys, as_tuples=False)
        super().__init__(dataset_iterator, make_layout, keys, columns=list(keys))
