"""Collation of values of different lengths: padded, or concatenated."""

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


class Collation(ABC):
    """Turns columns into a batch. It pickles, and threads share it."""

    @abstractmethod
    def collate(self, batch: Batch) -> Any:
        """Collate a batch of columns, as ``read_batch`` returns them; the collation may keep and modify them.

        Raises:
            ConfigError: a column does not exist, or its values do not fit into one array.
        """
        raise NotImplementedError


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
        if (
            offsets[0] != 0
            or offsets[-1] != len(values)
            or bool((offsets[1:] < offsets[:-1]).any())
        ):
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


class _OfColumns(Collation):
    """Combines the arrays of each column; ``_keys`` are the columns, or None for all that have arrays of numbers."""

    _keys: Sequence[ColumnKey] | None

    def collate(self, batch: Batch) -> Any:
        """Combine a batch of columns of shape ``(n, ...)``."""
        columns: dict[Any, Column] = (
            batch if isinstance(batch, dict) else dict(enumerate(list_columns(batch)))
        )
        if missing := [key for key in self._keys or () if key not in columns]:
            raise ConfigError(
                f"the batch has no column {missing[0]!r}{did_you_mean(missing[0], columns)}, only {list(columns)}"
            )
        made: dict[Any, Any] = dict(columns)
        all_lengths: list[npt.NDArray[np.int64]] = []
        for key in columns if self._keys is None else [key for key in columns if key in self._keys]:
            column, name = (
                columns[key],
                "the column" if isinstance(batch, np.ndarray) else f"column {key!r}",
            )
            arrays = _number_arrays(column, name)
            if arrays is None and self._keys is not None:
                raise ConfigError(
                    f"{name} has no arrays or lists of numbers, but {column.dtype} of shape {column.shape}; name another column"
                )
            if arrays is None:
                continue
            made[key], lengths = self._combine(arrays, key, name)
            if lengths is not None:
                all_lengths.append(lengths)
                if isinstance(batch, dict):
                    if (lengths_key := f"{key}_lengths") in columns:
                        raise ConfigError(
                            f"the batch already has a column {lengths_key!r}; rename it, or pass lengths=False"
                        )
                    made[lengths_key] = lengths
        if isinstance(batch, dict):
            return made
        return (
            (*made.values(), *all_lengths) if isinstance(batch, tuple) or all_lengths else made[0]
        )

    @abstractmethod
    def _combine(
        self, arrays: list[Column], key: Any, name: str
    ) -> tuple[Any, npt.NDArray[np.int64] | None]:
        """Arrays with the same number of dimensions as one value, and their lengths, if the batch shall have them."""


