"""Petastorm's pseudorandom split: the text of a value determines its subset.

The texts, the hash and the rounding of floats are Petastorm's, so that each value is in the same
subset (https://github.com/uber/petastorm, ``petastorm/predicates.py``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: The number of buckets: ``sys.maxsize`` of the machines that Petastorm runs on.
_N_BUCKETS: Final = 2**63 - 1


def buckets_of_subset(fractions: Sequence[float], subset_index: int) -> range:
    """Return the buckets of a subset.

    Args:
        fractions: the fraction of values in each subset.
        subset_index: the subset, counted from 0.
    """
    # In the numbers as given, as in Petastorm: their rounding decides the subset of a bucket at a
    # border.
    lower_border = sum(fractions[:subset_index])
    upper_border = sum(fractions[: subset_index + 1])
    start = math.ceil(lower_border * (_N_BUCKETS - 1))
    stop = math.ceil(upper_border * (_N_BUCKETS - 1))
    return range(start, stop)


def bucket_of(text: str) -> int:
    """Return the bucket of the text of a value."""
    digest = hashlib.md5(text.encode("utf-8"), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big") % _N_BUCKETS


def texts_of(column: npt.NDArray[Any], dtype: Any) -> Iterator[str]:
    """Iterate over the texts of values.

    Args:
        column: the values, shape ``(n,)``; None is a missing value.
        dtype: the dtype of the field; None if only the values tell it.
    """
    text_of_null = _text_of_null(column, dtype)
    values: Any = column
    # numpy shows floats and times as Petastorm's rows have them; others differ from Python's.
    if column.dtype.kind in "biuSUO":
        values = column.tolist()
    for value in values:
        yield text_of_null if value is None else str(value)


def _text_of_null(column: npt.NDArray[Any], dtype: Any) -> str:
    """Return the text of a missing value as Petastorm reads it.

    There, pandas makes NaN of a missing float, and NaT of a missing timestamp.
    """
    if dtype is None and column.dtype == object:
        dtype = _dtype_of_first_value(column)
    if not isinstance(dtype, np.dtype):
        return "None"
    if dtype.kind == "f":
        return "nan"
    is_timestamp = dtype.kind == "M" and np.datetime_data(dtype)[0] != "D"
    return "NaT" if is_timestamp else "None"


def _dtype_of_first_value(column: npt.NDArray[Any]) -> np.dtype[Any]:
    """Return the dtype of the first value that is not missing; that of objects without values."""
    for value in column:
        if isinstance(value, np.generic):
            return value.dtype
        if value is not None:
            return np.dtype(type(value))
    return np.dtype(object)
