"""Petastorm's predicates of row groups: in ``make_batch_reader`` they get a DataFrame."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.formats.parquet.selecting.petastorm_predicates import RowFunction
from data_stack.formats.parquet.selecting.predicate import Bools, Columns, Predicate, column_of

__all__ = ["on_frames"]


def on_frames(predicate: Predicate) -> Predicate:
    """A predicate whose function may be one of columns of pandas, as Petastorm's ``make_batch_reader`` has it.

    The function gets the rows at once, as a DataFrame (``do_include``) or as Series (``in_lambda``). Where it raises then, or
    gives no bool for each row, and without pandas, it is called row by row.

    Args:
        predicate: any; one that calls no function of rows is returned as it is.
    """
    return _OnFrames(predicate) if isinstance(predicate, RowFunction) else predicate


class _OnFrames(Predicate):
    def __init__(self, predicate: RowFunction) -> None:
        super().__init__(predicate.fields)
        self._predicate = predicate

    def mask(self, columns: Columns) -> Bools:
        answers = self._of_frame(columns)
        return self._predicate.mask(columns) if answers is None else answers

    def content(self) -> Any:
        return {"on_frames": self._predicate.content()}

    def __repr__(self) -> str:
        return repr(self._predicate)

    def _of_frame(self, columns: Columns) -> Bools | None:
        """A bool for each row; None if the function is none of DataFrames."""
        given = {name: column_of(columns, name) for name in self.fields}
        try:
            from data_stack.formats.parquet.transform_pandas import as_frame

            answers = np.asarray(self._predicate.ask(as_frame(given)))
        except Exception:  # noqa: BLE001  # a function of rows may do anything with columns; of rows, it says what is wrong
            return None
        is_bools = answers.dtype == bool or all(isinstance(answer, (bool, np.bool_)) for answer in answers.reshape(-1))
        n_rows = len(next(iter(given.values())))
        return answers.astype(bool) if is_bools and answers.shape == (n_rows,) else None
