"""The data types of Croissant for the columns of samples."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, access_to, column_names
from data_stack.dataset.iterator.access import DeclaredColumn

#: Data types by the kind of the dtype. Those of ``cr:`` are followed by the number of bits.
_DATA_TYPES: Final = {
    "b": "sc:Boolean",
    "i": "cr:Int",
    "u": "cr:UInt",
    "f": "cr:Float",
    "M": "sc:DateTime",
}

#: The size of a dimension that varies, in ``arrayShape``.
_ANY_SIZE: Final = "-1"


def describe_columns(iterator: DatasetIteratorIF) -> dict[str, dict[str, Any]]:
    """Return the type of each column, see :func:`describe_type`, by the name of the column.

    The types are those that the dataset declares. The first sample is read for the others.
    """
    samples = access_to(iterator)
    declared = samples.declare_columns() or {}
    values: Mapping[Any, Any] = dict.fromkeys(declared)
    if len(iterator) > 0:
        values = _values_by_column(iterator, samples.sample(0))
    described = {}
    for column, value in values.items():
        described[str(column)] = describe_type(value, declared.get(column))
    return described


def _values_by_column(iterator: DatasetIteratorIF, sample: Any) -> Mapping[Any, Any]:
    """Return a sample, a dict, a tuple or a single value, as a dict by the names of columns."""
    if isinstance(sample, Mapping):
        return sample
    values = (sample,)
    if isinstance(sample, tuple):
        values = sample
    names = list(column_names(iterator))
    if not names:
        names = [_name_of_position(iterator, position) for position in range(len(values))]
    return dict(zip(names, values, strict=True))


def _name_of_position(iterator: Any, position: int) -> str:
    """Return the name of a column of tuples: its role in the meta, or ``column_0`` and so on."""
    meta = getattr(iterator, "dataset_meta", None)
    if meta is not None:
        for role in ("sample", "target", "tag"):
            if getattr(meta, f"{role}_pos") == position:
                return role
    return f"column_{position}"


def describe_type(value: Any, declared: DeclaredColumn | None) -> dict[str, Any]:
    """Return the ``dataType`` of a column, and its ``arrayShape`` if its values are arrays.

    Args:
        value: one of the values of the column; None if it is missing.
        declared: the type of the column in a schema; None if the schema has none.
    """
    # Pillow is optional, so that its class is recognized by its module.
    is_picture_of_pillow = type(value).__module__.startswith("PIL.")
    if is_picture_of_pillow:
        return {"dataType": "sc:ImageObject"}
    dtype, shape = _type_of_value(value)
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        shape = declared.shape
        # The name may be one that numpy does not know: then the dtype is that of the value.
        with contextlib.suppress(TypeError):
            dtype = np.dtype(declared.dtype)
    described: dict[str, Any] = {"dataType": _data_type_of(value, dtype)}
    if shape:
        sizes = [_ANY_SIZE if size is None else str(size) for size in shape]
        described["isArray"] = True
        described["arrayShape"] = ",".join(sizes)
    return described


def _type_of_value(value: Any) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
    """Return the dtype and the shape of a value; None for a dimension of different sizes.

    An example of such a dimension is the second one of ``[[1], [2, 3]]``.
    """
    with contextlib.suppress(ValueError):
        array = np.asarray(value)
        return array.dtype, array.shape

    # numpy has no arrays of lists of different lengths.
    dtypes = []
    shapes = []
    for element in value:
        dtype, shape = _type_of_value(element)
        shapes.append(shape)
        is_empty = 0 in shape
        if not is_empty:
            dtypes.append(dtype)
    return _common_dtype(dtypes), (len(value), *_common_shape(shapes))


def _common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype that holds values of all dtypes; object if there is none."""
    with contextlib.suppress(TypeError, ValueError):
        return np.result_type(*dtypes)
    return np.dtype(object)


def _common_shape(shapes: Sequence[tuple[int | None, ...]]) -> list[int | None]:
    """Return a shape with None where shapes differ; empty if they have different lengths."""
    if len({len(shape) for shape in shapes}) > 1:
        return []
    common: list[int | None] = []
    for sizes in zip(*shapes, strict=True):
        is_equal = len(set(sizes)) == 1
        common.append(sizes[0] if is_equal else None)
    return common


def _data_type_of(value: Any, dtype: np.dtype[Any]) -> str:
    """Return the data type of a value that is stored in a dtype, such as ``"cr:Int64"``."""
    if isinstance(value, datetime.datetime):
        return "sc:DateTime"
    if isinstance(value, datetime.date):
        return "sc:Date"
    data_type = _DATA_TYPES.get(dtype.kind, "sc:Text")
    if data_type.startswith("cr:"):
        return f"{data_type}{8 * dtype.itemsize}"
    return data_type
