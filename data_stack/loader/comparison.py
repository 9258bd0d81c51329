"""Finds the first difference of two batches, to the last bit."""

from __future__ import annotations

import struct
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import numpy as np

from data_stack.processes.seeding import loaded_torch

#: Stands for the column of a batch that is one array.
_WHOLE_BATCH: Final = object()

#: Stands for the value that the shorter one of two containers lacks.
_MISSING: Final = object()

#: How deep values may lie in each other. Deeper ones count as equal: they are rare, and cycles
#: would not end.
_MAX_DEPTH = 40

#: So many bytes of two arrays are compared at once. To compare all bytes of a batch of 19 MB at
#: once took 32 MB more.
_BYTES_AT_ONCE: Final = 1 << 18

#: Longer texts of values are cut off.
_MAX_VALUE_LENGTH = 60

#: Values that are the same if they are equal. The order of a set says nothing.
_EXACT_TYPES = (
    bytearray,
    bytes,
    frozenset,
    int,
    set,
    str,
    type(None),
    types.ModuleType,
)

#: Values that are the same if they have the same name in the same module: those that are sent by
#: value are copies.
_NAMED_TYPES = (type, types.FunctionType, types.BuiltinFunctionType)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two batches.

    Attributes:
        place: where it is, such as ``"column 'x', row 3"``; "the batch" for a bare array.
        one: a short text of the first batch's value there.
        other: a short text of the second batch's value there.
    """

    place: str
    one: str
    other: str


def find_difference(one: Any, other: Any) -> Difference | None:
    """Return the first difference of two batches or values; None if they are the same.

    Arrays and tensors are compared by dtype, shape and bytes (the bits of NaN do not count),
    containers by type, order and content, other objects by what pickling keeps of them.
    """
    for difference in find_column_differences(one, other).values():
        return difference
    return None


def find_column_differences(one: Any, other: Any) -> dict[Any, Difference]:
    """Return the first difference of each column that differs, by its key or number.

    A difference of the batches themselves, such as a column that only one of them has, comes last.
    """
    columns = _columns_of(one)
    other_columns = _columns_of(other)
    differences = {}
    for key, column in columns.items():
        if key not in other_columns:
            continue
        place = "the batch" if key is _WHOLE_BATCH else f"column {key!r}"
        difference = _compare(column, other_columns[key], place, 0)
        if difference is not None:
            differences[key] = difference

    outer_difference = _compare_types(one, other, "the batch")
    if outer_difference is None and list(columns) != list(other_columns):
        outer_difference = Difference(
            "the columns of the batch",
            describe_value(list(columns)),
            describe_value(list(other_columns)),
        )
    if outer_difference is not None:
        differences.setdefault(_WHOLE_BATCH, outer_difference)
    return differences


def describe_value(value: Any, *, with_type: bool = False) -> str:
    """Return a short text for a value."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # the __repr__ of a user's class may raise anything
        text = "an object"
    if len(text) > _MAX_VALUE_LENGTH:
        text = f"{text[:_MAX_VALUE_LENGTH]}…"
    if with_type:
        return f"{text} ({type(value).__name__})"
    return text


