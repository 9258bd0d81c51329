"""Turns the values of many samples into numpy columns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import common_dtype, objects, stack_values

Column = npt.NDArray[Any]
"""The values of one position or key of many samples, shape ``(n_samples, ...)``."""

Batch = Union[tuple[Column, ...], dict[str, Column], Column]
"""Samples as columns: a tuple for tuple samples, a dict for dict samples, one array for bare samples."""


@dataclass(frozen=True)
class SampleForm:
    """What samples look like.

    Attributes:
        kind: ``"tuple"`` (of lists and named tuples, too), ``"dict"`` or ``"bare"``.
        keys: the columns in their order: positions of tuples, keys of dicts, none of bare values.
    """

    kind: Literal["tuple", "dict", "bare"]
    keys: tuple[Any, ...] = ()

    @classmethod
    def of(cls, sample: Any) -> SampleForm:
        """The form of a sample, or of a batch."""
        if isinstance(sample, Mapping):
            return cls("dict", tuple(sample))
        return cls.tuples(len(sample)) if isinstance(sample, (tuple, list)) else cls("bare")

    @classmethod
    def tuples(cls, n_columns: int) -> SampleForm:
        """The form of tuples with so many columns."""
        return cls("tuple", tuple(range(n_columns)))

    def normal(self, key: Any) -> Any:
        """A column as it is in ``keys``: a position that counts from the end, from 0 on; other keys are returned as they are."""
        if self.kind != "tuple" or not hasattr(key, "__index__"):
            return key
        position = operator.index(key)
        return position + len(self.keys) if -len(self.keys) <= position < 0 else position

    def find(self, key: Any) -> Any:
        """As :meth:`normal`.

        Raises:
            ConfigError: there is no such column.
        """
        column = self.normal(key)
        if column not in self.keys:
            raise ConfigError(f"samples have no column {key!r}: {self.describe(key)}")
        return column

    def find_all(self, keys: Sequence[Any]) -> tuple[Any, ...]:
        """As :meth:`find`, of several.

        Raises:
            ConfigError: there is no such column, or two keys are one column.
        """
        found: list[Any] = []
        for key in keys:
            column = self.find(key)
            if column in found:
                raise ConfigError(
                    f"column {column!r} is named twice, by {keys[found.index(column)]!r} and by {key!r}"
                )
            found.append(column)
        return tuple(found)

    def make(self, values: Sequence[Any]) -> Any:
        """A sample of such values, or a batch of such columns."""
        return dict(zip(self.keys, values, strict=True)) if self.kind == "dict" else tuple(values)

    def describe(self, wrong: Any = None) -> str:
        """The columns, for messages; ``wrong`` is a key that is none of them."""
        if self.kind == "bare":
            return "they are bare values"
        if self.kind == "dict" or not self.keys:
            names = ", ".join(map(repr, self.keys))
            return (
                f"they have the columns {names}{did_you_mean(wrong, self.keys)}"
                if names
                else "they have no columns"
            )
        return f"they have the columns 0 to {len(self.keys) - 1}"


def replace_values(sample: Any, values: Mapping[Any, Any]) -> Any:
    """A sample like another one, a list or named tuple too, with other values in some columns."""
    if isinstance(sample, Mapping):
        return {**sample, **values}
    changed = list(sample)
    for key, value in values.items():
        changed[key] = value
    if type(sample) is list:
        return changed
    return sample._make(changed) if hasattr(sample, "_make") else tuple(changed)


def value_of(sample: Any, key: int | str) -> Any:
    """The value at ``key`` of one sample.

    Raises:
        ConfigError: it has no such position or key.
    """
    try:
        return sample[key]
    except (LookupError, TypeError) as error:
        raise ConfigError(
            f"samples have no column {key!r}: {SampleForm.of(sample).describe(key)}"
        ) from error


def stack_samples(samples: Sequence[Any]) -> Batch:
    """Samples as a batch; ``()`` for no samples.

    Raises:
        ConfigError: they differ in their number of columns or in their keys.
    """
    if not samples:
        return ()
    first = samples[0]
    if isinstance(first, Mapping):
        keys = first.keys()
        for sample in samples:
            if not isinstance(sample, Mapping) or sample.keys() != keys:
                raise _different(first, sample)
        return {key: stack_values([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        for sample in samples:
            if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
                raise _different(first, sample)
        return tuple(stack_values(list(values)) for values in zip(*samples, strict=True))
    return stack_values(samples)


def join_columns(pieces: Sequence[Column]) -> Column:
    """Columns one after the other, as if their values had been stacked together."""
    if len(pieces) == 1:
        return pieces[0]
    dtype = common_dtype(pieces) if len({piece.shape[1:] for piece in pieces}) == 1 else None
    if dtype is None:
        return objects([value for piece in pieces for value in piece])
    return np.concatenate(pieces, dtype=dtype)


def join_batches(
    batches: Sequence[Batch], join: Callable[[Sequence[Column]], Column] = join_columns
) -> Batch:
    """Batches one after the other.

    Args:
        batches: at least one.
        join: what makes one column of those of all batches.

    Raises:
        ConfigError: they differ in their number of columns or in their keys.
    """
    given: Any = batches
    first = given[0]
    if all(isinstance(batch, dict) and batch.keys() == first.keys() for batch in given):
        return {key: join([batch[key] for batch in given]) for key in first}
    if all(isinstance(batch, tuple) and len(batch) == len(first) for batch in given):
        return tuple(join(columns) for columns in zip(*given, strict=True))
    if all(isinstance(batch, np.ndarray) for batch in given):
        return join(given)
    raise _different(
        first, next(batch for batch in given if SampleForm.of(batch) != SampleForm.of(first))
    )


def assemble(pieces: Sequence[Column], slots: Sequence[npt.NDArray[np.intp]]) -> Column:
    """The rows of all pieces in their places, written there at once where the pieces have one dtype and shape."""
    first = pieces[0]
    slot_of_row = slots[0] if len(slots) == 1 else np.concatenate(slots)
    if (
        len(pieces) > 1
        and first.dtype != object
        and len({(piece.dtype, piece.shape[1:]) for piece in pieces}) == 1
    ):
        column: Column = np.empty((len(slot_of_row), *first.shape[1:]), first.dtype)
        for piece, places in zip(pieces, slots, strict=True):
            column[places] = piece
        return column
    joined = join_columns(pieces)
    if bool((np.diff(slot_of_row) > 0).all()):
        return joined
    return joined[np.argsort(slot_of_row)]


def take_runs(rows: Column, starts: npt.NDArray[np.integer[Any]], length: int) -> Column:
    """``length`` consecutive rows from each of ``starts`` on, copied: shape ``(n, length, ...)``."""
    if len(starts) == 1:
        start = int(starts[0])
        one_run: Column = rows[start : start + length].copy()[np.newaxis]
        return one_run
    if not len(starts):
        return np.empty((0, length, *rows.shape[1:]), rows.dtype)
    shape = (len(rows) - length + 1, length, *rows.shape[1:])
    every_run = np.lib.stride_tricks.as_strided(
        rows, shape, (rows.strides[0], *rows.strides), writeable=False
    )
    # an array of positions copies whole runs, where take() would first copy all that lie side by side
    return np.ascontiguousarray(every_run[starts])


def all_columns(columns: Iterable[Column | None]) -> tuple[Column, ...] | None:
    """The columns, if there are all; None from the first that is None on, without asking for those behind it."""
    found: list[Column] = []
    for column in columns:
        if column is None:
            return None
        found.append(column)
    return tuple(found)


def keys_of(columns: int | str | Sequence[int | str]) -> list[int | str]:
    """One key, or several, as a list.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(columns, (str, int, np.integer)):
        return [columns]
    try:
        return list(columns)
    except TypeError:
        raise ConfigError(
            f"columns are named by a position, a key, or a list of these, not by {columns!r:.80}"
        ) from None


