"""Reads CSV files as typed columns; every error names the line."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.column_reader import ArrayReader, ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.csv_quotes import (
    QUOTING_ADVICE,
    all_are_rows,
    check_delimiter,
    check_quoting,
    header_warning,
    swallowed_warning,
)
from data_stack.io.parsing import lend_or_open, name_of, reading
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedTextResource
from data_stack.io.stand_ins import check_no_stand_in
from data_stack.util.program_lines import warn_program
from data_stack.values.text_numbers import float_of, integer_of, is_number

_BLOCK_ROWS = 4096
#: A longer line is damaged, or made to exhaust memory. (A field has csv.field_size_limit(), 131,072 characters.)
_MAX_LINE_CHARACTERS = 1 << 24
_TRUTH = {"0": False, "1": True, "false": False, "true": True}


class CSVDatasetIterator(ColumnsDatasetIterator):
    """Samples ``(features, target, tag)`` from the rows of a CSV resource, read whole at the first access; the tag is the target.

    Args:
        resource: the path of a file; a StreamedResource, or a StreamedTextResource with its encoding; or an open binary file.
        target: the column of the target, by name (needs a header) or position; None for samples ``(features,)``.
        dtype: dtype of the features, which are all other columns: an array of shape ``(n_features,)``.
        target_dtype: an integer, floating or boolean dtype, or ``str``; targets are Python values.
        header: whether the first line contains names; None: it does, with a warning if it holds a number.
        skip_lines: number of lines to skip before the header.
        delimiter: one character.
        encoding: encoding of a binary resource.
        missing: texts that mean "unknown", such as ``{"", "?"}``: nan in floating columns.
        quoting: ``csv.QUOTE_NONE`` if quotes are ordinary characters; see :func:`data_stack.from_csv`.

    Raises:
        DatasetFileCorruptError: at the first access: ragged rows, text that is not a number or out of range, wrong encoding.
        ConfigError: at the first access: the target does not exist.
    """

    def __init__(
        self,
        resource: Any,
        *,
        target: str | int | None = -1,
        dtype: npt.DTypeLike = np.float64,
        target_dtype: npt.DTypeLike = np.int64,
        header: bool | None = None,
        skip_lines: int = 0,
        delimiter: str = ",",
        encoding: str = "utf-8",
        missing: Collection[str] = (),
        quoting: Any = csv.QUOTE_MINIMAL,
    ) -> None:
        super().__init__(["features"] if target is None else ["features", "target", "target"])
        self._file, self._target = PositionalFile(resource), target
        self._dtype, self._target_dtype = np.dtype(dtype), np.dtype(target_dtype)
        if isinstance(resource, StreamedTextResource):
            encoding = resource.encoding
        self._dialect: dict[str, Any] = {
            # what a fingerprint has is the same as before header could be None
            "header": header is not False,
            "skip_lines": skip_lines,
            "delimiter": check_delimiter(delimiter),
            "encoding": encoding,
            "missing": frozenset(missing),
        }
        if check_quoting(quoting) != csv.QUOTE_MINIMAL:
            self._dialect["quoting"] = check_quoting(quoting)
        self._is_header_assumed = header is None

    def _arguments(self) -> dict[str, Any]:
        dtypes = {"dtype": self._dtype.str, "target_dtype": self._target_dtype.str}
        return {"target": self._target, **dtypes, "dialect": self._dialect}

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        dialect = dict(self._dialect)
        if self._is_header_assumed:
            dialect["header"] = None
        table = Table(self._file.open_buffered(), self._file.name, **dialect)
        target = (
            None if self._target is None or not table.names else table.position_of(self._target)
        )
        features = [place for place in range(len(table.names)) if place != target]
        columns = table.columns(
            dict.fromkeys(features, self._dtype)
            | ({} if target is None else {target: self._target_dtype})
        )
        found = [columns[place] for place in features]
        opened: list[ColumnReader] = [
            ArrayReader(np.stack(found, axis=1) if found else np.empty((0, 0), self._dtype))
        ]
        if self._target is not None:
            opened += [
                ArrayReader(np.empty(0, self._target_dtype) if target is None else columns[target])
            ] * 2
        return opened


def read_csv(
    file: Any,
    columns: Mapping[str, npt.DTypeLike],
    *,
    header: bool | None = None,
    skip_lines: int = 0,
    delimiter: str = ",",
    encoding: str = "utf-8",
    missing: Collection[str] = (),
    quoting: Any = csv.QUOTE_MINIMAL,
) -> dict[str, npt.NDArray[Any]]:
    """Read named columns of a CSV file, each of shape ``(n_rows,)``.

    Args:
        file: the path of a file; or a binary or text stream at its start, which may decompress; the caller closes it.
        columns: ``{name: dtype}``, an integer, floating or boolean dtype, or ``str`` (an object array of str). With a header,
            some of its names in any order; without a header, names for all columns of the file in order.
        header: whether the first line contains names; None: it does, with a warning if it holds a number.
        skip_lines: number of lines to skip before the header.
        delimiter: one character.
        encoding: encoding of a binary stream.
        missing: texts that mean "unknown", such as ``{"", "?"}``: nan in floating columns.
        quoting: ``csv.QUOTE_NONE`` if quotes are ordinary characters; see :func:`data_stack.from_csv`.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is not a number of its dtype, wrong encoding, unknown column.
    """
    wanted = {name: np.dtype(dtype) for name, dtype in columns.items()}
    with lend_or_open(file) as opened:
        table = Table(
            opened, name_of(opened), header, skip_lines, delimiter, encoding, missing, quoting
        )
        if not table.names:
            return {
                name: np.empty(0, dtype if dtype.kind != "U" else object)
                for name, dtype in wanted.items()
            }
        if header is False and len(table.names) != len(wanted):
            raise DatasetFileCorruptError(
                f"{table.name!r} has {len(table.names)} columns, but {len(wanted)} were named"
            )
        places = (
            list(range(len(wanted)))
            if header is False
            else [table.position_of(name) for name in wanted]
        )
        read = table.columns(dict(zip(places, wanted.values(), strict=True)))
    return {name: read[place] for name, place in zip(wanted, places, strict=True)}


def read_csv_matrix(
    file: Any,
    dtype: npt.DTypeLike = np.float64,
    *,
    header: bool = False,
    skip_lines: int = 0,
    delimiter: str = ",",
    encoding: str = "utf-8",
    missing: Collection[str] = (),
    quoting: Any = csv.QUOTE_MINIMAL,
) -> npt.NDArray[Any]:
    """Read a CSV file of numbers as an array of shape ``(n_rows, n_columns)``; arguments as for :func:`read_csv`.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is not a number of ``dtype``, wrong encoding.
    """
    with lend_or_open(file) as opened:
        table = Table(
            opened, name_of(opened), header, skip_lines, delimiter, encoding, missing, quoting
        )
        columns = table.columns(dict.fromkeys(range(len(table.names)), np.dtype(dtype)))
    return np.stack(list(columns.values()), axis=1) if columns else np.empty((0, 0), dtype)


class Table:
    """The rows of a file.

    Args:
        file: an open binary or text stream, which stays open.
        name: its name in messages.
        header, skip_lines, delimiter, encoding, missing, quoting: as for :func:`read_csv`.

    Attributes:
        names: names of the columns, or the values of the first row without a header; empty without rows.
    """

    def __init__(
        self,
        file: Any,
        name: str,
        header: bool | None,
        skip_lines: int,
        delimiter: str,
        encoding: str,
        missing: Collection[str],
        quoting: Any = csv.QUOTE_MINIMAL,
    ) -> None:
        self.name = name
        self._header = header is not False
        self._missing = missing
        self._line = 0
        self._delimiter = check_delimiter(delimiter)
        self._quoting: Any = check_quoting(quoting)
        #: The lines of the row that is being read.
        self._row_lines: list[str] = []
        self._has_warned = False
        self.names: list[str] = []
        self._rows = self._read_rows(file, skip_lines, encoding)
        first = next(self._rows, None)
        if first is None and self._header:
            raise DatasetFileCorruptError(
                f"{name!r} is empty; expected a header in line {skip_lines + 1}"
            )
        if first is None:
            return
        self.names = first[1]
        # A quoted cell may hold a page, but no table begins with the tag of one.
        check_no_stand_in(self._delimiter.join(first[1]).encode() + b"\n", repr(name), -1)
        if not self._header:
            self._rows = itertools.chain([first], self._rows)
            return
        numbers = [cell for cell in self.names if is_number(cell)]
        if header is None and numbers:
            warn_program(header_warning(name, numbers[0]))

    def position_of(self, column: str | int) -> int:
        """The position of a column.

        Raises:
            ConfigError: the position is out of range, or the file has no header.
            DatasetFileCorruptError: no column, or several, have that name.
        """
        names = self.names
        if isinstance(column, int):
            if -len(names) <= column < len(names):
                return column % len(names)
            raise ConfigError(
                f"{self.name!r} has {len(names)} columns; column {column} is out of range"
            )
        if not self._header:
            raise ConfigError(
                f"column {column!r} of {self.name!r} is a name, but the file has no header"
            )
        if self._counts[column] != 1:
            raise DatasetFileCorruptError(
                f"{self.name!r} has {self._counts[column]} columns named {column!r} in {names[:20]}"
            )
        return self._positions[column]

    @functools.cached_property
    def _counts(self) -> Counter[str]:
        return Counter(self.names)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def columns(self, dtypes: Mapping[int, np.dtype[Any]]) -> dict[int, npt.NDArray[Any]]:
        """The columns at some positions."""
        parts: dict[int, list[npt.NDArray[Any]]] = {place: [] for place in dtypes}
        block = [(0, self.names)]
        while block:
            block = list(itertools.islice(self._rows, _BLOCK_ROWS))
            for line, row in block:
                if len(row) != len(self.names):
                    raise DatasetFileCorruptError(
                        f"{self.name!r}, line {line}: {len(row)} columns, expected {len(self.names)}"
                    )
            for place, dtype in dtypes.items():
                parts[place].append(
                    self._convert([(line, row[place]) for line, row in block], dtype, place)
                )
        return {place: np.concatenate(arrays) for place, arrays in parts.items()}

    def _read_rows(
        self, file: Any, skip_lines: int, encoding: str
    ) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each row that is not empty."""
        text = (
            file
            if isinstance(file, io.TextIOBase)
            else io.TextIOWrapper(file, encoding, newline="")
        )
        try:
            with reading(self.name, f"CSV file in {encoding}"):
                lines = itertools.islice(self._read_lines(text), skip_lines, None)
                reader = csv.reader(
                    lines, delimiter=self._delimiter, quoting=self._quoting, strict=True
                )
                try:
                    for row in reader:
                        if row:
                            self._check_swallowed()
                            yield self._line, row
                        self._row_lines.clear()
                except csv.Error as error:
                    first = self._line - len(self._row_lines) + 1
                    advice = f"; {QUOTING_ADVICE}" if '"' in "".join(self._row_lines[:1]) else ""
                    raise DatasetFileCorruptError(
                        f"{self.name!r}, line {first}: {error}{advice}"
                    ) from error
        finally:
            if text is not file:
                with contextlib.suppress(
                    ValueError
                ):  # after an error the file may be closed already
                    text.detach()  # otherwise the wrapper would close the caller's stream

    def _check_swallowed(self) -> None:
        """Warn, once, of a row over several lines that are rows by themselves."""
        is_candidate = len(self._row_lines) > 1 and bool(self.names) and not self._has_warned
        if is_candidate and all_are_rows(self._row_lines, self._delimiter, len(self.names)):
            self._has_warned = True
            first = self._line - len(self._row_lines) + 1
            warn_program(swallowed_warning(self.name, first))

    def _read_lines(self, text: Any) -> Iterator[str]:
        while line := text.readline(_MAX_LINE_CHARACTERS):
            self._line += 1
            if len(line) == _MAX_LINE_CHARACTERS:
                raise DatasetFileCorruptError(
                    f"{self.name!r}, line {self._line}: longer than {_MAX_LINE_CHARACTERS} characters"
                )
            if self._line == 1:
                line = line.removeprefix("\ufeff")  # the byte order mark that spreadsheets write
            self._row_lines.append(line)
            yield line

    def _convert(
        self, cells: list[tuple[int, str]], dtype: np.dtype[Any], column: int
    ) -> npt.NDArray[Any]:
        """The values of cells, given as pairs of line number and text."""
        if dtype.kind == "U":
            strings = np.empty(len(cells), object)  # numpy's strings would lose trailing NULs
            strings[:] = [text for _, text in cells]
            return strings
        if dtype.kind not in "fiub":
            raise ConfigError(f"a CSV column must be numbers, bools or str, got {dtype}")
        values = []
        for line, text in cells:
            try:
                values.append(
                    np.nan if dtype.kind == "f" and text in self._missing else _number(text, dtype)
                )
            except (ValueError, KeyError, OverflowError) as error:
                problem = f"{self.name!r}, line {line}, column {column + 1}: invalid {dtype}: {shorten(text)}"
                raise DatasetFileCorruptError(problem) from error
        return np.array(values, dtype)


