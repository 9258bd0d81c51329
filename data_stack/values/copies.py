"""Copies of values, so that whoever receives them may write into them: the one rule of caches, layers and loaders."""

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

#: What cannot be written into.
_CONSTANT: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, frozenset}
    | {datetime, date, time, timedelta, timezone, Decimal, Fraction, UUID}
    | set(np.sctypeDict.values())
) - {np.object_, np.void}


def copy_value(value: Any) -> Any:
    """A value that may be written into, of the same type; what it was copied from does not change.

    Copied at any depth are the containers of Python (lists, tuples, dicts, sets, deques, bytearrays) and of classes derived from
    them, named tuples and dataclasses, arrays and records of numpy's, also with objects in them, tensors of torch's, images of
    Pillow's, and tables and series of pandas. Objects of other classes are given as they are: their copy could be anything, from
    a vocabulary of gigabytes to a connection.
    """
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if kind is tuple:
        return tuple([copy_value(item) for item in value])
    if isinstance(value, np.ndarray):
        return copy_array(value)
    if kind is dict:
        return {key: copy_value(item) for key, item in value.items()}
    if kind is list:
        return [copy_value(item) for item in value]
    if kind is set or kind is bytearray:
        return value.copy()
    for base, copied in _COPIES.items():
        if isinstance(value, base):
            return copied(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _copy_dataclass(value)
    copied_by_library = _copy_of_library(value)
    return value if copied_by_library is None else copied_by_library


def copy_array(array: Any) -> Any:
    """An array with memory of its own, in which objects are copies, too."""
    copied = array.copy("K")
    return copy_objects(copied) if copied.dtype.hasobject else copied


def copy_objects(batch: _Batch) -> _Batch:
    """A batch, or a column; in its arrays, which must not be shared, objects are replaced by copies."""
    given: Any = batch
    for column in list_columns(given):
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
    for place in np.ndindex(values.shape):
        if type(values[place]) not in _CONSTANT:
            values[place] = copy_value(values[place])


# ---------------------------------------------------------------------- values of one kind


def _copy_record(value: Any) -> Any:
    """A record of numpy's, ``numpy.void``; one without fields is bytes that may be written into."""
    copied = np.empty((), value.dtype)
    copied[()] = value
    if copied.dtype.hasobject:
        _replace_objects(copied)
    return copied[()]


def _copy_tuple(value: Any) -> Any:
    """A tuple of a derived class: one with names, or a structure of another library."""
    made = tuple.__new__(type(value), map(copy_value, value))
    _copy_attributes(value, made)
    return made


def _copy_list(value: Any) -> Any:
    made = _same_class(value)
    list.__setitem__(made, slice(None), [copy_value(item) for item in value])
    _copy_attributes(value, made)
    return made


def _copy_dict(value: Any) -> Any:
    made = _same_class(value)
    for key, item in dict.items(value):
        dict.__setitem__(made, key, copy_value(item))
    _copy_attributes(value, made)
    return made


def _copy_deque(value: Any) -> Any:
    made = _same_class(value)
    for place, item in enumerate(value):
        deque.__setitem__(made, place, copy_value(item))
    _copy_attributes(value, made)
    return made


def _copy_whole(value: Any) -> Any:
    """A container whose items cannot be written into, or which keeps its items in an attribute."""
    made = _same_class(value)
    _copy_attributes(value, made)
    return made


def _same_class(value: Any) -> Any:
    """A shallow copy of the same class, also where this class has another constructor."""
    return copy.copy(value)


def _copy_attributes(value: Any, made: Any) -> None:
    """What an object of a derived class has besides its items."""
    attributes = getattr(value, "__dict__", None)
    if attributes:
        made.__dict__.update(copy_value(attributes))


def _copy_dataclass(value: Any) -> Any:
    made = copy.copy(value)  # not by its constructor, which may check or convert
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            object.__setattr__(made, field.name, copy_value(getattr(value, field.name)))
    return made


#: By the base class of a value, what copies it.
_COPIES: dict[type, Callable[[Any], Any]] = {
    np.void: _copy_record,
    tuple: _copy_tuple,
    dict: _copy_dict,
    list: _copy_list,
    deque: _copy_deque,
    set: _copy_whole,
    bytearray: _copy_whole,
    UserDict: _copy_whole,
    UserList: _copy_whole,
}


def _copy_of_library(value: Any) -> Any:
    """A copy of a tensor, an image or a table; None of anything else. A library is only asked if it is imported."""
    tensor_class = _class_in("torch", "Tensor")
    if tensor_class is not None and isinstance(value, tensor_class):
        is_plain = type(value) is tensor_class and not value.requires_grad
        # deepcopy, five times as slow, keeps the class and whether a leaf wants a gradient; it refuses others
        return value.clone() if is_plain or not value.is_leaf else copy.deepcopy(value)
    image_class = _class_in("PIL.Image", "Image")
    if image_class is not None and isinstance(value, image_class):
        return value.copy() if type(value) is image_class else copy.deepcopy(value)
    for name in ("Series", "DataFrame"):
        table_class = _class_in("pandas", name)
        if table_class is not None and isinstance(value, table_class):
            return value.copy(deep=True)
    return None


def _class_in(module: str, name: str) -> Any:
    """A class of a library; None if the library is not imported, or another thread is importing it just now."""
    return getattr(sys.modules.get(module), name, None)
