"""The methods ``show`` and ``plot`` of iterators, which need optional packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.named_columns import column_key, column_names
from data_stack.exception import ConfigError
from data_stack.show.samples import default_keys, part_of, title_of


def show(
    iterator: DatasetIteratorIF,
    n_samples: int | None = None,
    *,
    columns: Sequence[int | str] | int | str | None = None,
    **options: Any,
) -> Any:
    """See ``iterator.show``."""
    from data_stack.show.contact_sheet import contact_sheet

    if columns is not None:
        keys = [columns] if isinstance(columns, (int, str)) else list(columns)
        if not keys:
            raise ConfigError("columns names the column of the picture, and those of its labels, and is empty")
        options.update(sample_pos=keys[0], target_pos=keys[1:])
    return contact_sheet(iterator, n_samples=n_samples, **options)


def plot(iterator: DatasetIteratorIF, column: int | str | None = None, *, bins: int = 30, title: str | None = None) -> Any:
    """See ``iterator.plot``."""
    from data_stack.show.plots import plot_values

    if not len(iterator):
        raise ConfigError("there is nothing to plot: the iterator has no samples")
    meta, first = getattr(iterator, "dataset_meta", None), iterator[0]
    target_key = default_keys(meta, first)[1]
    key = target_key if column is None else column_key(iterator, column)
    if column is None and part_of(first, key) is None:
        raise ConfigError("the samples have no target to plot: name a column, plot(column)")
    names: dict[Any, Any] = dict(enumerate(column_names(iterator)))
    classes = getattr(meta, "class_names", None) if key == target_key else None
    told = title_of(iterator) if title is None else title
    return plot_values(iterator.read_column(0 if key is None else key), str(names.get(key, key)), classes, bins=bins, title=told)