def map_columns(function: Callable[[Column], Any], batch: Batch) -> Any:
    """What ``function`` returns for each column, in the form of the batch."""
    if isinstance(batch, dict):
        return {key: function(column) for key, column in batch.items()}
    return tuple(map(function, batch)) if isinstance(batch, tuple) else function(batch)


def list_columns(batch: Batch) -> list[Column]:
    """The columns of a batch; a batch of bare values is one."""
    return (
        list(batch.values())
        if isinstance(batch, dict)
        else list(batch)
        if isinstance(batch, tuple)
        else [batch]
    )


def list_values(column: Column) -> list[Any]:
    """The values of a column: numbers as Python's, those with a shape as arrays, times as numpy's, objects as they are."""
    return column.tolist() if column.ndim == 1 and column.dtype.kind not in "mMV" else list(column)


def list_samples(batch: Batch) -> list[Any]:
    """The samples of a batch; numbers as numpy scalars, arrays as views of their column."""
    if isinstance(batch, dict):
        return [
            dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)
        ]
    return list(zip(*batch, strict=True)) if isinstance(batch, tuple) else list(batch)


def empty_like(batch: Batch) -> Batch:
    """The same columns with no sample in them."""
    empty: Batch = map_columns(lambda column: column[:0], batch)
    return empty


def _different(one: Any, other: Any) -> ConfigError:
    forms = [SampleForm.of(sample) for sample in (one, other)]
    return ConfigError(
        "samples of one batch differ: "
        + ", and ".join(f"{form.kind}s, {form.describe()}" for form in forms)
    )