def _columns_of(batch: Any) -> dict[Any, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    if isinstance(batch, tuple):
        return dict(enumerate(batch))
    return {_WHOLE_BATCH: batch}


# ---------------------------------------------------------------------- values


def _compare(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    """Return the first difference of two values; None if they are the same.

    Args:
        one: a value.
        other: another value.
        place: where they are, for the difference.
        depth: in how many containers they are.
    """
    if one is other or depth > _MAX_DEPTH:
        return None

    # Classes of arrays may differ.
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return _compare_arrays(one, other, place, depth)
    type_difference = _compare_types(one, other, place)
    if type_difference is not None:
        return type_difference

    # Numbers, before int and float, of which some of numpy's are subclasses.
    if isinstance(one, np.generic):
        return _compare_arrays(np.asarray(one), np.asarray(other), place, depth)
    if isinstance(one, float):
        return None if _is_same_float(one, other) else _difference_of(one, other, place)
    if isinstance(one, complex):
        return _compare_all((one.real, one.imag), (other.real, other.imag), place, depth)

    # Values that are compared as a whole.
    if isinstance(one, _EXACT_TYPES):
        return None if one == other else _difference_of(one, other, place)
    if isinstance(one, _NAMED_TYPES):
        return None if _names_of(one) == _names_of(other) else _difference_of(one, other, place)

    # Containers.
    if type(one) is dict:
        return _compare_dicts(one, other, place, depth)
    if type(one) in (list, tuple):
        return _compare_all(one, other, place, depth)

    # Other objects.
    torch = loaded_torch()
    if torch is not None and isinstance(one, torch.Tensor):
        return _compare_tensors(one, other, place, depth)
    return _compare_objects(one, other, place, depth)


def _compare_types(one: Any, other: Any, place: str) -> Difference | None:
    if type(one) is type(other):
        return None
    # A class of a script or notebook that has been sent by value is another one, of the same name.
    if _names_of(type(one)) == _names_of(type(other)):
        return None
    return Difference(
        place, describe_value(one, with_type=True), describe_value(other, with_type=True)
    )


def _names_of(named: Any) -> tuple[str, str]:
    return named.__module__, named.__qualname__


def _is_same_float(one: float, other: float) -> bool:
    """Return whether two floats have the same bits, or both are NaN."""
    is_nan = one != one and other != other
    return is_nan or struct.pack("d", one) == struct.pack("d", other)


def _difference_of(one: Any, other: Any, place: str) -> Difference:
    one_text = describe_value(one)
    other_text = describe_value(other)
    if one_text == other_text:
        one_text = describe_value(one, with_type=True)
        other_text = describe_value(other, with_type=True)
    return Difference(place, one_text, other_text)


# ---------------------------------------------------------------------- containers


def _compare_dicts(
    one: dict[Any, Any], other: dict[Any, Any], place: str, depth: int
) -> Difference | None:
    keys = list(one)
    other_keys = list(other)
    if keys != other_keys:
        return Difference(f"the keys of {place}", describe_value(keys), describe_value(other_keys))
    for key in keys:
        difference = _compare(one[key], other[key], f"{place}, {key!r:.30}", depth + 1)
        if difference is not None:
            return difference
    return None


def _compare_all(
    values: Iterable[Any], other_values: Iterable[Any], place: str, depth: int
) -> Difference | None:
    """Return the first difference of the values of two sequences."""
    pairs = zip_longest(values, other_values, fillvalue=_MISSING)
    for number, (value, other) in enumerate(pairs):
        if value is _MISSING:
            return Difference(f"the length of {place}", f"at most {number}", f"more than {number}")
        if other is _MISSING:
            return Difference(f"the length of {place}", f"more than {number}", f"at most {number}")
        difference = _compare(value, other, f"{place}, {number}", depth + 1)
        if difference is not None:
            return difference
    return None


# ---------------------------------------------------------------------- arrays and tensors


def _compare_arrays(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    if one.dtype != other.dtype or one.shape != other.shape:
        return Difference(place, f"{one.dtype} {one.shape}", f"{other.dtype} {other.shape}")
    if isinstance(one, np.ma.MaskedArray) and isinstance(other, np.ma.MaskedArray):
        parts = (one.data, np.ma.getmaskarray(one))
        other_parts = (other.data, np.ma.getmaskarray(other))
        return _compare_all(parts, other_parts, place, depth)

    one = np.asarray(one)
    other = np.asarray(other)
    if one.dtype == object:
        return _compare_all(one.ravel(), other.ravel(), place, depth)
    if one.dtype.names is not None:
        return _compare_fields(one, other, place, depth)
    return _compare_elements(one, other, place)


def _compare_fields(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    """Compare arrays of records field by field, as the bytes between fields may be any."""
    for name in one.dtype.names:
        difference = _compare(one[name], other[name], f"{place}, field {name!r}", depth + 1)
        if difference is not None:
            return difference
    return None


def _compare_elements(one: Any, other: Any, place: str) -> Difference | None:
    """Compare the elements of arrays by their bytes; NaN equals NaN."""
    elements = np.ascontiguousarray(one).reshape(-1)
    other_elements = np.ascontiguousarray(other).reshape(-1)
    n_at_once = max(1, _BYTES_AT_ONCE // max(1, one.dtype.itemsize))
    for start in range(0, one.size, n_at_once):
        part = elements[start : start + n_at_once]
        other_part = other_elements[start : start + n_at_once]
        differs = (_bytes_of_elements(part) != _bytes_of_elements(other_part)).any(axis=1)
        if differs.any() and one.dtype.kind in "fc":
            differs &= ~(np.isnan(part) & np.isnan(other_part))
        if not differs.any():
            continue

        first = int(np.argmax(differs))
        if one.ndim > 0:
            row, *_ = np.unravel_index(start + first, one.shape)
            place = f"{place}, row {int(row)}"
        return _difference_of(part[first].item(), other_part[first].item(), place)
    return None


def _bytes_of_elements(array: Any) -> Any:
    """Return the bytes of contiguous elements, shape ``(size, itemsize)``.

    Args:
        array: shape ``(size,)``.
    """
    itemsize = array.dtype.itemsize
    if itemsize == 0:
        return np.zeros((array.size, 0), dtype=np.uint8)
    return array.view(np.uint8).reshape(array.size, itemsize)


def _compare_tensors(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    shape = tuple(one.shape)
    other_shape = tuple(other.shape)
    kind = (one.dtype, shape, one.device, one.layout, one.requires_grad)
    other_kind = (other.dtype, other_shape, other.device, other.layout, other.requires_grad)
    if kind != other_kind:
        return Difference(place, f"{one.dtype} {shape}", f"{other.dtype} {other_shape}")

    torch = sys.modules["torch"]
    is_plain = one.layout is torch.strided and not one.is_quantized and not one.is_nested
    if not is_plain:
        return _compare_objects(one, other, place, depth)
    return _compare_arrays(_as_array(one), _as_array(other), place, depth)


def _as_array(tensor: Any) -> Any:
    """Return a tensor's values as an array, or its bytes if numpy has no such dtype."""
    torch = sys.modules["torch"]
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        return values.numpy()
    except TypeError:
        return values.reshape(-1).view(torch.uint8).numpy()


# ---------------------------------------------------------------------- other objects


def _compare_objects(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    """Compare what pickling keeps of two objects of one class."""
    try:
        parts = one.__reduce_ex__(4)
        other_parts = other.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # it was sent all the same, by a function of its own
        return None
    if isinstance(parts, str) or isinstance(other_parts, str):
        return None if parts == other_parts else _difference_of(one, other, place)

    for part, other_part in zip_longest(parts, other_parts):
        # The items of a list or dict come as an iterator.
        is_iterator = hasattr(part, "__next__")
        if is_iterator:
            difference = _compare_all(part, other_part, place, depth)
        else:
            difference = _compare(part, other_part, place, depth + 1)
        if difference is not None:
            return Difference(difference.place, describe_value(one), describe_value(other))
    return None
