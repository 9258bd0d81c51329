"""Whether values fit a declared dtype and shape, and the same values as that dtype: for each format, transform and batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.values.stacked_values import as_array

_Array = npt.NDArray[Any]

#: By the kind of a dtype, the kinds of those whose values it may hold.
_CONVERSIONS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc", "M": "M", "m": "m"}


def fits_shape(shape: Sequence[int], expected: Sequence[int | None]) -> bool:
    """Whether a shape is one that a declared one allows, in which None stands for any size."""
    return len(shape) == len(expected) and all(
        size is None or size == found for size, found in zip(expected, shape, strict=True)
    )


def check_shape(shape: tuple[int, ...], expected: tuple[int | None, ...] | None) -> None:
    """Refuse another shape than the declared one (None: any).

    Raises:
        ValueError: it is one.
    """
    if expected is not None and shape != expected and not fits_shape(shape, expected):
        raise ValueError(f"its shape is {shape}, where {expected} belongs")


def as_dtype(
    array: _Array, dtype: np.dtype[Any], *, rounds: bool = False, whole_floats: bool = False
) -> _Array:
    """Values as another dtype, none of them changed.

    Args:
        array: the values; copied unless they are of that dtype.
        dtype: what they shall be.
        rounds: a float may lose digits, so long as it stays finite; an integer may not.
        whole_floats: floats without a fraction may become integers.

    Raises:
        TypeError: they are of another kind, such as floats where integers are expected.
        ValueError: one of them does not fit.
    """
    found = array.dtype
    if found == dtype or not array.size:
        return array.astype(dtype, copy=False)
    if found.kind == "O" and dtype.kind in "iu":  # integers that no dtype holds
        raise ValueError(f"{array.reshape(-1)[0]!r:.60} does not fit into dtype {dtype}")
    if found.kind not in _CONVERSIONS.get(dtype.kind, "") and not (
        whole_floats and found.kind == "f" and dtype.kind in "iu"
    ):
        raise TypeError(f"a value of dtype {dtype} is expected, this one is of dtype {found}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if rounds and dtype.kind in "fc" and found.kind in "fc":
            is_same = ~(np.isinf(cast) & ~np.isinf(array))
        elif dtype.kind in "iu":
            # Compared as they were: int64 and uint64 meet in float64, which rounds.
            is_same = (cast.astype(found) == array) & ((cast < 0) == (array < 0))
            if found.kind == "f":
                is_same &= _is_within(array, dtype)
        else:
            back = cast.real if dtype.kind == "c" and found.kind != "c" else cast
            is_same = (back.astype(found) == array) | (array != array)  # NaN and NaT
            if found.kind in "iu":
                is_same &= _is_within(back, found)
    if not is_same.all():
        wrong = array.reshape(-1)[np.flatnonzero(~np.atleast_1d(is_same).reshape(-1))[0]]
        is_beyond = rounds and dtype.kind in "fc" and found.kind in "fc"
        raise ValueError(
            f"{wrong} {'is beyond the largest of' if is_beyond else 'does not fit into'} dtype {dtype}"
        )
    return cast


def _is_within(floats: _Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Whether floats lie within the range of a dtype of integers.

    Beyond it, processors convert a float to different integers: ARM to the largest, so that 2.0**63 would seem to be 2**63 - 1.
    """
    n_bits = 8 * dtype.itemsize - (dtype.kind == "i")
    wide = np.asarray(floats).astype(np.float64, copy=False)
    is_within: npt.NDArray[np.bool_] = (wide >= -(2.0**n_bits)) & (wide < 2.0**n_bits)
    return is_within


def fit_array(
    value: Any, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None
) -> _Array:
    """A value as an array of a declared dtype and shape (None: any).

    Numbers and lists of them become what is declared where nothing is lost but the precision of a float; arrays where no value of
    their dtype would be lost, or where they are integers that fit.

    Raises:
        TypeError, ValueError: it is something else.
    """
    array = as_array(value)
    if array.dtype == object:
        raise TypeError(
            f"expected an array of {dtype or 'numbers'}, got {type(value).__name__}, or lists of different lengths"
        )
    check_shape(array.shape, shape)
    if dtype is None or array.dtype == dtype:
        return array
    is_weak = not hasattr(value, "dtype")
    both_integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    is_number = is_weak and array.dtype.kind in "iuf" and dtype.kind == "f"
    if array.size and not (both_integers or is_number or np.can_cast(array.dtype, dtype, "safe")):
        raise TypeError(f"its dtype is {array.dtype}, where {dtype} belongs")
    if not array.size or np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    return as_dtype(array, dtype, rounds=is_weak)
