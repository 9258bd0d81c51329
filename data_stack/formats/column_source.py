"""A dataset as columns by name, which a conversion reads in batches."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import ColumnType
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.formats.column_types import (
    as_python_values,
    column_of_dtype,
    column_of_rows,
    infer_column,
    media_columns,
    plain_type,
    positions_to_infer_from,
)
from data_stack.util.suggestions import did_you_mean
from data_stack.values.dtype_texts import parse_dtype
from data_stack.values.stacking import list_columns

_Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class ColumnSource:
    """A dataset as columns by name, which a conversion reads in batches.

    Attributes:
        name: the name of the dataset in messages.
        values: the samples.
        schema: the type of each column, as in records. It names dtype and shape if all samples have
            the same ones.
        keys: the key of each column in a sample. Columns that the schema lacks are read only if a
            user names them.
        stored: the same samples, whose images, sound and videos are the bytes of their files; None
            without such columns.
        resources: the open files, which the user of the source closes at the end.
        class_names: the names of the classes of columns of labels.
    """

    name: str
    values: DatasetIteratorIF
    schema: Mapping[str, ColumnType]
    keys: Mapping[str, ColumnKey]
    stored: DatasetIteratorIF | None = None
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def stored_names(self) -> list[str]:
        """The names of the columns that can be read as the bytes of their files."""
        if self.stored is None:
            return []
        return media_columns(self.schema)

    @cached_property
    def declared(self) -> dict[str, DeclaredColumn]:
        """What the schema of the samples declares of each column; nothing without a schema."""
        declared = access_to(self.values).declare_columns() or {}
        return {name: declared.get(str(key), DeclaredColumn()) for name, key in self.keys.items()}

    def read(
        self, positions: _Positions, names: Iterable[str], stored: Collection[str] = ()
    ) -> dict[str, Any]:
        """Read columns of some samples.

        Args:
            positions: the positions of the samples, shape ``(n,)``.
            names: the names of the columns.
            stored: those of ``names`` whose values are read as the bytes of their files.

        Returns:
            An array of shape ``(n, ...)`` for each name.
        """
        columns: dict[str, Any] = dict.fromkeys(names)
        decoded_names = [name for name in columns if name not in stored]
        stored_names = [name for name in columns if name in stored]
        columns.update(self._read_from(self.values, positions, decoded_names))
        if self.stored is not None:
            columns.update(self._read_from(self.stored, positions, stored_names))

        # Lists of numbers in JSON become arrays when they are read in batches.
        for name, column in columns.items():
            if name in self.schema and plain_type(self.schema[name].type) == "json":
                columns[name] = as_python_values(column)
        return columns

    def _read_from(
        self, samples: DatasetIteratorIF, positions: _Positions, names: list[str]
    ) -> dict[str, Any]:
        if not names:
            return {}
        keys = [self.keys[name] for name in names]
        columns = access_to(samples).columns(keys, positions)
        return dict(zip(names, columns, strict=True))

    def select_columns(self, columns: Mapping[str, str] | None) -> ColumnSource:
        """Select columns, and rename them to the keys of ``columns``.

        Args:
            columns: the old names, or positions as text, by the new names; None for all columns.

        Raises:
            ConfigError: a column does not exist.
        """
        if columns is None:
            return self
        schema = {}
        keys = {}
        class_names = {}
        for new_name, old_name in columns.items():
            name = find_column(self.name, self.keys, old_name)
            if name in self.class_names:
                class_names[new_name] = self.class_names[name]
            # Only the key of a WebDataset is a column that the schema may lack.
            schema[new_name] = self.schema.get(name, ColumnType("utf8"))
            keys[new_name] = self.keys[name]
        return replace(self, schema=schema, keys=keys, class_names=class_names)


def find_column(dataset_name: str, keys: Mapping[str, ColumnKey], column: str) -> str:
    """Return the name of a column that a user gave by its name, or by its position as text.

    Args:
        dataset_name: the name of the dataset, for messages.
        keys: the key of each column of the dataset.
        column: what the user gave.

    Raises:
        ConfigError: there is no such column.
    """
    if column in keys:
        return column
    for name, key in keys.items():
        if isinstance(key, int) and str(key) == column:
            return name
    shown_names = ", ".join(map(repr, keys))
    raise ConfigError(
        f"{dataset_name} has no column {column!r:.80}{did_you_mean(column, keys)}; "
        f"it has {shown_names:.1000}"
    )


def choose_keys(
    dataset_name: str,
    keys: Mapping[str, ColumnKey],
    required: Iterable[str] | None,
    optional: Iterable[str] = (),
) -> dict[str, ColumnKey]:
    """Return those keys of a dataset whose columns will be read, in the order of the dataset.

    Args:
        dataset_name: the name of the dataset, for messages.
        keys: the key of each column.
        required: the names of columns, or positions as text; None for all columns.
        optional: the names of further columns, which may be missing.

    Raises:
        ConfigError: a required column does not exist.
    """
    if required is None:
        return dict(keys)
    chosen = set(optional)
    for column in required:
        chosen.add(find_column(dataset_name, keys, column))
    return {name: key for name, key in keys.items() if name in chosen}


# ---------------------------------------------------------------------- arrays as a source


def source_of_arrays(
    name: str, samples: DatasetIteratorIF, keys: Mapping[str, ColumnKey]
) -> ColumnSource:
    """Return samples whose columns are arrays as a source. The first row tells their types.

    Args:
        name: the name of the dataset in messages.
        samples: the samples.
        keys: the key of each column in a sample.

    Raises:
        ConfigError: no format stores the objects of an array.
    """
    first_positions = [0] if len(samples) else []
    schema = {}
    for column_name, key in keys.items():
        schema[column_name] = column_of_rows(samples.read_column(key, first_positions))
    return ColumnSource(name, samples, schema, keys)


# ---------------------------------------------------------------------- any iterator as a source


def source_of_iterator(iterator: DatasetIteratorIF, name: str | None = None) -> ColumnSource:
    """Return the samples of any iterator as columns.

    The columns of tuples are called ``sample``, ``target`` and ``tag`` where the meta says where
    these are, else ``column_0``, ``column_1`` …. Without samples, the columns are those of an
    empty batch and of the schema.

    Args:
        iterator: tuple or dict samples.
        name: the name of the dataset in messages; None for that of its meta.

    Raises:
        ConfigError: the iterator has neither samples nor known columns, or a column holds values
            that no format stores.
    """
    if name is None:
        meta = getattr(iterator, "dataset_meta", None)
        name = str(getattr(meta, "identifier", None) or repr(iterator))
    samples = iterator.__getitems__(positions_to_infer_from(len(iterator)))
    if not samples:
        return _source_without_samples(iterator, name)

    keys = _keys_of_sample(iterator, samples[0], name)
    schema = {}
    for column_name, key in keys.items():
        try:
            values = [sample[key] for sample in samples]
        except LookupError as error:
            raise ConfigError(
                f"samples of {name} differ in their columns; map them to the same ones"
            ) from error
        schema[column_name] = infer_column(values, column_name)
    class_names = _class_names_of_meta(iterator, keys)
    return ColumnSource(name, iterator, schema, keys, class_names=class_names)


def _class_names_of_meta(
    iterator: DatasetIteratorIF, keys: Mapping[str, ColumnKey]
) -> dict[str, Sequence[str]]:
    """Return the names of the classes of the target by its column; empty without such."""
    meta = getattr(iterator, "dataset_meta", None)
    names = getattr(meta, "class_names", None)
    if meta is None or not names:
        return {}
    return {name: names for name, key in keys.items() if key == meta.target_pos}


def _source_without_samples(iterator: DatasetIteratorIF, name: str) -> ColumnSource:
    """Return an empty dataset with the columns of an empty batch."""
    batch: Any = access_to(iterator).batch(np.empty(0, np.intp))
    if not list_columns(batch):
        raise ConfigError(f"{name} has no samples, and its columns are unknown")
    keys = _keys_of_sample(iterator, batch, name)
    declared = ColumnSource(name, iterator, {}, keys).declared
    schema = {
        column_name: _column_without_values(batch[key], declared[column_name])
        for column_name, key in keys.items()
    }
    return ColumnSource(name, iterator, schema, keys)


def _keys_of_sample(iterator: DatasetIteratorIF, sample: Any, name: str) -> dict[str, ColumnKey]:
    """Return the key of each column in a sample, or in a batch."""
    if isinstance(sample, Mapping):
        return {str(key): key for key in sample}
    if isinstance(sample, (tuple, list)):
        return {name_of_position(iterator, position): position for position in range(len(sample))}
    raise ConfigError(
        f"samples of {name} are bare values; name them: .map(lambda value: {{'x': value}})"
    )


def _column_without_values(rows: npt.NDArray[Any], declared: DeclaredColumn) -> ColumnType:
    """Return the type of a column in an empty batch.

    Args:
        rows: the column, shape ``(0, ...)``. Its dtype tells the type, unless it is object.
        declared: what a schema declares of the column. Without a declared dtype, objects are JSON.
    """
    if rows.dtype != object:
        return column_of_dtype(rows.dtype, rows.shape[1:])
    if declared.dtype in (None, "object"):
        return ColumnType("json")
    if declared.dtype == "Decimal":
        return ColumnType("decimal")
    shape = (None,) if declared.shape is None else declared.shape
    return column_of_dtype(parse_dtype(declared.dtype), shape)


def name_of_position(iterator: Any, position: int) -> str:
    """Return the name of a column of tuples: its role in the meta, or ``column_0`` and so on."""
    meta = getattr(iterator, "dataset_meta", None)
    if meta is not None:
        for role in ("sample", "target", "tag"):
            if getattr(meta, f"{role}_pos") == position:
                return role
    return f"column_{position}"
