"""Collation of values of different lengths into arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.dataset.positions import check_index, check_integer
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import common_dtype, exact_array
from data_stack.values.stacking import Batch, Column, keys_of, list_columns

#: The kinds of dtypes that are numbers: bools, integers, floats and complex numbers.
_KINDS_OF_NUMBERS = "biufc"


class Collation(ABC):
    """Turns columns into a batch. It pickles, and threads share it."""

    @abstractmethod
    def collate(self, batch: Batch) -> Any:
        """Collate a batch of columns, as ``read_batch`` returns them.

        The collation may keep and modify the columns.

        Raises:
            ConfigError: a column does not exist, or its values do not fit into one array.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """The concatenation of arrays that differ in their first dimension.

    ``ragged[i]`` is the array of sample i, a view. Values and offsets are what
    ``torch.nn.EmbeddingBag``, ``torch.nested.nested_tensor_from_jagged``,
    ``tf.RaggedTensor.from_row_splits`` and attention kernels for sequences of different lengths (as
    ``cu_seqlens``) accept.

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
        values = np.asarray(self.values)
        offsets = np.asarray(self.offsets)
        if values.ndim == 0:
            raise ConfigError("the values of a ragged array need at least one dimension")
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
            raise ConfigError(
                "the offsets of a ragged array must be n + 1 integers ([0] without samples), "
                f"got {offsets.dtype} of shape {offsets.shape}"
            )
        offsets = offsets.astype(np.int64, copy=False)
        descends = bool((offsets[1:] < offsets[:-1]).any())
        if offsets[0] != 0 or offsets[-1] != len(values) or descends:
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
        """The size of both arrays in bytes."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> npt.NDArray[Any]:
        """Return the array of one sample, a view.

        Raises:
            DatasetOutOfBoundsError: the index is out of range.
        """
        sample = check_index(index, len(self))
        array: npt.NDArray[Any] = self.values[self.offsets[sample] : self.offsets[sample + 1]]
        return array

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        for start, end in pairwise(self.offsets.tolist()):
            yield self.values[start:end]


class _CollationOfColumns(Collation):
    """Combines the arrays of each column into one value."""

    #: The columns to combine; None for all that have arrays of numbers.
    _keys: Sequence[ColumnKey] | None

    def collate(self, batch: Batch) -> Any:
        """Combine a batch of columns of shape ``(n, ...)``."""
        columns = _columns_by_key(batch)
        self._check_keys(columns)

        # Combine the columns one by one.
        combined: dict[Any, Any] = dict(columns)
        lengths_by_key: dict[Any, npt.NDArray[np.int64]] = {}
        for key, column in columns.items():
            if self._keys is not None and key not in self._keys:
                continue
            name = "the column" if isinstance(batch, np.ndarray) else f"column {key!r}"
            arrays = self._arrays_of(column, name)
            if arrays is None:
                continue
            combined[key], lengths = self._combine(arrays, key, name)
            if lengths is not None:
                lengths_by_key[key] = lengths

        # Put the columns, and their lengths, where the samples had them.
        if isinstance(batch, dict):
            return _add_lengths(combined, lengths_by_key)
        if isinstance(batch, tuple) or lengths_by_key:
            return (*combined.values(), *lengths_by_key.values())
        return combined[0]

    @abstractmethod
    def _combine(
        self, arrays: list[Column], key: Any, name: str
    ) -> tuple[Any, npt.NDArray[np.int64] | None]:
        """Combine the arrays of a column, which have the same number of dimensions.

        Args:
            arrays: the array of each sample.
            key: the key of the column.
            name: the name of the column for messages.

        Returns:
            The combined value, and the lengths of the arrays if the batch gets them.
        """

    def _check_keys(self, columns: Mapping[Any, Column]) -> None:
        """Check that a batch has the named columns.

        Raises:
            ConfigError: it lacks one.
        """
        for key in self._keys or ():
            if key not in columns:
                raise ConfigError(
                    f"the batch has no column {key!r}{did_you_mean(key, columns)}, "
                    f"only {list(columns)}"
                )

    def _arrays_of(self, column: Column, name: str) -> list[Column] | None:
        """Return the arrays of a column; None if it has none and was not named.

        Raises:
            ConfigError: it has none, but was named; or only some of its values are arrays.
        """
        arrays = _number_arrays(column, name)
        if arrays is None and self._keys is not None:
            raise ConfigError(
                f"{name} has no arrays or lists of numbers, but {column.dtype} of shape "
                f"{column.shape}; name another column"
            )
        return arrays


