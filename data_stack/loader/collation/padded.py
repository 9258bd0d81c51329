"""Pads values of different lengths to one shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.loader.collation.column_collation import ColumnCollation
from data_stack.loader.collation.number_arrays import dtype_of_all
from data_stack.values.stacking import ColumnArray, keys_of


class Padded(ColumnCollation):
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
        if isinstance(lengths, bool):
            self._n_lengths = int(lengths)
        else:
            self._n_lengths = check_integer("lengths", lengths, at_least=0)

    def _combine(
        self, arrays: list[ColumnArray], key: Any, name: str
    ) -> tuple[ColumnArray, npt.NDArray[np.int64] | None]:
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
        dtype = dtype_of_all(arrays, name)
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
    """Return the index of the part of an array that begins at 0 and has a shape.

    Where the array is smaller, the part ends with the array.
    """
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
