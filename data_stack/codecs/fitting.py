"""Converts values to a declared dtype and shape, and refuses values that would change.

Formats, transforms and batches share these checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.values.stacked_values import as_array

_Array = npt.NDArray[Any]
_Mask = npt.NDArray[np.bool_]

#: By the kind of a dtype, the kinds of those whose values it may hold.
_CONVERSIONS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc", "M": "M", "m": "m"}


def fits_shape(shape: Sequence[int], expected: Sequence[int | None]) -> bool:
    """Return whether a declared shape allows a shape.

    Args:
        shape: the shape of an array.
        expected: the declared shape, in which None stands for any size.
    """
    if len(shape) != len(expected):
        return False
    for size, expected_size in zip(shape, expected, strict=True):
        if expected_size is not None and size != expected_size:
            return False
    return True


def check_shape(shape: tuple[int, ...], expected: tuple[int | None, ...] | None) -> None:
    """Check that a declared shape allows a shape.

    Args:
        shape: the shape of an array.
        expected: the declared shape, in which None stands for any size; None: any shape.

    Raises:
        ValueError: it does not.
    """
    if expected is None or shape == expected:
        return
    if not fits_shape(shape, expected):
        raise ValueError(f"expected shape {expected}, got {shape}")


def as_dtype(
    array: _Array, dtype: np.dtype[Any], *, rounds: bool = False, whole_floats: bool = False
) -> _Array:
    """Convert an array to another dtype, and refuse values that the dtype would change.

    Args:
        array: the values, of any shape.
        dtype: the dtype to convert to.
        rounds: whether a float may lose digits, so long as it stays finite; an integer may not.
        whole_floats: whether floats without a fraction may become integers.

    Returns:
        A new array; ``array`` itself if it has the dtype.

    Raises:
        TypeError: the values are of another kind, such as floats where integers are expected.
        ValueError: a value does not fit into the dtype.
    """
    if array.dtype == dtype or not array.size:
        return array.astype(dtype, copy=False)
    to_integers = dtype.kind in "iu"
    if array.dtype.kind == "O" and to_integers:  # integers that no dtype holds
        raise ValueError(f"{array.reshape(-1)[0]!r:.60} does not fit into dtype {dtype}")
    is_allowed_kind = array.dtype.kind in _CONVERSIONS.get(dtype.kind, "")
    is_whole_floats = whole_floats and array.dtype.kind == "f" and to_integers
    if not is_allowed_kind and not is_whole_floats:
        raise TypeError(f"expected values of dtype {dtype}, got values of dtype {array.dtype}")

    may_round = rounds and dtype.kind in "fc" and array.dtype.kind in "fc"
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if may_round:
            fits = ~(np.isinf(cast) & ~np.isinf(array))
        elif to_integers:
            fits = _equals_integers(array, cast)
        else:
            fits = _equals_exactly(array, cast)
    if fits.all():
        return cast
    first_misfit = np.flatnonzero(~np.atleast_1d(fits).reshape(-1))[0]
    value = array.reshape(-1)[first_misfit]
    problem = "is beyond the largest of" if may_round else "does not fit into"
    raise ValueError(f"{value} {problem} dtype {dtype}")


def _equals_integers(array: _Array, integers: _Array) -> _Mask:
    """Return where integers equal the integers or floats that were cast to them."""
    # Compared in the old dtype: numpy would compare int64 with uint64 as float64, which rounds.
    is_same: _Mask = (integers.astype(array.dtype) == array) & ((integers < 0) == (array < 0))
    if array.dtype.kind == "f":
        is_same &= _is_within(array, integers.dtype)
    return is_same


def _equals_exactly(array: _Array, cast: _Array) -> _Mask:
    """Return where values of any dtype but integers equal those that were cast to them."""
    back = cast
    if cast.dtype.kind == "c" and array.dtype.kind != "c":
        back = cast.real
    is_missing = array != array  # NaN and NaT
    is_same: _Mask = (back.astype(array.dtype) == array) | is_missing
    if array.dtype.kind in "iu":
        is_same &= _is_within(back, array.dtype)
    return is_same


def _is_within(floats: _Array, dtype: np.dtype[Any]) -> _Mask:
    """Return where floats lie within the range of a dtype of integers.

    Beyond it, processors convert a float to different integers: ARM to the largest, so that 2.0**63
    would seem to be 2**63 - 1.
    """
    n_bits = 8 * dtype.itemsize
    if dtype.kind == "i":
        n_bits -= 1  # one bit is the sign
    wide = np.asarray(floats).astype(np.float64, copy=False)
    is_within: _Mask = (wide >= -(2.0**n_bits)) & (wide < 2.0**n_bits)
    return is_within


def fit_array(
    value: Any, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None
) -> _Array:
    """Return a value as an array of a declared dtype and shape.

    Numbers, and lists of them, have no dtype yet: they become the declared dtype, and a float may
    lose digits. An array has a dtype: it is converted if the declared dtype holds all values of
    that dtype, or if both are integers and the values fit.

    Args:
        value: an array, a number, or lists of numbers.
        dtype: the declared dtype; None: any.
        shape: the declared shape, in which None stands for any size; None: any shape.

    Raises:
        TypeError: the value is not an array of numbers, or of a dtype that is not converted.
        ValueError: the shape differs, or a value does not fit into the dtype.
    """
    array = as_array(value)
    if array.dtype == object:
        raise TypeError(
            f"expected an array of {dtype or 'numbers'}, got {type(value).__name__}, "
            "or lists of different lengths"
        )
    check_shape(array.shape, shape)
    if dtype is None or array.dtype == dtype:
        return array
    if not array.size or np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    is_without_dtype = not hasattr(value, "dtype")
    both_integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    is_number = is_without_dtype and array.dtype.kind in "iuf" and dtype.kind == "f"
    if not both_integers and not is_number:
        raise TypeError(f"expected dtype {dtype}, got {array.dtype}")
    return as_dtype(array, dtype, rounds=is_without_dtype)