def _columns_by_key(batch: Batch) -> dict[Any, Column]:
    """Return the columns of a batch by their keys, or by their positions."""
    if isinstance(batch, dict):
        return batch
    return dict(enumerate(list_columns(batch)))


def _add_lengths(
    columns: dict[Any, Any], lengths_by_key: Mapping[Any, npt.NDArray[np.int64]]
) -> dict[Any, Any]:
    """Return columns, each followed by its lengths at the end of the batch.

    Raises:
        ConfigError: a column has the key of lengths.
    """
    batch = dict(columns)
    for key, lengths in lengths_by_key.items():
        lengths_key = f"{key}_lengths"
        if lengths_key in columns:
            raise ConfigError(
                f"the batch already has a column {lengths_key!r}; rename it, or pass lengths=False"
            )
        batch[lengths_key] = lengths
    return batch


class Padded(_CollationOfColumns):
    """Pads values of different lengths to one shape::

        # {"tokens": (32, 87), "label": (32,), "tokens_lengths": (32,)}
        Loader(texts, 32, collate=Padded())
        Loader(texts, 32, collate=Padded({"tokens": 0, "labels": -100}, to=512, truncate=True))
        Loader(images, 32, collate=Padded({"image": 0}, multiple_of=(32, 32), lengths=2))

    A padded column has the shape ``(n, size, ...)``. Each size is that of the largest value in the
    batch, or what ``to`` and ``multiple_of`` say. All dimensions in which values differ are padded:
    pictures of shapes ``(h, w, 3)`` become ``(n, H, W, 3)``.
    ``np.arange(padded.shape[1]) < lengths[:, None]`` is the mask of the values.

    The form of a batch does not depend on its samples: a column whose values happen to have one
    length is treated like any other. Without named columns, all columns with arrays or lists of
    numbers are padded and have lengths, also pictures of one size; numbers, strings, bytes and
    other objects stay as they are. The dtype is the one that holds all values of the batch exactly;
    if a source mixes dtypes or has lists that may all be empty, convert them to arrays of one dtype
    by ``iterator.map(…)``.

    Lengths are int64, of shape ``(n,)``, or ``(n, k)`` for k dimensions. In a dict batch those of
    ``"key"`` are under ``"key_lengths"``; a tuple batch has them at its end, one array per padded
    column, in the order of the columns; a bare column becomes ``(padded, lengths)``.

    Args:
        value: the padding value of all columns with arrays of numbers; or a mapping of the columns
            to pad (keys, or positions of tuple samples) to their padding values.
        to: the size of every batch; or several, for the first dimensions of a value, None for the
            largest in the batch.
        truncate: whether values longer than ``to`` are truncated; otherwise they are an error.
        multiple_of: sizes are rounded up to a multiple of this number; or several, for the first
            dimensions. ``to`` is not.
        lengths: whether batches have lengths: True, False, or the number of dimensions with
            lengths.

    Raises:
        ConfigError: an argument is out of range. When a batch is made: a column does not exist or
            has no arrays of numbers; a value is too long; the dtype does not hold the padding
            value. The message names the column and the place in the batch.
    """

    #: The padding value, or that of each column.
    _value: Any
    #: The size of the first dimensions in every batch; None for the largest in the batch.
    _to: tuple[int | None, ...]
    #: Whether longer values are truncated.
    _truncates: bool
    #: What the sizes of the first dimensions are a multiple of; None for 1.
    _multiple_of: tuple[int | None, ...]
    #: The number of dimensions with lengths.
    _n_lengths: int

    def __init__(
        self,
        value: Any = 0,
        *,
        to: SupportsIndex | Sequence[SupportsIndex | None] | None = None,
        truncate: bool = False,
        multiple_of: SupportsIndex | Sequence[SupportsIndex] = 1,
        lengths: bool | int = True,
    ) -> None:
        if isinstance(value, Mapping):
            self._value = dict(value)
            self._keys = keys_of(list(value))
        else:
            self._value = value
            self._keys = None
        self._to = _parse_sizes("to", to, at_least=0, allows_none=True)
        self._multiple_of = _parse_sizes("multiple_of", multiple_of, at_least=1)
        self._truncates = bool(truncate)
        if truncate and not self._to:
            raise ConfigError("truncate=True needs to=, the length to truncate to")
        self._n_lengths = check_integer("lengths", lengths, at_least=0)

    def _combine(
        self, arrays: list[Column], key: Any, name: str
    ) -> tuple[Column, npt.NDArray[np.int64] | None]:
        n_dimensions = arrays[0].ndim if arrays else 1
        self._check_dimensions(n_dimensions, name)

        # Choose the shape that all values get.
        shapes = np.array([array.shape for array in arrays], dtype=np.int64)
        shapes = shapes.reshape(len(arrays), n_dimensions)
        padded_shape = self._padded_shape(shapes)
        if not self._truncates:
            _check_sizes(shapes, padded_shape, name)

        # Copy each value into the first corner of its row.
        value = self._value[key] if isinstance(self._value, dict) else self._value
        dtype = _common_dtype(arrays, name)
        _check_padding_value(value, dtype, name)
        padded = np.full((len(arrays), *padded_shape), value, dtype)
        largest_corner = _corner(padded_shape)
        for row, array in zip(padded, arrays, strict=True):
            kept = array[largest_corner]
            row[_corner(kept.shape)] = kept
        return padded, self._lengths_of(np.minimum(shapes, padded_shape))

    def _padded_shape(self, shapes: npt.NDArray[np.int64]) -> list[int]:
        """Return the shape that values of some shapes get.

        Args:
            shapes: the shape of each value, shape ``(n, n_dimensions)``.
        """
        largest_sizes = shapes.max(axis=0, initial=0).tolist()
        padded_shape = []
        for size, fixed_size, multiple in zip_longest(largest_sizes, self._to, self._multiple_of):
            if fixed_size is not None:
                padded_shape.append(fixed_size)
            else:
                padded_shape.append(_round_up(size, multiple or 1))
        return padded_shape

    def _lengths_of(self, shapes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return the lengths for the batch: the first sizes of each value, as truncated."""
        if self._n_lengths == 0:
            return None
        if self._n_lengths == 1:
            return np.ascontiguousarray(shapes[:, 0])
        return np.ascontiguousarray(shapes[:, : self._n_lengths])

    def _check_dimensions(self, n_dimensions: int, name: str) -> None:
        """Check that no argument is for more dimensions than the values of a column have.

        Raises:
            ConfigError: one is.
        """
        n_dimensions_by_argument = {
            "to": len(self._to),
            "multiple_of": len(self._multiple_of),
            "lengths": self._n_lengths,
        }
        for argument, n_named in n_dimensions_by_argument.items():
            if n_named > n_dimensions:
                raise ConfigError(
                    f"{argument} is for {n_named} dimensions, but the values of {name} have "
                    f"{n_dimensions}"
                )


class Concatenated(_CollationOfColumns):
    """Concatenates values of different lengths, without padding.

    Each column becomes a :class:`~data_stack.loader.collation.Ragged`. As with :class:`Padded`, the
    form of a batch does not depend on its samples. Values may only differ in their first dimension.

    Args:
        columns: a key or several (of tuple samples: positions); None for all that have arrays or
            lists of numbers.

    Raises:
        ConfigError: when a batch is made: a column does not exist, has no arrays of numbers, or its
            arrays differ in more than their first dimension. The message names the column and the
            place in the batch.
    """

    def __init__(self, *, columns: ColumnKey | Sequence[ColumnKey] | None = None) -> None:
        self._keys = None if columns is None else keys_of(columns)

    def _combine(self, arrays: list[Column], key: Any, name: str) -> tuple[Ragged, None]:
        # All dimensions but the first must be the same.
        common_shape = arrays[0].shape[1:] if arrays else ()
        for place, array in enumerate(arrays):
            if array.shape[1:] != common_shape:
                raise ConfigError(
                    f"{name} has arrays that differ in more than their first dimension: at place 0 "
                    f"of the batch shape {arrays[0].shape}, at place {place} {array.shape}; "
                    "Padded(…) pads all dimensions"
                )

        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        n_values = int(offsets[-1])
        values = np.empty((n_values, *common_shape), dtype=_common_dtype(arrays, name))
        np.concatenate(arrays, out=values, casting="unsafe")  # an empty list is float64
        return Ragged(values, offsets), None


# ---------------------------------------------------------------------- sizes and shapes


def _parse_sizes(
    name: str, argument: Any, *, at_least: int, allows_none: bool = False
) -> tuple[int | None, ...]:
    """Return one number, or one per dimension, as a tuple without None at its end.

    Raises:
        ConfigError: a number is none, or too small.
    """
    if argument is None:
        return ()
    is_text = isinstance(argument, (str, bytes))
    if is_text or not isinstance(argument, Iterable):
        return (check_integer(name, argument, at_least=at_least),)
    sizes: list[int | None] = []
    for size in argument:
        if size is None and allows_none:
            sizes.append(None)
        else:
            sizes.append(check_integer(name, size, at_least=at_least))
    while sizes and sizes[-1] is None:
        sizes.pop()
    return tuple(sizes)


def _round_up(size: int, multiple: int) -> int:
    """Return the smallest multiple that is not below a size."""
    return -(-size // multiple) * multiple


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of the first corner of an array: the part that has a shape, or less."""
    return tuple(map(slice, shape))


def _check_sizes(shapes: npt.NDArray[np.int64], padded_shape: Sequence[int], name: str) -> None:
    """Check that no value is larger than the shape that all values get.

    Raises:
        ConfigError: one is.
    """
    for dimension, max_size in enumerate(padded_shape):
        is_too_long = shapes[:, dimension] > max_size
        if is_too_long.any():
            place = int(is_too_long.argmax())
            raise ConfigError(
                f"{name} has a value of shape {tuple(shapes[place].tolist())} at place {place} of "
                f"the batch, which is longer than to={max_size}; pass a larger to=, or "
                "truncate=True"
            )


# ---------------------------------------------------------------------- values and dtypes


def _check_padding_value(value: Any, dtype: np.dtype[Any], name: str) -> None:
    """Check that a column can hold a padding value.

    Raises:
        ConfigError: it cannot.
    """
    number = np.asarray(value)
    is_float = number.dtype.kind in "fc"
    try:
        if number.ndim:
            raise TypeError(f"it has {number.ndim} dimensions")
        as_dtype(number, dtype, rounds=is_float, whole_floats=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} is {dtype}, which cannot hold the padding value {value!r:.40} ({error}); "
            "pass another value or dtype, or name the columns to pad"
        ) from error


