"""Samples as named columns, and as cells of Arrow."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.dataset.iterator import column_names
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import ARROW_ERRORS, JSON_TEXT, Origin
from data_stack.formats.arrow_tables import check_names as check_names
from data_stack.formats.column_source import name_of_position
from data_stack.formats.parquet.codecs.cells import null_mask
from data_stack.formats.parquet.codecs.exact_cells import exact_cells
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.schema_of_columns import schema_of_columns
from data_stack.formats.sample_columns import by_name, samples_at_once
from data_stack.values.stacked_values import objects
from data_stack.values.stacking import join_columns

_Array = npt.NDArray[Any]
# ---------------------------------------------------------------------- writing


def cells_of(
    values: _Array, name: str, origin: Origin | None = None, *, first_row: int = 0
) -> pa.Array:
    """Values of a column as cells, see :func:`~data_stack.formats.parquet.codecs.exact_cells.exact_cells`.

    Args:
        values: shape ``(n, ...)``; None and NaT are null.
        name: name of the column.
        origin: the column in its source library; None to infer the type from the values.
        first_row: position of the first value in the column, for messages.

    Raises:
        ConfigError: Arrow has no type for the values, or they have several types, or a value does not fit the type.
    """
    try:
        if origin is not None and origin.kind == JSON_TEXT:
            return _json_cells(values)
        if origin is None or origin.field is None:
            return _cells(values)
        type_ = origin.field.type
        if origin.categories is None:
            return _cells_of_type(values, type_)
        codes = _cells_of_type(values, pa.int64() if origin.as_codes else type_.value_type)
        codes = codes if origin.as_codes else pc.index_in(codes, value_set=origin.categories)
        # polars also reads the index of a null
        numbers = codes.fill_null(0).cast(type_.index_type).to_numpy()
        return pa.DictionaryArray.from_arrays(
            numbers, origin.categories, mask=null_mask(codes), ordered=type_.ordered
        )
    except CellError as error:
        raise ConfigError(
            f"column {name!r} cannot be converted to Arrow: row {first_row + error.row}: {error.why}; "
            f"map its values to one type, or pass another type"
        ) from error
    except (ConfigError, *ARROW_ERRORS, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"column {name!r} cannot be converted to Arrow: {error!s:.300}; map its values to one type"
        ) from error


def _json_cells(values: _Array) -> pa.Array:
    """Values of JSON as text."""
    texts = [
        None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for value in values.tolist()
    ]
    return pa.array(texts, pa.string())


def _cells(values: _Array) -> pa.Array:
    """Cells of the type inferred from the values."""
    values = objects(values.tolist()) if values.ndim > 1 and values.dtype == object else values
    if values.ndim > 1 and values.dtype.kind in "biuf" and math.prod(values.shape[1:]):
        cells = pa.array(np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(-1))
        return functools.reduce(
            pa.FixedSizeListArray.from_arrays, reversed(values.shape[1:]), cells
        )
    nested = (
        values
        if values.dtype == object or (values.ndim > 2 and values.dtype.kind in "biufU")
        else ()
    )
    kinds = {(value.dtype, value.ndim) for value in nested if isinstance(value, np.ndarray)}
    if len(kinds) == 1 and (kind := kinds.pop())[1] > 1:
        type_ = functools.reduce(
            lambda inner, _: pa.list_(inner), range(kind[1]), pa.from_numpy_dtype(kind[0])
        )
        return exact_cells(values, type_)
    if values.dtype == object and (cells := _cells_as_inferred(values)) is not None:
        return cells
    (field,) = schema_of_columns("", {"value": values})
    return field.cells.encode_column(field, values)


def _cells_as_inferred(values: _Array) -> pa.Array | None:
    """Cells of objects of the type that pyarrow infers; None if it infers none, or one that does not hold all values.

    Raises:
        CellError: the values are times of several kinds, such as dates and datetimes.
    """
    listed = values.tolist()
    try:
        type_ = pa.infer_type(listed)
    except (*ARROW_ERRORS, TypeError, ValueError, OverflowError):
        return None
    try:
        return exact_cells(listed, type_)
    except CellError:
        if any(isinstance(value, (date, time, timedelta)) for value in listed):
            raise
        return None


def _cells_of_type(values: _Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.FixedShapeTensorType):
        values = objects([value if value is None else np.ravel(value) for value in values])
    return exact_cells(values, type_)


class NamedColumns:
    """The columns of an iterator, read in blocks of a few MiB.

    The columns of tuples have the names that the dataset declares; otherwise ``sample``, ``target`` and ``tag`` as in its meta;
    otherwise ``column_0``, ``column_1`` …. A bare value is the column ``value``.

    Args:
        samples: an iterator, or an object with ``len`` and ``[i]``.

    Attributes:
        origins: the columns in their source library, as far as it is known.
        names: names of the columns in order; without samples, the names of the schema or meta.

    Raises:
        ConfigError: ``samples`` is not an iterator.
    """

    def __init__(self, samples: Any) -> None:
        self.iterator = as_iterator(samples)
        self._access = access_to(self.iterator)
        self.origins: dict[Any, Origin | None] = {}
        for name, column in (self._access.declare_columns() or {}).items():
            of_parquet = (
                Origin(pa.field(name, column.origin))
                if isinstance(column.origin, pa.DataType)
                else None
            )
            self.origins[name] = column.origin if isinstance(column.origin, Origin) else of_parquet
        sample: Any = (
            self._access.sample(0)
            if len(self.iterator)
            else self._access.batch(np.empty(0, np.intp))
        )
        if isinstance(sample, Mapping):
            self.names = [str(name) for name in sample]
        elif isinstance(sample, (tuple, list)):
            named = column_names(self.iterator)
            self.names = list(named) or [
                name_of_position(self.iterator, position) for position in range(len(sample))
            ]
        else:
            self.names = ["value"]
        self._n_at_once = samples_at_once(self._name(sample)) if len(self.iterator) else 1

    def blocks(self) -> Iterator[dict[str, _Array]]:
        """The columns block by block; one empty block without samples."""
        for start in range(0, max(len(self.iterator), 1), self._n_at_once):
            batch = self._access.batch(
                np.arange(start, min(start + self._n_at_once, len(self.iterator)))
            )
            is_unknown = isinstance(batch, tuple) and not batch
            yield (
                {name: np.empty(0, object) for name in self.names}
                if is_unknown
                else self._name(batch)
            )

    def read(self) -> dict[str, _Array]:
        """All columns, shape ``(n_samples, ...)`` each."""
        blocks = list(self.blocks())
        return {name: join_columns([block.pop(name) for block in blocks]) for name in self.names}

    def _name(self, sample: Any) -> dict[str, Any]:
        return {str(name): value for name, value in by_name(sample, self.names).items()}
