"""The data types of Croissant for the columns of samples."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, access_to, column_names
from data_stack.dataset.iterator.access import DeclaredColumn

#: Data types by numpy's kinds of dtypes; those of ``cr:`` are followed by the number of bits.
_DATA_TYPES: Final = {
    "b": "sc:Boolean",
    "i": "cr:Int",
    "u": "cr:UInt",
    "f": "cr:Float",
    "M": "sc:DateTime",
}


def describe_columns(iterator: DatasetIteratorIF) -> dict[str, dict[str, Any]]:
    """Return by column what :func:`describe_type` returns; reads at most one sample."""
    samples = access_to(iterator)
    declared = samples.declare_columns() or {}
    sample: Any = dict.fromkeys(declared)
    if len(iterator):
        sample = samples.sample(0)
    if not isinstance(sample, Mapping):
        values = sample if isinstance(sample, tuple) else (sample,)
        names = list(column_names(iterator))
        if not names:
            names = [_name_of_position(iterator, position) for position in range(len(values))]
        sample = dict(zip(names, values, strict=True))
    described = {}
    for column, value in sample.items():
        described[str(column)] = describe_type(value, declared.get(column))
    return described


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
        value: one of them; None if missing.
        declared: their type in a schema; None if the schema has none.
    """
    is_picture_of_pillow = type(value).__module__.startswith("PIL.")
    if is_picture_of_pillow:
        return {"dataType": "sc:ImageObject"}
    array = np.asarray(value)
    dtype = array.dtype
    shape = array.shape
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        shape = tuple(-1 if size is None else size for size in declared.shape)
        with contextlib.suppress(TypeError):  # of a name that numpy does not know
            dtype = np.dtype(declared.dtype)
    described = {"dataType": _data_type_of(value, dtype)}
    if not shape:
        return described
    return {**described, "isArray": True, "arrayShape": ",".join(map(str, shape))}


def _data_type_of(value: Any, dtype: np.dtype[Any]) -> str:
    if isinstance(value, datetime.datetime):
        return "sc:DateTime"
    if isinstance(value, datetime.date):
        return "sc:Date"
    data_type = _DATA_TYPES.get(dtype.kind, "sc:Text")
    if data_type.startswith("cr:"):
        return f"{data_type}{8 * dtype.itemsize}"
    return data_type
