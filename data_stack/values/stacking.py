"""Batches: the values of many samples as numpy columns."""

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

ColumnArray = npt.NDArray[Any]
"""The values of one position or key of many samples, shape ``(n_samples, ...)``."""

Batch = Union[tuple[ColumnArray, ...], dict[str, ColumnArray], ColumnArray]
"""Samples as columns: a tuple for tuple samples, a dict for dict samples, one array for bare
samples."""


# ---------------------------------------------------------------------------- the form of samples


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
        """Return the form of a sample, or of a batch."""
        if isinstance(sample, Mapping):
            return cls("dict", tuple(sample))
        if isinstance(sample, (tuple, list)):
            return cls.tuples(len(sample))
        return cls("bare")

    @classmethod
    def tuples(cls, n_columns: int) -> SampleForm:
        """Return the form of tuples with a number of columns."""
        return cls("tuple", tuple(range(n_columns)))

    def normal(self, key: Any) -> Any:
        """Return the normal form of a column: as it stands in ``keys``.

        A position of a tuple that counts from the end becomes one that counts from 0 on. Other keys
        are returned as they are, also if there is no such column.
        """
        is_position = self.kind == "tuple" and hasattr(key, "__index__")
        if not is_position:
            return key
        position = operator.index(key)
        counts_from_end = -len(self.keys) <= position < 0
        return position + len(self.keys) if counts_from_end else position

    def find(self, key: Any) -> Any:
        """Return the normal form of a column, see :meth:`normal`, and check that it exists.

        Raises:
            ConfigError: there is no such column.
        """
        column = self.normal(key)
        if column not in self.keys:
            raise ConfigError(f"samples have no column {key!r}: {self.describe(key)}")
        return column

    def find_all(self, keys: Sequence[Any]) -> tuple[Any, ...]:
        """Return the normal forms of several columns, and check that they exist.

        Raises:
            ConfigError: there is no such column, or two keys are one column.
        """
        key_by_column: dict[Any, Any] = {}
        for key in keys:
            column = self.find(key)
            if column in key_by_column:
                other_key = key_by_column[column]
                raise ConfigError(
                    f"column {column!r} is named twice, by {other_key!r} and by {key!r}"
                )
            key_by_column[column] = key
        return tuple(key_by_column)

    def make(self, values: Sequence[Any]) -> Any:
        """Return a sample of such values, or a batch of such columns."""
        if self.kind == "dict":
            return dict(zip(self.keys, values, strict=True))
        return tuple(values)

    def describe(self, wrong: Any = None) -> str:
        """Return a clause for messages that lists the columns.

        Args:
            wrong: a key that is not a column, for a suggestion.
        """
        if self.kind == "bare":
            return "they are bare values"
        if not self.keys:
            return "they have no columns"
        if self.kind == "tuple":
            return f"they have the columns 0 to {len(self.keys) - 1}"
        names = ", ".join(repr(key) for key in self.keys)
        advice = did_you_mean(wrong, self.keys)
        if hasattr(wrong, "__index__"):
            advice = (
                ". Dict samples have no positions: name the column. The target, which is column 1 "
                "unless it is declared, is declared by data_stack.load(…, target='NAME')"
            )
        return f"they have the columns {names}{advice}"


