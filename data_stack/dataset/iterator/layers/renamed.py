"""Dict samples with other names for some of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.column_layout import ColumnLayout
from data_stack.dataset.iterator.layers.columns_layer import ColumnsLayer, check_names
from data_stack.exception import ConfigError
from data_stack.values.stacking import SampleForm


@layer("renamed")
class RenamedDatasetIterator(ColumnsLayer):
    """Dict samples with new names for some of their keys.

    The order of the columns stays. The meta has the new names.

    Args:
        dataset_iterator: the samples; it is not closed.
        names: ``{"old": "new"}``. Two columns may swap their names.

    Raises:
        ConfigError: two columns would get the same name. When reading: there is no column to
            rename, a new name is another column's, or the samples are not dicts.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, names: Mapping[str, str]) -> None:
        if not isinstance(names, Mapping):
            raise ConfigError(f'names must be a mapping such as {{"old": "new"}}, got {names!r}')
        check_names(list(names.values()))
        new_names = dict(names)
        make_layout = partial(rename_columns, new_names)
        super().__init__(dataset_iterator, make_layout, new_names, names=new_names)


def rename_columns(names: Mapping[str, str], form: SampleForm) -> ColumnLayout:
    """Return the layout of all columns, some with new names.

    Args:
        names: the new names by the old ones.
        form: the form of the samples.

    Raises:
        ConfigError: samples are tuples, there is no such column, or a new name is another column's.
    """
    if form.kind == "tuple":
        raise ConfigError(
            f"samples are tuples of {len(form.keys)} columns without names to change; "
            f"name them by as_dict() first"
        )
    form.find_all(list(names))
    kept_names = set(form.keys) - set(names)
    for old_name, new_name in names.items():
        if new_name in kept_names:
            raise ConfigError(
                f"column {old_name!r} cannot be renamed to {new_name!r}: "
                f"there is such a column; rename or drop it too"
            )
    new_keys = tuple([names.get(key, key) for key in form.keys])
    return ColumnLayout(form, form.keys, SampleForm("dict", new_keys))
