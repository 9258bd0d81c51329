"""Collation of values of different lengths: padded, or concatenated."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.loader.ragged import common_dtype, fill, join, value_arrays
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import Batch, Column, keys_of


class Collation(ABC):
    """Turns columns into a batch. It pickles, and threads share it."""

    @abstractmethod
    def collate(self, batch: Batch) -> Any:
        """Collate a batch of columns, as ``read_batch`` returns them; the collation may keep and modify them.

        Raises:
            ConfigError: a column does not exist, or its values do not fit into one array.
        """
        raise NotImplementedError


class Padded(Collation):
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
        self._multiple_of = tuple([each or 1 for each in _extents("multiple_of", multiple_of, at_least=1)])
        self._truncates = bool(truncate)
        if truncate and not self._to:
            raise ConfigError("truncate=True needs to=, the length to truncate to")
        self._n_lengths = check_integer("lengths", lengths, at_least=0)

    def collate(self, batch: Batch) -> Any:
        """Pad a batch of columns of shape ``(n, ...)``."""
        columns: dict[Any, Column] = _columns(batch)
        lengths: list[npt.NDArray[np.int64]] = []
        padded: dict[Any, Any] = dict(columns)
        for key, name in _chosen(columns, self._keys, batch):
            arrays = _values(columns[key], name, is_named=self._keys is not None)
            if arrays is None:
                continue
            padded[key], its_lengths = self._pad(arrays, key, name)
            if its_lengths is None:
                continue
            lengths.append(its_lengths)
            if isinstance(batch, dict):
                if (lengths_key := f"{key}_lengths") in columns:
                    raise ConfigError(f"the batch already has a column {lengths_key!r}; rename it, or pass lengths=False")
                padded[lengths_key] = its_lengths
        if isinstance(batch, dict):
            return padded
        if isinstance(batch, tuple):
            return (*padded.values(), *lengths)
        return (padded[0], *lengths) if lengths else padded[0]

    def _pad(self, arrays: list[Column], key: Any, name: str) -> tuple[Column, npt.NDArray[np.int64] | None]:
        """Values, arrays with the same number of dimensions, as one array, and their lengths."""
        value = self._value[key] if isinstance(self._value, dict) else self._value
        n_extents = arrays[0].ndim if arrays else 1
        shapes = np.array([array.shape for array in arrays], dtype=np.int64).reshape(len(arrays), n_extents)
        for what, n_given in (("to", len(self._to)), ("multiple_of", len(self._multiple_of)), ("lengths", self._n_lengths)):
            if n_given > n_extents:
                raise ConfigError(f"{what} is for {n_given} extents, but the values of {name} have {n_extents}")
        largest = shapes.max(axis=0, initial=0).tolist()
        wanted = [
            fixed if fixed is not None else -(-extent // (multiple or 1)) * (multiple or 1)
            for extent, fixed, multiple in itertools.zip_longest(largest, self._to, self._multiple_of)
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
        padded = fill((len(shapes), *wanted), value, common_dtype(arrays, name), name)
        for row, array in zip(padded, arrays, strict=True):
            part = array[tuple(map(slice, wanted))]
            row[tuple(map(slice, part.shape))] = part
        return padded, lengths


class Concatenated(Collation):
    """Concatenates values of different lengths, without padding: each column becomes a
    :class:`~data_stack.loader.ragged.Ragged`.

    As with :class:`Padded`, the form of a batch does not depend on its samples. Values may only differ in their first extent.

    Args:
        columns: a key or several (of tuple samples: positions); None for all that have arrays or lists of numbers.

    Raises:
        ConfigError: when a batch is made: a column does not exist, has no arrays of numbers, or its arrays differ in more than
            their first extent. The message names the column and the place in the batch.
    """

    def __init__(self, *, columns: ColumnKey | Sequence[ColumnKey] | None = None) -> None:
        self._keys = None if columns is None else keys_of(columns)

    def collate(self, batch: Batch) -> Any:
        """Concatenate the values of a batch of columns of shape ``(n, ...)``."""
        columns: dict[Any, Any] = _columns(batch)
        made = dict(columns)
        for key, name in _chosen(columns, self._keys, batch):
            arrays = _values(columns[key], name, is_named=self._keys is not None)
            if arrays is not None:
                made[key] = join(arrays, common_dtype(arrays, name), name)
        if isinstance(batch, dict):
            return made
        return tuple(made.values()) if isinstance(batch, tuple) else made[0]


def _columns(batch: Batch) -> dict[Any, Column]:
    """The columns of a batch by key or position; a bare one by 0."""
    if isinstance(batch, dict):
        return batch
    return dict(enumerate(batch)) if isinstance(batch, tuple) else {0: batch}


def _chosen(columns: Mapping[Any, Column], keys: Sequence[ColumnKey] | None, batch: Batch) -> list[tuple[Any, str]]:
    """The columns to collate, in the order of the batch: key, and name for messages."""
    if missing := [key for key in keys or () if key not in columns]:
        raise ConfigError(f"the batch has no column {missing[0]!r}{did_you_mean(missing[0], columns)}, only {list(columns)}")
    is_bare = not isinstance(batch, (dict, tuple))
    return [(key, "the column" if is_bare else f"column {key!r}") for key in columns if keys is None or key in keys]


def _values(column: Column, name: str, *, is_named: bool) -> list[Column] | None:
    """The arrays of numbers in a column; None for a column without such arrays."""
    if column.dtype == object:
        arrays = value_arrays(column, name)
    else:
        arrays = list(column) if column.ndim > 1 and column.dtype.kind in "biufc" else None
    if arrays is None and is_named:
        raise ConfigError(
            f"{name} has no arrays or lists of numbers, but {column.dtype} of shape {column.shape}; name another column"
        )
    return arrays


def _extents(name: str, given: Any, *, at_least: int) -> tuple[int | None, ...]:
    """One number, or one per extent."""
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return (check_integer(name, given, at_least=at_least),)
    each = [None if number is None and name == "to" else check_integer(name, number, at_least=at_least) for number in given]
    while each and each[-1] is None:
        each.pop()
    return tuple(each)
