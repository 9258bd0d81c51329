"""Values of different lengths in one array: one after the other, with the places where each begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype
from data_stack.dataset.iterator.indices import check_index
from data_stack.dataset.iterator.stacking import exact_array
from data_stack.exception import ConfigError
from data_stack.util.exact import common_dtype as exact_dtype

__all__ = ["Ragged", "common_dtype", "fill", "join", "value_arrays"]

_NUMBERS = "biufc"


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Arrays that differ in their first extent, one after the other in one array.

    ``ragged[i]`` is the array of sample i, a view. Array and offsets are what ``torch.nn.EmbeddingBag``,
    ``torch.nested.nested_tensor_from_jagged``, ``tf.RaggedTensor.from_row_splits`` and attention kernels for sequences of
    different lengths (as ``cu_seqlens``) take.

    Attributes:
        values: shape ``(n_values, ...)``.
        offsets: int64, shape ``(n + 1,)``, from 0 to ``n_values`` and never less than before: sample i has
            ``values[offsets[i]:offsets[i + 1]]``.

    Raises:
        ConfigError: the offsets are none for these values.
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        values, offsets = np.asarray(self.values), np.asarray(self.offsets)
        if values.ndim == 0:
            raise ConfigError("the values of a ragged array have a dimension at least, these have none")
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
            raise ConfigError(
                f"the offsets of a ragged array are n + 1 integers ([0] for no samples), "
                f"got {offsets.dtype} of shape {offsets.shape}"
            )
        offsets = offsets.astype(np.int64, copy=False)
        if offsets[0] != 0 or offsets[-1] != len(values) or bool((offsets[1:] < offsets[:-1]).any()):
            raise ConfigError(
                f"the offsets of a ragged array go from 0 to its {len(values):,} values and never down; "
                f"these go from {offsets[0]} to {offsets[-1]}"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many values each sample has, shape ``(n,)``."""
        return self.offsets[1:] - self.offsets[:-1]  # also of tensors, which a loader's torch() puts in their place

    @property
    def nbytes(self) -> int:
        """Of both arrays."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> npt.NDArray[Any]:
        """The array of one sample, a view.

        Raises:
            DatasetOutOfBoundsError: there is no such sample.
        """
        place = check_index(index, len(self))
        row: npt.NDArray[Any] = self.values[self.offsets[place] : self.offsets[place + 1]]
        return row

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self.values[start:end] for start, end in pairwise(self.offsets.tolist()))


def value_arrays(column: Sequence[Any] | npt.NDArray[Any], what: str) -> list[npt.NDArray[Any]] | None:
    """The values of a column as arrays of numbers, of equally many dimensions; None if none of them is such an array.

    Args:
        column: arrays, tensors or lists of numbers; empty lists have no dtype of their own, and get that of the others.
        what: the column in the words of a message.

    Raises:
        ConfigError: some are arrays of numbers and some are not, or they have different numbers of dimensions; it says which.
    """
    values = column.tolist() if isinstance(column, np.ndarray) and column.dtype == object else list(column)
    if set(map(type, values)) == {np.ndarray} and len({(array.dtype, array.ndim) for array in values}) == 1:  # as a rule
        return values if values[0].dtype.kind in _NUMBERS and values[0].ndim else None
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
        raise ConfigError(f"{what} has arrays of numbers, but at place {wrong} of the batch {_shorten(values[wrong])}")
    if any(array.ndim != arrays[0].ndim for array in arrays):
        arrays = _with_shaped_empties(arrays)
    if any(array.ndim != arrays[0].ndim for array in arrays):
        place = next(place for place, array in enumerate(arrays) if array.ndim != arrays[0].ndim)
        raise ConfigError(
            f"{what} has arrays of different numbers of dimensions: at place 0 of the batch shape {arrays[0].shape}, "
            f"at place {place} {arrays[place].shape}"
        )
    return arrays


def _with_shaped_empties(arrays: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """What was an empty list among lists of lists as one of those without a row."""
    others = [array for array in arrays if array.shape != (0,)]
    return [array if array.shape != (0,) else array.reshape(0, *others[0].shape[1:]) for array in arrays]


def common_dtype(arrays: Sequence[npt.NDArray[Any]], what: str) -> np.dtype[Any]:
    """The dtype that holds the numbers of all arrays exactly.

    An empty list says nothing of its dtype: numpy made float64 of it, which counts only if all are like this.

    Raises:
        ConfigError: there is none.
    """
    given = [array for array in arrays if array.size or array.dtype != np.float64] or arrays
    common = exact_dtype(given)
    if common is None:
        shown = " and ".join(sorted({str(array.dtype) for array in given}))
        raise ConfigError(f"{what} has values of {shown}, which no dtype holds exactly; make them one by iterator.map(…)")
    return common


def fill(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any], what: str) -> npt.NDArray[Any]:
    """A new array full of ``value``.

    Raises:
        ConfigError: the dtype cannot hold it.
    """
    number = np.asarray(value)
    try:
        if number.ndim:
            raise TypeError(f"it has {number.ndim} dimensions")
        as_dtype(number, dtype, rounds=number.dtype.kind in "fc", whole_floats=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{what} is {dtype}, which cannot hold the padding value {value!r:.40} ({error}); "
            f"give another value or dtype, or name the columns to be padded"
        ) from error
    return np.zeros(shape, dtype) if value == 0 else np.full(shape, value, dtype)  # zeros are not written where pages are fresh


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    return exact_array(value) if isinstance(value, (list, tuple)) or hasattr(value, "__array__") else None


def join(arrays: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any], what: str) -> Ragged:
    """Arrays, one at least, one after the other.

    Raises:
        ConfigError: they differ in more than their first extent; ``what`` names them in the message.
    """
    trailing = arrays[0].shape[1:]
    for place, array in enumerate(arrays):
        if array.shape[1:] != trailing:
            raise ConfigError(
                f"{what} has arrays that differ in more than their first extent: "
                f"at place 0 of the batch shape {arrays[0].shape}, at place {place} {array.shape}; Padded(…) fills up all extents"
            )
    offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    values = np.empty((int(offsets[-1]), *trailing), dtype=dtype)
    np.concatenate(arrays, out=values, casting="unsafe")  # an empty list is float64
    return Ragged(values, offsets)


def _shorten(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}: {value!r:.60}"