def keys_of(columns: int | str | Sequence[int | str]) -> list[int | str]:
    """Return one key, or several, as a list.

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


def value_of(sample: Any, key: int | str) -> Any:
    """Return the value at ``key`` of one sample.

    Raises:
        ConfigError: the sample has no such position or key.
    """
    try:
        return sample[key]
    except (LookupError, TypeError) as error:
        raise ConfigError(
            f"samples have no column {key!r}: {SampleForm.of(sample).describe(key)}"
        ) from error


def replace_values(sample: Any, values: Mapping[Any, Any]) -> Any:
    """Return a sample of the same form and class, with other values in some columns."""
    if isinstance(sample, Mapping):
        return {**sample, **values}
    changed = list(sample)
    for key, value in values.items():
        changed[key] = value
    if type(sample) is list:
        return changed
    is_named_tuple = hasattr(sample, "_make")
    return sample._make(changed) if is_named_tuple else tuple(changed)


# ------------------------------------------------------------------------------ samples as batches


def stack_samples(samples: Sequence[Any]) -> Batch:
    """Return samples as a batch; ``()`` for no samples.

    Raises:
        ConfigError: the samples differ in their number of columns or in their keys.
    """
    if not samples:
        return ()
    first = samples[0]
    if isinstance(first, Mapping):
        keys = first.keys()
        for sample in samples:
            if not isinstance(sample, Mapping) or sample.keys() != keys:
                raise _forms_error(first, sample)
        return {key: stack_values([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        for sample in samples:
            if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
                raise _forms_error(first, sample)
        return tuple(stack_values(list(values)) for values in zip(*samples, strict=True))
    return stack_values(samples)


def list_samples(batch: Batch) -> list[Any]:
    """Return the samples of a batch: numbers as numpy scalars, arrays as views of their column."""
    if isinstance(batch, dict):
        rows = zip(*batch.values(), strict=True)
        return [dict(zip(batch, row, strict=True)) for row in rows]
    if isinstance(batch, tuple):
        return list(zip(*batch, strict=True))
    return list(batch)


def list_columns(batch: Batch) -> list[ColumnArray]:
    """Return the columns of a batch; a batch of bare values is one column."""
    if isinstance(batch, dict):
        return list(batch.values())
    if isinstance(batch, tuple):
        return list(batch)
    return [batch]


def map_columns(function: Callable[[ColumnArray], Any], batch: Batch) -> Any:
    """Return what a function returns for each column, in the form of the batch."""
    if isinstance(batch, dict):
        return {key: function(column) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(function, batch))
    return function(batch)


def empty_like(batch: Batch) -> Batch:
    """Return the same columns with no sample in them."""
    empty: Batch = map_columns(lambda column: column[:0], batch)
    return empty


def join_batches(
    batches: Sequence[Batch], join: Callable[[Sequence[ColumnArray]], ColumnArray] | None = None
) -> Batch:
    """Return batches one after the other, as one.

    Args:
        batches: at least one.
        join: makes one column of those of all batches; None: :func:`join_columns`.

    Raises:
        ConfigError: the batches differ in their number of columns or in their keys.
    """
    join_pieces = join_columns if join is None else join
    all_batches: Any = batches
    first = all_batches[0]
    if all(isinstance(batch, dict) and batch.keys() == first.keys() for batch in all_batches):
        return {key: join_pieces([batch[key] for batch in all_batches]) for key in first}
    if all(isinstance(batch, tuple) and len(batch) == len(first) for batch in all_batches):
        return tuple(join_pieces(pieces) for pieces in zip(*all_batches, strict=True))
    if all(isinstance(batch, np.ndarray) for batch in all_batches):
        return join_pieces(all_batches)
    first_form = SampleForm.of(first)
    other = next(batch for batch in all_batches if SampleForm.of(batch) != first_form)
    raise _forms_error(first, other)


def _forms_error(one: Any, other: Any) -> ConfigError:
    form = SampleForm.of(one)
    other_form = SampleForm.of(other)
    return ConfigError(
        f"samples of one batch differ: some are {form.kind}s, {form.describe()}; others are "
        f"{other_form.kind}s, {other_form.describe()}. Give all the same columns by map(), or "
        "leave some out by filter()"
    )


# ----------------------------------------------------------------------------------------- columns


def join_columns(pieces: Sequence[ColumnArray]) -> ColumnArray:
    """Return columns one after the other, as if their values had been stacked together."""
    if len(pieces) == 1:
        return pieces[0]
    has_one_shape = len({piece.shape[1:] for piece in pieces}) == 1
    dtype = common_dtype(pieces) if has_one_shape else None
    if dtype is None:
        values: list[Any] = []
        for piece in pieces:
            values.extend(piece)
        return objects(values)
    return np.concatenate(pieces, dtype=dtype)


def assemble(pieces: Sequence[ColumnArray], slots: Sequence[npt.NDArray[np.intp]]) -> ColumnArray:
    """Return the rows of all pieces in their places.

    Where the pieces have one dtype and shape, the rows are written to their places at once.

    Args:
        pieces: columns.
        slots: for each piece the places of its rows.
    """
    first = pieces[0]
    slot_of_row = slots[0] if len(slots) == 1 else np.concatenate(slots)
    if len(pieces) > 1 and _are_alike(pieces):
        column: ColumnArray = np.empty((len(slot_of_row), *first.shape[1:]), first.dtype)
        for piece, places in zip(pieces, slots, strict=True):
            column[places] = piece
        return column
    joined = join_columns(pieces)
    is_in_order = bool((np.diff(slot_of_row) > 0).all())
    return joined if is_in_order else joined[np.argsort(slot_of_row)]


def _are_alike(pieces: Sequence[ColumnArray]) -> bool:
    """Return whether columns have one dtype, other than object, and values of one shape."""
    if pieces[0].dtype == object:
        return False
    return len({(piece.dtype, piece.shape[1:]) for piece in pieces}) == 1


def take_runs(rows: ColumnArray, starts: npt.NDArray[np.integer[Any]], length: int) -> ColumnArray:
    """Return ``length`` consecutive rows from each of ``starts`` on, copied.

    Returns:
        The rows, shape ``(n, length, ...)``.
    """
    if len(starts) == 1:
        start = int(starts[0])
        one_run: ColumnArray = rows[start : start + length].copy()[np.newaxis]
        return one_run
    if not len(starts):
        return np.empty((0, length, *rows.shape[1:]), rows.dtype)
    # A view with all runs that there are. An array of positions copies whole runs of it, where
    # take() would first copy all that lie side by side.
    shape = (len(rows) - length + 1, length, *rows.shape[1:])
    strides = (rows.strides[0], *rows.strides)
    all_runs = np.lib.stride_tricks.as_strided(rows, shape, strides, writeable=False)
    return np.ascontiguousarray(all_runs[starts])


def all_columns(columns: Iterable[ColumnArray | None]) -> tuple[ColumnArray, ...] | None:
    """Return the columns; None if one of them is None. Stops at the first None."""
    present_columns: list[ColumnArray] = []
    for column in columns:
        if column is None:
            return None
        present_columns.append(column)
    return tuple(present_columns)


def list_values(column: ColumnArray) -> list[Any]:
    """Return the values of a column.

    Numbers become Python's, values with a shape are arrays, times numpy's, objects as they are.
    """
    are_python_values = column.ndim == 1 and column.dtype.kind not in "mMV"
    return column.tolist() if are_python_values else list(column)
