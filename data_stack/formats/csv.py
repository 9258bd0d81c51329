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
from data_stack.formats.csv_dialect import QUOTING_ADVICE, check_delimiter, check_quoting
from data_stack.formats.csv_warnings import all_are_rows, header_warning, swallowed_warning
from data_stack.io.parsing import lend_or_open, name_of, reading
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedTextResource
from data_stack.io.stand_ins import check_no_stand_in
from data_stack.util.program_lines import warn_program
from data_stack.values.text_numbers import float_of, integer_of, is_number

#: Rows that are converted at once.
_BLOCK_ROWS = 4096

#: A longer line is damaged, or made to exhaust memory. (A field has csv.field_size_limit(),
#: 131,072 characters.)
_MAX_LINE_CHARACTERS = 1 << 24

#: Integers beyond this one are not read from a float, which may have rounded them.
_MAX_EXACT_INTEGER = 1 << 53

_TRUTH = {"0": False, "1": True, "false": False, "true": True}


class CSVDatasetIterator(ColumnsDatasetIterator):
    """Samples ``(features, target, tag)`` from the rows of a CSV resource; the tag is the target.

    The file is read whole at the first access.

    Args:
        resource: the path of a file; a StreamedResource, or a StreamedTextResource with its
            encoding; or an open binary file.
        target: the column of the target, by name (needs a header) or position; None for samples
            ``(features,)``.
        dtype: dtype of the features, which are all other columns: an array of shape
            ``(n_features,)``.
        target_dtype: an integer, floating or boolean dtype, or ``str``; targets are Python values.
        header: whether the first line contains names; None: it does, with a warning if it holds a
            number.
        skip_lines: number of lines to skip before the header.
        delimiter: one character.
        encoding: encoding of a binary resource.
        missing: texts that mean "unknown", such as ``{"", "?"}``: nan in floating columns.
        quoting: ``csv.QUOTE_NONE`` if quotes are ordinary characters; see
            :func:`data_stack.from_csv`.

    Raises:
        DatasetFileCorruptError: at the first access: ragged rows, text that is not a number or out
            of range, wrong encoding.
        ConfigError: at the first access: the target does not exist.
    """

    #: The file.
    _file: PositionalFile

    #: The column of the target, by name or position; None without one.
    _target: str | int | None

    #: The dtypes of the features and of the target.
    _dtype: np.dtype[Any]
    _target_dtype: np.dtype[Any]

    #: How the file is written; part of the fingerprint.
    _dialect: dict[str, Any]

    #: Whether nothing but our default says that the first line holds names.
    _is_header_assumed: bool

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
        self._file = PositionalFile(resource)
        self._target = target
        self._dtype = np.dtype(dtype)
        self._target_dtype = np.dtype(target_dtype)
        if isinstance(resource, StreamedTextResource):
            encoding = resource.encoding
        self._dialect = {
            # A bool, as before None was allowed: the fingerprint of a dataset must not change.
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
        return {
            "target": self._target,
            "dtype": self._dtype.str,
            "target_dtype": self._target_dtype.str,
            "dialect": self._dialect,
        }

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        dialect = dict(self._dialect)
        if self._is_header_assumed:
            dialect["header"] = None
        table = Table(self._file.open_buffered(), self._file.name, **dialect)

        # A file without rows has no columns; its samples have features of the shape (0,).
        target_position = None
        if self._target is not None and table.names:
            target_position = table.position_of(self._target)
        feature_positions = [
            position for position in range(len(table.names)) if position != target_position
        ]
        dtypes = dict.fromkeys(feature_positions, self._dtype)
        if target_position is not None:
            dtypes[target_position] = self._target_dtype
        columns = table.columns(dtypes)

        features = np.empty((0, 0), self._dtype)
        if feature_positions:
            features = np.stack([columns[position] for position in feature_positions], axis=1)
        if self._target is None:
            return [ArrayReader(features)]
        targets: npt.NDArray[Any] = np.empty(0, self._target_dtype)
        if target_position is not None:
            targets = columns[target_position]
        target_reader = ArrayReader(targets)
        # The tag is the target.
        return [ArrayReader(features), target_reader, target_reader]


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
        file: the path of a file; or a binary or text stream at its start, which may decompress. A
            stream is not closed.
        columns: ``{name: dtype}``, an integer, floating or boolean dtype, or ``str`` (an object
            array of str). With a header, some of its names in any order; without a header, names
            for all columns of the file in order.
        header: whether the first line contains names; None: it does, with a warning if it holds a
            number.
        skip_lines: number of lines to skip before the header.
        delimiter: one character.
        encoding: encoding of a binary stream.
        missing: texts that mean "unknown", such as ``{"", "?"}``: nan in floating columns.
        quoting: ``csv.QUOTE_NONE`` if quotes are ordinary characters; see
            :func:`data_stack.from_csv`.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is not a number of its dtype, wrong
            encoding, unknown column.
    """
    dtypes = {name: np.dtype(dtype) for name, dtype in columns.items()}
    with lend_or_open(file) as opened:
        table = Table(
            opened, name_of(opened), header, skip_lines, delimiter, encoding, missing, quoting
        )
        if not table.names:
            return {name: _no_values(dtype) for name, dtype in dtypes.items()}
        if header is not False:
            positions = {name: table.position_of(name) for name in dtypes}
        elif len(table.names) == len(dtypes):
            positions = {name: position for position, name in enumerate(dtypes)}
        else:
            raise DatasetFileCorruptError(
                f"{table.name!r} has {len(table.names)} columns, but {len(dtypes)} were named"
            )
        arrays = table.columns({positions[name]: dtype for name, dtype in dtypes.items()})
    return {name: arrays[position] for name, position in positions.items()}


def _no_values(dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values of a column without rows."""
    return np.empty(0, object if dtype.kind == "U" else dtype)


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
    """Read a CSV file of numbers as an array of shape ``(n_rows, n_columns)``.

    The arguments are those of :func:`read_csv`.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is not a number of ``dtype``, wrong
            encoding.
    """
    with lend_or_open(file) as opened:
        table = Table(
            opened, name_of(opened), header, skip_lines, delimiter, encoding, missing, quoting
        )
        columns = table.columns(dict.fromkeys(range(len(table.names)), np.dtype(dtype)))
    if not columns:
        return np.empty((0, 0), dtype)
    return np.stack(list(columns.values()), axis=1)


class Table:
    """The rows of a file.

    Args:
        file: an open binary or text stream, which stays open.
        name: the name of the file for messages.
        header, skip_lines, delimiter, encoding, missing, quoting: as for :func:`read_csv`.

    Attributes:
        name: the name of the file for messages.
        names: names of the columns, or the values of the first row without a header; empty without
            rows.
    """

    #: Whether the first row holds names.
    _has_header: bool

    #: Texts that mean nan.
    _missing: Collection[str]

    #: How fields are separated, and whether quotes quote.
    _delimiter: str
    _quoting: Any

    #: The number of the line that was read last.
    _line: int

    #: The lines of the row that is being read.
    _row_lines: list[str]

    #: Whether a warning of swallowed rows was given.
    _has_warned: bool

    #: Line number and cells of each row that was not converted yet.
    _rows: Iterator[tuple[int, list[str]]]

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
        self.names: list[str] = []
        self._has_header = header is not False
        self._missing = missing
        self._delimiter = check_delimiter(delimiter)
        self._quoting = check_quoting(quoting)
        self._line = 0
        self._row_lines = []
        self._has_warned = False
        self._rows = self._read_rows(file, skip_lines, encoding)

        first_row = next(self._rows, None)
        if first_row is None:
            if self._has_header:
                raise DatasetFileCorruptError(
                    f"{name!r} is empty; expected a header in line {skip_lines + 1}"
                )
            return
        _, self.names = first_row
        # A quoted cell may hold a page, but no table begins with the tag of one.
        check_no_stand_in(self._delimiter.join(self.names).encode() + b"\n", repr(name), -1)
        if not self._has_header:
            self._rows = itertools.chain([first_row], self._rows)
            return
        numbers = [cell for cell in self.names if is_number(cell)]
        if header is None and numbers:
            warn_program(header_warning(name, numbers[0]))

    def position_of(self, column: str | int) -> int:
        """Return the position of a column.

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
        if not self._has_header:
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

    # ------------------------------------------------------------------ rows

    def _read_rows(
        self, file: Any, skip_lines: int, encoding: str
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and cells of each row that is not empty."""
        text = file
        if not isinstance(file, io.TextIOBase):
            text = io.TextIOWrapper(file, encoding, newline="")
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
                    raise self._error_of_row(error) from error
        finally:
            if text is not file:
                # Otherwise the wrapper would close the caller's stream, which may be closed
                # already after an error.
                with contextlib.suppress(ValueError):
                    text.detach()

    def _read_lines(self, text: Any) -> Iterator[str]:
        """Yield lines, and note them as those of the row that is being read."""
        while line := text.readline(_MAX_LINE_CHARACTERS):
            self._line += 1
            if len(line) == _MAX_LINE_CHARACTERS:
                raise DatasetFileCorruptError(
                    f"{self.name!r}, line {self._line}: "
                    f"longer than {_MAX_LINE_CHARACTERS} characters"
                )
            if self._line == 1:
                # Spreadsheets write a byte order mark.
                line = line.removeprefix("\ufeff")
            self._row_lines.append(line)
            yield line

    def _check_swallowed(self) -> None:
        """Warn, once, of a row over several lines that are rows by themselves."""
        if self._has_warned or len(self._row_lines) < 2 or not self.names:
            return
        if all_are_rows(self._row_lines, self._delimiter, len(self.names)):
            self._has_warned = True
            warn_program(swallowed_warning(self.name, self._first_line_of_row()))

    def _error_of_row(self, error: csv.Error) -> Exception:
        """Return the error for a row that Python's reader refuses."""
        has_quote = '"' in "".join(self._row_lines[:1])
        advice = f"; {QUOTING_ADVICE}" if has_quote else ""
        return DatasetFileCorruptError(
            f"{self.name!r}, line {self._first_line_of_row()}: {error}{advice}"
        )

    def _first_line_of_row(self) -> int:
        """Return the number of the first line of the row that is being read."""
        return self._line - len(self._row_lines) + 1

    # ------------------------------------------------------------------ values

    def columns(self, dtypes: Mapping[int, np.dtype[Any]]) -> dict[int, npt.NDArray[Any]]:
        """Return the columns at some positions.

        Args:
            dtypes: the dtype of each column by its position.

        Raises:
            DatasetFileCorruptError: ragged rows, or text that is not a number of its dtype.
        """
        parts: dict[int, list[npt.NDArray[Any]]] = {position: [] for position in dtypes}
        is_last = False
        while not is_last:
            # The last block is empty, so that a column without rows has its dtype, too.
            block = list(itertools.islice(self._rows, _BLOCK_ROWS))
            is_last = not block
            for line, row in block:
                if len(row) != len(self.names):
                    raise DatasetFileCorruptError(
                        f"{self.name!r}, line {line}: "
                        f"{len(row)} columns, expected {len(self.names)}"
                    )
            for position, dtype in dtypes.items():
                cells = [(line, row[position]) for line, row in block]
                parts[position].append(self._convert(cells, dtype, position))
        return {position: np.concatenate(arrays) for position, arrays in parts.items()}

    def _convert(
        self, cells: list[tuple[int, str]], dtype: np.dtype[Any], column: int
    ) -> npt.NDArray[Any]:
        """Return the values of cells.

        Args:
            cells: pairs of line number and text.
            dtype: the dtype of the values.
            column: the position of the column, for messages.
        """
        if dtype.kind == "U":
            # An array of objects, as numpy's strings would lose trailing NULs.
            strings = np.empty(len(cells), object)
            strings[:] = [text for _, text in cells]
            return strings
        if dtype.kind not in "fiub":
            raise ConfigError(f"a CSV column must be numbers, bools or str, got {dtype}")
        missing = self._missing if dtype.kind == "f" else ()
        values = []
        for line, text in cells:
            try:
                values.append(np.nan if text in missing else _number(text, dtype))
            except (ValueError, KeyError, OverflowError) as error:
                raise DatasetFileCorruptError(
                    f"{self.name!r}, line {line}, column {column + 1}: "
                    f"invalid {dtype}: {shorten(text)}"
                ) from error
        return np.array(values, dtype)


# ---------------------------------------------------------------------- numbers


def _number(text: str, dtype: np.dtype[Any]) -> float:
    """Return the number of a dtype that a text says.

    Raises:
        ValueError, KeyError or OverflowError: the text is no number, or one that the dtype lacks.
    """
    if dtype.kind == "b":
        return _TRUTH[text.strip().lower()]
    if dtype.kind == "f":
        return _float(text, dtype)
    integer = integer_of(text)
    if integer is None:
        integer = _integer_of_float(text)
    limits = np.iinfo(dtype)
    if not limits.min <= integer <= limits.max:
        raise OverflowError(text)
    return integer


def _integer_of_float(text: str) -> int:
    """Return the integer that a text writes as a float, such as ``5.0`` or ``5e0``.

    Numeric programs write integers so.

    Raises:
        ValueError or OverflowError: the text is no integer, or float64 may have rounded it.
    """
    number = float_of(text)
    if number is None:
        raise ValueError(text)
    integer = int(number)
    if integer != number or abs(integer) > _MAX_EXACT_INTEGER:
        raise ValueError(text)
    return integer


def _float(text: str, dtype: np.dtype[Any]) -> float:
    """Return the number that a text says; fractions are rounded to the dtype.

    Raises:
        ValueError: the text is no number.
        OverflowError: the number is out of range, or an integer that the dtype lacks.
    """
    number = float_of(text)
    if number is None:
        raise ValueError(text)
    if dtype.itemsize >= 8 or not np.isfinite(number):
        return number
    with np.errstate(over="ignore", under="ignore"):
        narrow = float(dtype.type(number))
    is_out_of_range = np.isinf(narrow) or (narrow == 0 and number != 0)
    is_changed_integer = number.is_integer() and narrow != number
    if is_out_of_range or is_changed_integer:
        raise OverflowError(text)
    return number