def _number(text: str, dtype: np.dtype[Any]) -> float:
    """The number of a dtype that a text says.

    Raises:
        ValueError, KeyError or OverflowError: it says none, or one that the dtype lacks.
    """
    if dtype.kind == "b":
        return _TRUTH[text.strip().lower()]
    if dtype.kind == "f":
        return _float(text, dtype)
    integer = integer_of(text)
    if integer is None:
        number = float_of(text)  # "5.0" and "5e0", as numeric programs write integers
        if number is None:
            raise ValueError(text)
        integer = int(number)
        if integer != number or abs(integer) > 1 << 53:
            raise ValueError(text)
    limits = np.iinfo(dtype)
    if not limits.min <= integer <= limits.max:
        raise OverflowError(text)
    return integer


def _float(text: str, dtype: np.dtype[Any]) -> float:
    number = float_of(text)
    if number is None:
        raise ValueError(text)
    if dtype.itemsize >= 8 or not np.isfinite(number):
        return number
    with np.errstate(over="ignore", under="ignore"):
        narrow = float(dtype.type(number))
    # fractions are rounded, other numbers must not change
    is_lost = np.isinf(narrow) or (narrow == 0 and number != 0)
    if is_lost or (number.is_integer() and narrow != number):
        raise OverflowError(text)
    return number
