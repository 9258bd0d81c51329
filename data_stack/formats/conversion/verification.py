"""Compares the result of a conversion with its source."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import as_python_values, plain_type
from data_stack.formats.conversion.batches import batches_of_positions, new_bar_for
from data_stack.formats.format import WritableFormat
from data_stack.io.location import Location
from data_stack.values.digests import column_digests

_Positions = npt.NDArray[np.intp]


def compare_with_source(
    target_format: WritableFormat,
    location: Location,
    source: ColumnSource,
    *,
    progress: bool | None,
) -> int:
    """Read all samples of a result back, and compare them with the source.

    Returns:
        The number of samples that were compared.

    Raises:
        DatasetFileCorruptError: the result differs from the source.
        ConfigError: it differs, because readers of the format take values for other ones.
    """
    try:
        return _compare_all(target_format, location, source, progress=progress)
    except DatasetFileCorruptError as error:
        if not target_format.infers_types:
            raise
        raise ConfigError(
            f"{target_format.name} cannot hold the values, as readers infer their types: {error}"
        ) from error


def _compare_all(
    target_format: WritableFormat,
    location: Location,
    source: ColumnSource,
    *,
    progress: bool | None,
) -> int:
    """Compare all samples of a result with the source, and return their number."""
    result = target_format.open_source(location)
    with result.resources:
        # Some formats have no columns without samples.
        if len(source) == 0 and len(result) == 0:
            return 0
        result = _with_columns_of_source(target_format, result, source)
        stored = _columns_stored_alike(source, result)
        with new_bar_for("verifying", source, progress) as bar:
            for positions in batches_of_positions(source):
                _compare(source, result, positions, stored)
                bar.update(len(positions))
    return len(source)


def _with_columns_of_source(
    target_format: WritableFormat, result: ColumnSource, source: ColumnSource
) -> ColumnSource:
    """Return a result with the columns of its source, in the same order.

    Raises:
        DatasetFileCorruptError: it has other columns, or another number of samples.
    """
    names_in_result = {name: name for name in source.schema}
    if not target_format.keeps_names:
        names_in_result = dict(zip(source.schema, result.schema, strict=True))
    lost = set(names_in_result.values()) - set(result.keys)
    added = set(result.schema) - set(names_in_result.values())
    if lost or added or len(result) != len(source):
        raise DatasetFileCorruptError(
            f"the conversion failed, report this: {source.name} became "
            f"{', '.join(result.schema)}, {len(result):,} samples"
        )
    return result.select_columns(names_in_result)


def _columns_stored_alike(source: ColumnSource, result: ColumnSource) -> list[str]:
    """Return the columns of media files of one type, which are compared as bytes."""
    stored_in_both = set(source.stored_names).intersection(result.stored_names)
    return [name for name in stored_in_both if result.schema[name].type == source.schema[name].type]


def _compare(
    source: ColumnSource, result: ColumnSource, positions: _Positions, stored: Collection[str]
) -> None:
    """Compare some samples.

    Raises:
        DatasetFileCorruptError: a value differs; the message names the column and the sample.
    """
    expected = source.read(positions, source.schema, stored)
    actual = result.read(positions, source.schema, stored)
    for name, column in source.schema.items():
        if plain_type(column.type) == "json":
            actual[name] = as_python_values(actual[name])
        # A digest has several numbers, each of which may differ.
        are_different = column_digests(expected[name]) != column_digests(actual[name])
        is_sample_different = are_different.any(axis=1)
        if is_sample_different.any():
            position = positions[is_sample_different.argmax()]
            raise DatasetFileCorruptError(
                f"column {name!r} of sample {position} differs in the result; leave it out"
            )
