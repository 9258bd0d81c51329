"""The methods ``show`` and ``plot`` of iterators, which need optional packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.dataset.display.samples import default_keys, part_of
from data_stack.dataset.iterator.contract import DatasetIteratorIF, column_key
from data_stack.dataset.iterator.registry import operation
from data_stack.exception import ConfigError

__all__ = ["plot", "show"]


@operation
def show(
    iterator: DatasetIteratorIF,
    n_samples: int | None = None,
    *,
    columns: Sequence[int | str] | int | str | None = None,
    **options: Any,
) -> Any:
    """See ``iterator.show``."""
    from data_stack.dataset.display.contact_sheet import contact_sheet

    if columns is not None:
        keys = [columns] if isinstance(columns, (int, str)) else list(columns)
        if not keys:
            raise ConfigError("columns names the column of the picture, and those of its labels, and is empty")
        options.update(sample_pos=keys[0], target_pos=keys[1:])
    return contact_sheet(iterator, n_samples=n_samples, **options)


@operation
def plot(iterator: DatasetIteratorIF, column: int | str | None = None, *, bins: int = 30, title: str | None = None) -> Any:
    """See ``iterator.plot``."""
    from data_stack.dataset.display.plots import plot_values

    meta = getattr(iterator, "dataset_meta", None)
    if not len(iterator):
        raise ConfigError("there is nothing to plot: the iterator has no samples")
    first = iterator[0]
    key = default_keys(meta, first)[1] if column is None else column_key(iterator, column)
    if column is None and part_of(first, key) is None:
        raise ConfigError("the samples have no target to plot: name a column, plot(column)")
    names = getattr(meta, "class_names", None) if key == getattr(meta, "target_pos", None) else None
    about = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
    told = " · ".join(str(each) for each in about if each) if title is None else title
    label = (getattr(meta, "column_names", None) or {}) if isinstance(column, str) or column is None else {}
    name = label[key] if isinstance(key, int) and label and 0 <= key < len(label) else key
    return plot_values(iterator.read_column(key if key is not None else 0), str(name), names, bins=bins, title=told)