class Padded(_OfColumns):
    """Pads values of different lengths to one shape::

        Loader(texts, 32, collate=Padded())  # {"tokens": (32, 87), "label": (32,), "tokens_lengths": (32,)}
        Loader(texts, 32, collate=Padded({"tokens": 0, "labels": -100}, to=512, truncate=True))
        Loader(images, 32, collate=Padded({"image": 0}, multiple_of=(32, 32), lengths=2))

    A padded column has the shape ``(n, extent, ...)``. Each extent is that of the largest value in the batch, or what ``to`` and
    ``multiple_of`` say. All extents in which values differ are padded: pictures of shapes ``(h, w, 3)`` become ``(n, H, W, 3)``.
    ``np.arange(padded.shape[1]) < lengths[:, None]`` is the mask of the values.

    The form of a batch does not depend on its samples: a column whose values happen to have one length is treated like any other.
    Without named columns, all columns with arrays or lists of numbers are padded and have lengths, also pictures of one size;
    numbers, strings, bytes and other objects stay as they are. The dtype is the one that holds all values of the batch exactly;
    if a source mixes dtypes or has lists that may all be empty, convert them to arrays of one dtype by ``iterator.map(…)``.

    Lengths are int64, of shape ``(n,)``, or ``(n, k)`` for k extents. In a dict batch those of ``"key"`` are under
    ``"key_lengths"``; a tuple batch has them at its end, one array per padded column, in the order of the columns; a bare
    column becomes ``(padded, lengths)``.

    Args:
        value: the padding value of all columns with arrays of numbers; or a mapping of the columns to pad (keys, or positions of
            tuple samples) to their padding values.
        to: the extent of every batch; or several, for the first extents of a value, None for the largest in the batch.
        truncate: whether values longer than ``to`` are truncated; otherwise they are an error.
        multiple_of: extents are rounded up to a multiple of this number; or several, for the first extents. ``to`` is not.
        lengths: whether batches have lengths: True, False, or the number of extents with lengths.

    Raises:
        ConfigError: an argument is out of range. When a batch is made: a column does not exist or has no arrays of numbers; a
            value is too long; the dtype does not hold the padding value. The message names the column and the place in the batch.
    """

    def __init__(
        self,
        value: Any = 0,
        *,
        to: SupportsIndex | Sequence[SupportsIndex | None] | None = None,
        truncate: bool = False,
        multiple_of: SupportsIndex | Sequence[SupportsIndex] = 1,
        lengths: bool | int = True,
    ) -> None:
        self._value: Any = dict(value) if isinstance(value, Mapping) else value
        self._keys = keys_of(list(value)) if isinstance(value, Mapping) else None
        self._to = _extents("to", to, at_least=0)
        self._multiple_of = tuple(
            [each or 1 for each in _extents("multiple_of", multiple_of, at_least=1)]
        )
        self._truncates = bool(truncate)
        if truncate and not self._to:
            raise ConfigError("truncate=True needs to=, the length to truncate to")
        self._n_lengths = check_integer("lengths", lengths, at_least=0)

    def _combine(
        self, arrays: list[Column], key: Any, name: str
    ) -> tuple[Column, npt.NDArray[np.int64] | None]:
        value = self._value[key] if isinstance(self._value, dict) else self._value
        n_extents = arrays[0].ndim if arrays else 1
        shapes = np.array([array.shape for array in arrays], dtype=np.int64).reshape(
            len(arrays), n_extents
        )
        for what, n_given in (
            ("to", len(self._to)),
            ("multiple_of", len(self._multiple_of)),
            ("lengths", self._n_lengths),
        ):
            if n_given > n_extents:
                raise ConfigError(
                    f"{what} is for {n_given} extents, but the values of {name} have {n_extents}"
                )
        largest = shapes.max(axis=0, initial=0).tolist()
        wanted = [
            fixed if fixed is not None else -(-extent // (multiple or 1)) * (multiple or 1)
            for extent, fixed, multiple in zip_longest(largest, self._to, self._multiple_of)
        ]
        for place, (extent, most) in enumerate(zip(largest, wanted, strict=True)):
            if extent > most and not self._truncates:
                at = int((shapes[:, place] > most).argmax())
                raise ConfigError(
                    f"{name} has a value of shape {tuple(shapes[at].tolist())} at place {at} of the batch, "
                    f"which is longer than to={most}; pass a larger to=, or truncate=True"
                )
        shapes = np.minimum(shapes, np.array(wanted, dtype=np.int64))
        kept = shapes[:, 0] if self._n_lengths == 1 else shapes[:, : self._n_lengths]
        lengths = np.ascontiguousarray(kept) if self._n_lengths else None
        dtype, number = _common_dtype(arrays, name), np.asarray(value)
        try:
            if number.ndim:
                raise TypeError(f"it has {number.ndim} dimensions")
            as_dtype(number, dtype, rounds=number.dtype.kind in "fc", whole_floats=True)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name} is {dtype}, which cannot hold the padding value {value!r:.40} ({error}); "
                f"pass another value or dtype, or name the columns to pad"
            ) from error
        padded = np.full((len(shapes), *wanted), value, dtype)
        for row, array in zip(padded, arrays, strict=True):
            part = array[tuple(map(slice, wanted))]
            row[tuple(map(slice, part.shape))] = part
        return padded, lengths


