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
        fractions: the fraction of values in each subset, as the user gave them.
        subset_index: the subset, counted from 0.
    """
    # Petastorm sums the fractions in the type that the user gave, such as numpy.float32, and the
    # rounding of that type decides to which subset a bucket at a border belongs.
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
    """Iterate over the texts of the values of a column, as Petastorm makes them.

    Args:
        column: the values, shape ``(n,)``; None is a missing value.
        dtype: the dtype of the field; None if it is not known.
    """
    text_of_null = _text_of_null(column, dtype)
    values: Any = column
    # Petastorm's rows have floats and times of numpy, and other values of Python: str() of these
    # differs between numpy and Python.
    if column.dtype.kind in "biuSUO":
        values = column.tolist()
    for value in values:
        yield text_of_null if value is None else str(value)


def _text_of_null(column: npt.NDArray[Any], dtype: Any) -> str:
    """Return the text that Petastorm has for a missing value.

    Petastorm reads rows by pandas, which makes NaN of a missing float, and NaT of a missing
    timestamp.
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
    """Return the dtype of the first value that is not missing; object if all are missing."""
    for value in column:
        if isinstance(value, np.generic):
            return value.dtype
        if value is not None:
            return np.dtype(type(value))
    return np.dtype(object)
