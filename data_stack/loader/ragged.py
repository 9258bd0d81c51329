"""Concatenated values of different lengths, with their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype
from data_stack.dataset.positions import check_index
from data_stack.exception import ConfigError
from data_stack.values.exact import common_dtype as exact_dtype
from data_stack.values.stacking import exact_array

_NUMBERS = "biufc"


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """The concatenation of arrays that differ in their first extent.

    ``ragged[i]`` is the array of sample i, a view. Array and offsets are what ``torch.nn.EmbeddingBag``,
    ``torch.nested.nested_tensor_from_jagged``, ``tf.RaggedTensor.from_row_splits`` and attention kernels for sequences of
    different lengths (as ``cu_seqlens``) accept.

    Attributes:
        values: shape ``(n_values, ...)``.
        offsets: int64, shape ``(n + 1,)``, ascending from 0 to ``n_values``: sample i has
            ``values[offsets[i]:offsets[i + 1]]``.

    Raises:
        ConfigError: the offsets do not fit the values.
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        values, offsets = np.asarray(self.values), np.asarray(self.offsets)
        if values.ndim == 0:
            raise ConfigError("the values of a ragged array need at least one dimension")
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
            raise ConfigError(
                f"the offsets of a ragged array must be n + 1 integers ([0] without samples), "
                f"got {offsets.dtype} of shape {offsets.shape}"
            )
        offsets = offsets.astype(np.int64, copy=False)
        if offsets[0] != 0 or offsets[-1] != len(values) or bool((offsets[1:] < offsets[:-1]).any()):
            raise ConfigError(
                f"the offsets of a ragged array must ascend from 0 to its {len(values):,} values, "
                f"got offsets from {offsets[0]} to {offsets[-1]}"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of values of each sample, shape ``(n,)``."""
        return self.offsets[1:] - self.offsets[:-1]  # also if loader.torch() has put tensors here

    @property
    def nbytes(self) -> int:
        """The bytes of both arrays."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> npt.NDArray[Any]:
        """The array of one sample, a view.

        Raises:
            DatasetOutOfBoundsError: the index is out of range.
        """
        place = check_index(index, len(self))
        row: npt.NDArray[Any] = self.values[self.offsets[place] : self.offsets[place + 1]]
        return row

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self.values[start:end] for start, end in pairwise(self.offsets.tolist()))


def value_arrays(column: Sequence[Any] | npt.NDArray[Any], what: str) -> list[npt.NDArray[Any]] | None:
    """The values of a column as arrays of numbers with the same number of dimensions; None if no value is an array.

    Args:
        column: arrays, tensors or lists of numbers; empty lists take the dtype of the others.
        what: the name of the column for messages.

    Raises:
        ConfigError: only some are arrays of numbers, or their numbers of dimensions differ.
    """
    values = column.tolist() if isinstance(column, np.ndarray) and column.dtype == object else list(column)
    arrays: list[npt.NDArray[Any]] = []
    wrong: int | None = None
    for place, value in enumerate(values):
        array = value if type(value) is np.ndarray else _as_array(value)
        if array is None or array.dtype.kind not in _NUMBERS or array.ndim == 0:
            wrong = place if wrong is None else wrong
            continue
        arrays.append(array)
    if not arrays and wrong is not None:
        return None
    if wrong is not None:
        raise ConfigError(f"{what} has arrays of numbers, but at place {wrong} of the batch {values[wrong]!r:.60}")
    # an empty list among lists of lists is one without rows
    example = next((array for array in arrays if array.shape != (0,)), np.empty(0))
    arrays = [array if array.shape != (0,) else array.reshape(0, *example.shape[1:]) for array in arrays]
    for place, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise ConfigError(
                f"{what} has arrays of different numbers of dimensions: at place 0 of the batch shape {arrays[0].shape}, "
                f"at place {place} {array.shape}"
            )
    return arrays


def common_dtype(arrays: Sequence[npt.NDArray[Any]], what: str) -> np.dtype[Any]:
    """The dtype that holds the numbers of all arrays exactly.

    Empty lists, which numpy makes float64, count only if all are empty.

    Raises:
        ConfigError: no dtype holds all of them.
    """
    given = [array for array in arrays if array.size or array.dtype != np.float64] or arrays
    common = exact_dtype(given)
    if common is None:
        shown = " and ".join(sorted({str(array.dtype) for array in given}))
        raise ConfigError(f"{what} has values of {shown}, which no dtype holds exactly; convert them by iterator.map(…)")
    return common


def fill(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any], what: str) -> npt.NDArray[Any]:
    """A new array full of ``value``.

    Raises:
        ConfigError: the dtype cannot hold ``value``.
    """
    number = np.asarray(value)
    try:
        if number.ndim:
            raise TypeError(f"it has {number.ndim} dimensions")
        as_dtype(number, dtype, rounds=number.dtype.kind in "fc", whole_floats=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{what} is {dtype}, which cannot hold the padding value {value!r:.40} ({error}); "
            f"pass another value or dtype, or name the columns to pad"
        ) from error
    return np.full(shape, value, dtype)


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    return exact_array(value) if isinstance(value, (list, tuple)) or hasattr(value, "__array__") else None


def join(arrays: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any], what: str) -> Ragged:
    """Concatenate at least one array.

    Raises:
        ConfigError: the arrays differ in more than their first extent; ``what`` names them in the message.
    """
    trailing = arrays[0].shape[1:]
    for place, array in enumerate(arrays):
        if array.shape[1:] != trailing:
            raise ConfigError(
                f"{what} has arrays that differ in more than their first extent: "
                f"at place 0 of the batch shape {arrays[0].shape}, at place {place} {array.shape}; Padded(…) pads all extents"
            )
    offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    values = np.empty((int(offsets[-1]), *trailing), dtype=dtype)
    np.concatenate(arrays, out=values, casting="unsafe")  # an empty list is float64
    return Ragged(values, offsets)