class Concatenated(_OfColumns):
    """Concatenates values of different lengths, without padding: each column becomes a
    :class:`~data_stack.loader.collation.Ragged`.

    As with :class:`Padded`, the form of a batch does not depend on its samples. Values may only differ in their first extent.

    Args:
        columns: a key or several (of tuple samples: positions); None for all that have arrays or lists of numbers.

    Raises:
        ConfigError: when a batch is made: a column does not exist, has no arrays of numbers, or its arrays differ in more than
            their first extent. The message names the column and the place in the batch.
    """

    def __init__(self, *, columns: ColumnKey | Sequence[ColumnKey] | None = None) -> None:
        self._keys = None if columns is None else keys_of(columns)

    def _combine(self, arrays: list[Column], key: Any, name: str) -> tuple[Ragged, None]:
        shape = arrays[0].shape[1:] if arrays else ()
        for place, array in enumerate(arrays):
            if array.shape[1:] != shape:
                raise ConfigError(
                    f"{name} has arrays that differ in more than their first extent: "
                    f"at place 0 of the batch shape {arrays[0].shape}, at place {place} {array.shape}; Padded(…) pads all extents"
                )
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        values = np.empty((int(offsets[-1]), *shape), dtype=_common_dtype(arrays, name))
        np.concatenate(arrays, out=values, casting="unsafe")  # an empty list is float64
        return Ragged(values, offsets), None


def _extents(name: str, given: Any, *, at_least: int) -> tuple[int | None, ...]:
    """One number, or one per extent."""
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return (check_integer(name, given, at_least=at_least),)
    each = [
        None if number is None and name == "to" else check_integer(name, number, at_least=at_least)
        for number in given
    ]
    while each and each[-1] is None:
        each.pop()
    return tuple(each)


def _number_arrays(column: Column, name: str) -> list[Column] | None:
    """The values of a column as arrays of numbers with the same number of dimensions; None if no value is an array.

    Raises:
        ConfigError: only some are arrays of numbers, or their numbers of dimensions differ.
    """
    if column.dtype != object:
        return list(column) if column.ndim > 1 and column.dtype.kind in "biufc" else None
    values = column.tolist()
    arrays: list[Any] = [
        exact_array(value)
        if isinstance(value, (list, tuple)) or hasattr(value, "__array__")
        else None
        for value in values
    ]
    wrong = [
        place
        for place, array in enumerate(arrays)
        if array is None or array.dtype.kind not in "biufc" or array.ndim == 0
    ]
    if wrong and len(wrong) == len(arrays):
        return None
    if wrong:
        raise ConfigError(
            f"{name} has arrays of numbers, but at place {wrong[0]} of the batch {values[wrong[0]]!r:.60}"
        )
    # an empty list among lists of lists is one without rows
    example = next((array for array in arrays if array.shape != (0,)), np.empty(0))
    arrays = [
        array if array.shape != (0,) else array.reshape(0, *example.shape[1:]) for array in arrays
    ]
    for place, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise ConfigError(
                f"{name} has arrays of different numbers of dimensions: at place 0 of the batch shape {arrays[0].shape}, "
                f"at place {place} {array.shape}"
            )
    return arrays


def _common_dtype(arrays: Sequence[npt.NDArray[Any]], what: str) -> np.dtype[Any]:
    """The dtype that holds the numbers of all arrays exactly.

    Empty lists, which numpy makes float64, count only if all are empty.

    Raises:
        ConfigError: no dtype holds all of them.
    """
    given = [array for array in arrays if array.size or array.dtype != np.float64] or arrays
    common = common_dtype(given)
    if common is None:
        shown = " and ".join(sorted({str(array.dtype) for array in given}))
        raise ConfigError(
            f"{what} has values of {shown}, which no dtype holds exactly; convert them by iterator.map(…)"
        )
    return common
