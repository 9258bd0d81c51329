"""Opens Arrow files and folders of ``save_to_disk`` as samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.codecs.codec import ColumnType
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.arrow_ipc.arrow_dataset import ArrowDataset
from data_stack.formats.arrow_ipc.encoded_pictures import find_encoded_pictures
from data_stack.formats.arrow_ipc.features import sample_of, target_of
from data_stack.formats.class_name_metadata import class_names_of
from data_stack.formats.column_source import ColumnSource, source_of_iterator
from data_stack.formats.column_types import column_of_dtype
from data_stack.formats.format import ColumnChoice
from data_stack.formats.registry import stems_of_files
from data_stack.formats.saved_dataset import (
    SPLITS,
    STATE,
    SavedDataset,
    read_saved_dataset,
)
from data_stack.formats.split_names import differ_in_numbers_only, in_order_of_numbers
from data_stack.formats.targets import with_target
from data_stack.formats.text_tables.column_errors import UnknownColumnError
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.values.dtype_texts import parse_dtype

#: The most names of files in a message.
_MAX_SHOWN: Final = 5


def open_files(
    files: Sequence[Location],
    columns: ColumnChoice,
    *,
    features: Mapping[str, Any] | None = None,
    image_mode: str | None = None,
) -> ArrowDataset:
    """Open files whose rows follow one another.

    Raises:
        ConfigError, DatasetFileCorruptError: as :class:`ArrowDataset`.
    """
    if columns.required is None:
        return ArrowDataset(files, features=features, image_mode=image_mode)
    all_names = list(dict.fromkeys((*columns.required, *columns.optional)))
    try:
        return ArrowDataset(files, all_names, features=features, image_mode=image_mode)
    except UnknownColumnError as error:
        if error.column not in columns.optional:
            raise
    # The optional column, the target, is missing.
    required_names = list(columns.required)
    return ArrowDataset(files, required_names, features=features, image_mode=image_mode)


def open_folder(
    location: Location,
    columns: ColumnChoice,
    suffixes: Sequence[str],
    image_mode: str | None = None,
) -> DatasetIteratorIF:
    """Open a folder of ``save_to_disk``, or one whose Arrow files are the parts of one dataset.

    Args:
        location: the folder.
        columns: the columns to open.
        suffixes: the suffixes of Arrow files.
        image_mode: as for :class:`ArrowDataset`.

    Raises:
        ConfigError: the folder holds splits, or files that are not the parts of one dataset.
        DatasetFileCorruptError: a file is damaged.
    """
    folder = location.as_folder()
    names = folder.list_names()
    if STATE in names:
        return _open_saved(folder, read_saved_dataset(folder), columns, image_mode)
    if SPLITS in names:
        raise ConfigError(
            f"{location.full_name} holds splits; name the folder of one, or load all of them by "
            "data_stack.load()"
        )
    parts = [name for name in names if name.endswith(tuple(suffixes))]
    parts.sort(key=in_order_of_numbers)
    if not parts or not differ_in_numbers_only(stems_of_files(parts).values()):
        shown = ", ".join(parts[:_MAX_SHOWN]) or "none"
        raise ConfigError(
            f"{location.full_name} holds no Arrow files that are parts of one dataset, whose names "
            f"differ in their numbers only (its Arrow files: {shown}); name one file"
        )
    return open_files([Location(folder, name) for name in parts], columns, image_mode=image_mode)


def _open_saved(
    folder: Folder, saved: SavedDataset, columns: ColumnChoice, image_mode: str | None
) -> DatasetIteratorIF:
    """Open the files of a saved dataset."""
    files = [Location(folder, name) for name in saved.data_files]
    rows = open_files(files, columns, features=saved.features, image_mode=image_mode)
    if not saved.indices_files:
        return rows
    positions = _read_positions([Location(folder, name) for name in saved.indices_files], len(rows))
    view: DatasetIteratorIF = rows[positions]
    return view


def _read_positions(files: Sequence[Location], n_rows: int) -> Any:
    """Return the positions of the rows that a saved dataset has, shape ``(n,)``.

    Raises:
        DatasetFileCorruptError: the files hold something else.
    """
    indices = ArrowDataset(files)
    names = indices.column_names
    positions = indices.read_column(names[0])
    are_positions = len(names) == 1 and positions.ndim == 1 and positions.dtype.kind in "iu"
    if not are_positions:
        raise DatasetFileCorruptError(f"{files[0].full_name} holds no positions of rows")
    if len(positions) and (int(positions.min()) < 0 or int(positions.max()) >= n_rows):
        raise DatasetFileCorruptError(
            f"{files[0].full_name} has positions outside of the {n_rows} rows of the dataset"
        )
    return positions.astype(np.int64)


# ---------------------------------------------------------------------- the target


def with_target_of_features(samples: Any, source: str, target: str | None) -> Any:
    """Return samples whose ``dataset_meta`` names the target, and its classes.

    Args:
        samples: samples of Arrow files.
        source: the name of the samples.
        target: the column of the target; None for the only ``ClassLabel``.

    Raises:
        ConfigError: the column does not exist.
    """
    names = list(samples.column_names)
    features = _arrow_dataset_below(samples).stored_features
    target = target or target_of(features, names)
    if target is None:
        return samples
    return with_target(
        samples,
        source,
        names,
        target,
        class_names_of(features.get(target)),
        sample_of(features, names),
    )


def _arrow_dataset_below(samples: Any) -> ArrowDataset:
    """Return the rows of the files that samples of :func:`open_folder` are read from."""
    while not isinstance(samples, ArrowDataset):
        samples = samples.underlying_iterators[0]
    return samples


# ---------------------------------------------------------------------- conversion


def source_of_arrow(samples: DatasetIteratorIF, name: str) -> ColumnSource:
    """Return samples of Arrow files as columns for a conversion.

    Raises:
        ConfigError: a column holds values that no format stores.
    """
    source = source_of_iterator(samples, name)
    schema = {}
    for column_name, column in source.schema.items():
        schema[column_name] = _column_as_declared(source.declared[column_name], column)
    class_names = {}
    for column_name, feature in _arrow_dataset_below(samples).stored_features.items():
        names = class_names_of(feature)
        if names and column_name in source.keys:
            class_names[column_name] = names
    schema, stored = find_encoded_pictures(samples, schema)
    return ColumnSource(name, samples, schema, source.keys, stored, class_names=class_names)


def _column_as_declared(declared: DeclaredColumn, inferred: ColumnType) -> ColumnType:
    """Return the type of a column: with dtype and shape if all values have the same ones."""
    if not declared.is_fixed or declared.dtype is None or declared.shape is None:
        return inferred
    return column_of_dtype(parse_dtype(declared.dtype), declared.shape)