def _number_arrays(column: Column, name: str) -> list[Column] | None:
    """Return the values of a column as arrays of numbers with the same number of dimensions.

    Returns:
        The arrays; None if no value is one.

    Raises:
        ConfigError: only some are arrays of numbers, or their numbers of dimensions differ.
    """
    if column.dtype != object:
        has_arrays = column.ndim > 1 and column.dtype.kind in _KINDS_OF_NUMBERS
        return list(column) if has_arrays else None

    # A column of objects: either all values are arrays or lists of numbers, or none is.
    values = column.tolist()
    arrays = []
    wrong_places = []
    for place, value in enumerate(values):
        array = _number_array(value)
        if array is None:
            wrong_places.append(place)
        else:
            arrays.append(array)
    if not arrays and values:
        return None
    if wrong_places:
        place = wrong_places[0]
        raise ConfigError(
            f"{name} has arrays of numbers, but at place {place} of the batch {values[place]!r:.60}"
        )
    arrays = _give_empty_lists_dimensions(arrays)
    for place, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise ConfigError(
                f"{name} has arrays of different numbers of dimensions: at place 0 of the batch "
                f"shape {arrays[0].shape}, at place {place} {array.shape}"
            )
    return arrays


def _number_array(value: Any) -> Column | None:
    """Return an array or list of numbers as an array; None for another value."""
    if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
        return None
    array = exact_array(value)
    if array is None or array.ndim == 0 or array.dtype.kind not in _KINDS_OF_NUMBERS:
        return None
    return array


def _give_empty_lists_dimensions(arrays: list[Column]) -> list[Column]:
    """Return arrays in which an empty list among lists of lists is one without rows."""
    row_shape: tuple[int, ...] = ()
    for array in arrays:
        if array.shape != (0,):
            row_shape = array.shape[1:]
            break
    return [array.reshape(0, *row_shape) if array.shape == (0,) else array for array in arrays]


def _common_dtype(arrays: Sequence[npt.NDArray[Any]], name: str) -> np.dtype[Any]:
    """Return the dtype that holds the numbers of all arrays exactly.

    Empty lists, which numpy makes float64, count only if all are empty.

    Raises:
        ConfigError: no dtype holds all of them.
    """
    filled = [array for array in arrays if array.size or array.dtype != np.float64]
    counting = filled or arrays
    dtype = common_dtype(counting)
    if dtype is None:
        names = " and ".join(sorted({str(array.dtype) for array in counting}))
        raise ConfigError(
            f"{name} has values of {names}, which no dtype holds exactly; convert them by "
            "iterator.map(…)"
        )
    return dtype
