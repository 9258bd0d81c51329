"""Copies of values, so that whoever receives them may write into them.

Caches, layers and loaders follow this one rule.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import UserDict, UserList, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar
from uuid import UUID

import numpy as np

from data_stack.values.stacking import list_columns

_Batch = TypeVar("_Batch")

_BUILT_IN_CONSTANTS = {type(None), bool, int, float, complex, str, bytes, range, slice, frozenset}
_LIBRARY_CONSTANTS = {datetime, date, time, timedelta, timezone, Decimal, Fraction, UUID}

#: The types of numpy's scalars, but those of objects and of records, which can be written into.
_CONSTANT_SCALARS = set(np.sctypeDict.values()) - {np.object_, np.void}

#: Types of values that cannot be written into.
_CONSTANT_TYPES: frozenset[type] = frozenset(
    _BUILT_IN_CONSTANTS | _LIBRARY_CONSTANTS | _CONSTANT_SCALARS
)


def copy_value(value: Any) -> Any:
    """Return a value of the same type that may be written into; the original does not change.

    Copied at any depth are the containers of Python (lists, tuples, dicts, sets, deques,
    bytearrays) and of classes derived from them, named tuples and dataclasses, arrays and records
    of numpy's, also with objects in them, tensors of torch's, images of Pillow's, and tables and
    series of pandas. Objects of other classes are returned as they are: their copy could be
    anything, from a vocabulary of gigabytes to a connection.
    """
    # The most frequent types come first.
    value_type = type(value)
    if value_type in _CONSTANT_TYPES:
        return value
    if value_type is tuple:
        return tuple([copy_value(item) for item in value])
    if isinstance(value, np.ndarray):
        return copy_array(value)
    if value_type is dict:
        return {key: copy_value(item) for key, item in value.items()}
    if value_type is list:
        return [copy_value(item) for item in value]
    if value_type is set or value_type is bytearray:
        return value.copy()

    for base, copy_derived in _COPY_BY_BASE.items():
        if isinstance(value, base):
            return copy_derived(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _copy_dataclass(value)
    library_copy = _copy_of_library(value)
    return value if library_copy is None else library_copy


def copy_array(array: Any) -> Any:
    """Return an array with memory of its own, in which objects are copies, too."""
    copied = array.copy("K")
    return copy_objects(copied) if copied.dtype.hasobject else copied


def copy_objects(batch: _Batch) -> _Batch:
    """Replace the objects in a batch, or in a column, by copies.

    Args:
        batch: its arrays must not be shared.

    Returns:
        ``batch``.
    """
    columns: Any = batch
    for column in list_columns(columns):
        if column.dtype.hasobject:
            _replace_objects(column)
    return batch


def _replace_objects(array: Any) -> None:
    """Replace the objects in an array, or in the fields of its records, by copies."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            field = array[name]  # it shares the memory of the array
            if field.dtype.hasobject:
                _replace_objects(field)
        return
    values = array.data if isinstance(array, np.ma.MaskedArray) else array.view(np.ndarray)
    for indices in np.ndindex(values.shape):
        if type(values[indices]) not in _CONSTANT_TYPES:
            values[indices] = copy_value(values[indices])


# ----------------------------------------------------------------------- values of derived classes


def _copy_record(value: Any) -> Any:
    """Copy a record of numpy's, ``numpy.void``; one without fields is bytes to be written into."""
    copied = np.empty((), value.dtype)
    copied[()] = value
    if copied.dtype.hasobject:
        _replace_objects(copied)
    return copied[()]


def _copy_tuple(value: Any) -> Any:
    """Copy a tuple of a derived class: one with names, or a structure of another library."""
    copied = tuple.__new__(type(value), [copy_value(item) for item in value])
    _copy_attributes(value, copied)
    return copied


def _copy_list(value: Any) -> Any:
    copied = _copy_shallow(value)
    list.__setitem__(copied, slice(None), [copy_value(item) for item in value])
    _copy_attributes(value, copied)
    return copied


def _copy_dict(value: Any) -> Any:
    copied = _copy_shallow(value)
    for key, item in dict.items(value):
        dict.__setitem__(copied, key, copy_value(item))
    _copy_attributes(value, copied)
    return copied


def _copy_deque(value: Any) -> Any:
    copied = _copy_shallow(value)
    for position, item in enumerate(value):
        deque.__setitem__(copied, position, copy_value(item))
    _copy_attributes(value, copied)
    return copied


def _copy_with_attributes(value: Any) -> Any:
    """Copy a container whose items are constant, or which keeps its items in an attribute."""
    copied = _copy_shallow(value)
    _copy_attributes(value, copied)
    return copied


def _copy_shallow(value: Any) -> Any:
    """Return an object of the same class, also where this class has another constructor."""
    return copy.copy(value)


def _copy_attributes(value: Any, copied: Any) -> None:
    """Copy what an object of a derived class has besides its items."""
    attributes = getattr(value, "__dict__", None)
    if attributes:
        copied.__dict__.update(copy_value(attributes))


def _copy_dataclass(value: Any) -> Any:
    # Not by its constructor, which may check or convert; and it may be frozen.
    copied = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            object.__setattr__(copied, field.name, copy_value(getattr(value, field.name)))
    return copied


#: Copies a value by its base class; the first one counts.
_COPY_BY_BASE: dict[type, Callable[[Any], Any]] = {
    np.void: _copy_record,
    tuple: _copy_tuple,
    dict: _copy_dict,
    list: _copy_list,
    deque: _copy_deque,
    set: _copy_with_attributes,
    bytearray: _copy_with_attributes,
    UserDict: _copy_with_attributes,
    UserList: _copy_with_attributes,
}


# -------------------------------------------------------------------------------- other libraries


def _copy_of_library(value: Any) -> Any:
    """Return a copy of a tensor, an image or a table; None of anything else.

    A library is asked only if it is imported.
    """
    tensor_class = _class_in("torch", "Tensor")
    if tensor_class is not None and isinstance(value, tensor_class):
        return _copy_tensor(value, tensor_class)
    image_class = _class_in("PIL.Image", "Image")
    if image_class is not None and isinstance(value, image_class):
        is_plain = type(value) is image_class
        return value.copy() if is_plain else copy.deepcopy(value)
    for name in ("Series", "DataFrame"):
        table_class = _class_in("pandas", name)
        if table_class is not None and isinstance(value, table_class):
            return value.copy(deep=True)
    return None


def _copy_tensor(tensor: Any, tensor_class: Any) -> Any:
    """Copy a tensor.

    deepcopy, which takes five times as long as clone, keeps the class of a tensor and whether a
    leaf wants a gradient. It refuses tensors that are not leaves.
    """
    is_plain = type(tensor) is tensor_class and not tensor.requires_grad
    if is_plain or not tensor.is_leaf:
        return tensor.clone()
    return copy.deepcopy(tensor)


def _class_in(module: str, name: str) -> Any:
    """Return a class of a library.

    None if the library is not imported, or another thread is importing it just now.
    """
    return getattr(sys.modules.get(module), name, None)
