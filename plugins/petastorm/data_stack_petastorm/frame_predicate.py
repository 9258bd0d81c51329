"""Predicates that are called with DataFrames, as Petastorm's ``make_batch_reader`` calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import MissingDependencyError
from data_stack.formats.parquet.selecting import (
    Columns,
    Predicate,
    RowPredicate,
    TypedColumns,
    as_times,
    column_of,
)
from data_stack.values.stacked_values import objects
from data_stack_petastorm.frames import as_frame

try:
    import pandas as pd
except ImportError as error:
    raise MissingDependencyError("a predicate of make_batch_reader", "pandas", "pandas") from error


def on_frames(predicate: Predicate) -> Predicate:
    """Return a predicate of rows as one of DataFrames; return other predicates unchanged."""
    if isinstance(predicate, RowPredicate):
        return FramePredicate(predicate.function)
    return predicate


class FramePredicate(RowPredicate):
    """Calls ``do_include`` of a user's predicate with a DataFrame of all rows, as Petastorm does.

    If it raises an error, or does not return one bool per row, it is called for each row instead.
    """

    def mask(self, columns: Columns) -> npt.NDArray[np.bool_]:
        own_columns = {name: column_of(columns, name) for name in self.fields}
        zones = columns.zones if isinstance(columns, TypedColumns) else {}
        frame = as_frame(own_columns, zones)
        n_rows = len(frame)
        try:
            answers = np.asarray(self.function.do_include(CombiningFrame(frame)))
        except Exception:  # noqa: BLE001  # a function of rows may raise anything for a DataFrame
            # If the function is wrong for rows as well, this raises its error.
            return self._mask_of_rows(own_columns, frame, zones)
        if answers.shape != (n_rows,) or not _are_bools(answers):
            return self._mask_of_rows(own_columns, frame, zones)
        return answers.astype(bool)

    def _mask_of_rows(
        self, columns: Columns, frame: Any, zones: Mapping[str, str]
    ) -> npt.NDArray[np.bool_]:
        """Call the function for each row, with the dates and zoned times of the DataFrame.

        Args:
            columns: the columns of the fields, shape ``(n, ...)``.
            frame: the DataFrame of the same columns.
            zones: the time zones of columns of instants, by name.
        """
        columns_of_rows: dict[str, npt.NDArray[Any]] = {}
        for name, column in columns.items():
            is_of_days = column.ndim == 1 and as_times(column).dtype == np.dtype("M8[D]")
            if name in zones:
                # pandas' Timestamps keep the zone, which times of numpy lack.
                times = [None if time is pd.NaT else time for time in frame[name].astype(object)]
                columns_of_rows[name] = objects(times)
            elif is_of_days:
                columns_of_rows[name] = objects(list(frame[name]))
            else:
                columns_of_rows[name] = column
        return super().mask(columns_of_rows)

    def content(self) -> Any:
        return {"on_frames": super().content()}


def _are_bools(answers: npt.NDArray[Any]) -> bool:
    """Return whether all answers are bools; an array of objects may hold bools as well."""
    if answers.dtype == bool:
        return True
    return all(isinstance(answer, (bool, np.bool_)) for answer in answers)


class CombiningSeries(pd.Series):
    """A Series that the operators ``&``, ``|`` and ``^`` can combine with a list.

    pandas 3 no longer allows this, but functions that were written for Petastorm do it.
    """

    @property
    def _constructor(self) -> Any:
        return CombiningSeries

    def __and__(self, other: Any) -> Any:
        return super().__and__(_as_array(other))

    def __or__(self, other: Any) -> Any:
        return super().__or__(_as_array(other))

    def __xor__(self, other: Any) -> Any:
        return super().__xor__(_as_array(other))

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__


class CombiningFrame(pd.DataFrame):
    """A DataFrame whose columns are of the class :class:`CombiningSeries`."""

    @property
    def _constructor_sliced(self) -> Any:
        return CombiningSeries


def _as_array(other: Any) -> Any:
    """Return a list or tuple as an array; return other values unchanged."""
    if isinstance(other, (list, tuple)):
        return np.asarray(other)
    return other
