"""Writes CSV files that :func:`data_stack.from_csv` reads with the same values."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ArgumentError, ConfigError


class CSVWriter:
    """Writes the batches of a dataset as rows, below a header with the names of the columns.

    A missing value is an empty field. Text that looks like a number is a number to readers, so a
    conversion, which compares what it wrote, refuses it.

    Args:
        file: a binary file, open for writing.
        names: the names of the columns.
        delimiter: one character.
    """

    #: The number of rows that were written.
    _n_rows: int

    def __init__(self, file: Any, names: Sequence[str], delimiter: str = ",") -> None:
        self._file = file
        self._names = list(names)
        self._delimiter = delimiter
        self._n_rows = 0
        self._write_rows([self._names])

    def write(self, batch: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the rows of a batch.

        Raises:
            ConfigError: CSV has no text for a value; the message names column and sample.
        """
        columns = [self._fields_of(name, batch[name]) for name in self._names]
        self._write_rows(list(zip(*columns, strict=True)))
        self._n_rows += len(columns[0])

    def _fields_of(self, name: str, values: npt.NDArray[Any]) -> list[str]:
        """Return the texts of the values of a column.

        Raises:
            ConfigError: CSV has no text for a value.
        """
        fields = []
        for position, value in enumerate(values, self._n_rows):
            try:
                fields.append(field_of_value(value))
            except ValueError as error:
                raise ArgumentError(
                    f"CSV cannot hold column {name!r}: {error} in sample {position}; "
                    "map it, or leave it out of",
                    "columns",
                ) from error
        return fields

    def _write_rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows of texts.

        Raises:
            ConfigError: UTF-8 lacks a character.
        """
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerows(rows)
        try:
            self._file.write(text.getvalue().encode())
        except UnicodeEncodeError as error:
            raise ConfigError(f"CSV cannot hold text that UTF-8 lacks: {error}") from error


def field_of_value(value: Any) -> str:
    """Return the text of a value, from which a reader makes the same value.

    Raises:
        ValueError: there is no such text; the message says what the value is.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        if not value:
            raise ValueError("an empty text, which readers take for a missing value,")
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, np.datetime64):
        return _field_of_time(value)
    # numpy's durations are integers to isinstance().
    is_duration = isinstance(value, np.timedelta64)
    if isinstance(value, (int, np.integer)) and not is_duration:
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    raise ValueError(f"a {type(value).__qualname__}")


def _field_of_time(value: np.datetime64) -> str:
    if np.isnat(value):
        return ""
    return str(value)
