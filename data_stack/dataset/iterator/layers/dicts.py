"""Tuple samples as dicts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.column_layout import ColumnLayout
from data_stack.dataset.iterator.layers.columns_layer import ColumnsLayer, check_names, join_names
from data_stack.dataset.meta import LOST_NAMES, column_names, declared_names
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm


@layer("dicts")
class DictsDatasetIterator(ColumnsLayer):
    """Tuple samples as dicts. The positions in the meta become names.

    Args:
        dataset_iterator: the samples; it is not closed.
        names: one key for each column, in their order; empty for the names that the meta declares.

    Raises:
        ConfigError: there are no names, or two names are the same. When reading: there are not as
            many names as columns, or the samples are not tuples.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, names: Sequence[str] = ()) -> None:
        if isinstance(names, str):
            raise ConfigError(
                f"as_dict() takes a list of names, one for each column, got {names!r}"
            )
        keys = list(names or column_names(dataset_iterator))
        if not keys:
            reason = ""
            if declared_names(getattr(dataset_iterator, "dataset_meta", None)) == ():
                reason = f": {LOST_NAMES}"
            raise ConfigError(f"the columns have no names{reason}; pass them: as_dict(…)")
        check_names(keys)
        super().__init__(dataset_iterator, partial(name_columns, keys), names=keys)


def name_columns(names: Sequence[str], form: SampleForm) -> ColumnLayout:
    """Return the layout of all columns of tuples, with these names.

    Raises:
        ConfigError: samples are dicts, or have another number of columns.
    """
    if form.kind == "dict":
        raise ConfigError(
            f"samples are dicts already: {form.describe()}; rename() gives them other names"
        )
    if len(form.keys) != len(names):
        raise ConfigError(
            f"samples of {len(form.keys)} columns were given {len(names)} names: "
            f"{join_names(names)}"
        )
    return ColumnLayout(form, form.keys, SampleForm("dict", tuple(names)))
