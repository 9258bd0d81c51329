"""Petastorm's predicates of row groups: what ``make_batch_reader`` asks there is given a DataFrame."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.formats.parquet.selecting.petastorm_predicates import RowFunction, in_lambda
from data_stack.formats.parquet.selecting.predicate import Bools, Columns, Predicate, PredicateError, column_of

__all__ = ["on_frames"]


def on_frames(predicate: Predicate) -> Predicate:
    """A predicate whose function may be one of columns of pandas, as Petastorm's ``make_batch_reader`` has it.

    The function is asked row by row, and is given the rows at once, as a DataFrame (``do_include``) or as Series (``in_lambda``).
    What it raises, or gives no bool for each row for, it is no function of. If it is one of both, they must agree: ``~(speed >
    3)`` is true of any row, ``speed is None or speed > 3`` of no column. Without pandas it is one of rows.

    Args:
        predicate: any; one that asks no function of rows is given back as it is.
    """
    if isinstance(predicate, RowFunction) and not (isinstance(predicate, in_lambda) and predicate.is_batched):
        return _OnFrames(predicate)
    return predicate


class _OnFrames(Predicate):
    def __init__(self, predicate: RowFunction) -> None:
        self._predicate = predicate

    @property
    def fields(self) -> tuple[str, ...]:
        return self._predicate.fields

    def truths(self, columns: Columns) -> tuple[Bools, Bools]:
        answers = self._of_frame(columns)
        try:
            of_rows = self._predicate.mask(columns)
        except PredicateError:
            if answers is None:
                raise
            return answers, ~answers
        if answers is not None and (answers != of_rows).any():
            row = int(np.flatnonzero(answers != of_rows)[0])
            raise PredicateError(
                f"{self!r} says {bool(answers[row])} of it when given columns of pandas, and {not answers[row]} when given the "
                f"row; say which is meant: in_lambda(…, batched=True) is given arrays, make_reader asks row by row",
                row,
            )
        return of_rows, ~of_rows

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
