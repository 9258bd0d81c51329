"""Reads CSV files as typed columns; every error names the line."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.columns import ArrayColumn, Column, ColumnsDatasetIterator, of_files_only
from data_stack.io.positional import PositionalFile, lend_or_open, name_of, reading
from data_stack.io.resources import StreamedTextResource

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
        header: whether the first line contains names.
        skip_lines: number of lines to skip before the header.
        delimiter: one character.
        encoding: encoding of a binary resource.
        missing: texts that mean "unknown", such as ``{"", "?"}``: nan in floating columns.

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
        header: bool = True,
        skip_lines: int = 0,
        delimiter: str = ",",
        encoding: str = "utf-8",
        missing: Collection[str] = (),
    ) -> None:
        super().__init__(["features"] if target is None else ["features", "target", "target"])
        self._file, self._target = PositionalFile(resource), target
        self._dtype, self._target_dtype = np.dtype(dtype), np.dtype(target_dtype)
        if isinstance(resource, StreamedTextResource):
            encoding = resource.encoding
        dialect = {
            "header": header,
            "skip_lines": skip_lines,
            "delimiter": delimiter,
            "encoding": encoding,
        }
        self._dialect: dict[str, Any] = {**dialect, "missing": frozenset(missing)}

    def _arguments(self) -> dict[str, Any]:
        dtypes = {"dtype": self._dtype.str, "target_dtype": self._target_dtype.str}
        return {"target": self._target, **dtypes, "dialect": self._dialect}

    @of_files_only
    def _open_columns(self) -> list[Column]:
        table = Table(self._file.open_buffered(), self._file.name, **self._dialect)
        target = (
            None if self._target is None or not table.names else table.position_of(self._target)
        )
        features = [place for place in range(len(table.names)) if place != target]
        columns = table.columns(
            dict.fromkeys(features, self._dtype)
            | ({} if target is None else {target: self._target_dtype})
        )
        found = [columns[place] for place in features]
        opened: list[Column] = [
            ArrayColumn(np.stack(found, axis=1) if found else np.empty((0, 0), self._dtype))
        ]
        if self._target is not None:
            opened += [
                ArrayColumn(np.empty(0, self._target_dtype) if target is None else columns[target])
            ] * 2
        return opened


def read_csv(
    file: Any,
    columns: Mapping[str, npt.DTypeLike],
    *,
    header: bool = True,
    skip_lines: int = 0,
    delimiter: str = ",",
    encoding: str = "utf-8",
    missing: Collection[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Read named columns of a CSV file, each of shape ``(n_rows,)``.

    Args:
        file: the path of a file; or a binary or text stream at its start, which may decompress; the caller closes it.
        columns: ``{name: dtype}``, an integer, floating or boolean dtype, or ``str`` (an object array of str). With a header,
            some of its names in any order; without a header, names for all columns of the file in order.
        header: whether the first line contains names.
        skip_lines: number of lines to skip before the header.
        delimiter: one character.
        encoding: encoding of a binary stream.
        missing: texts that mean "unknown", such as ``{"", "?"}``: nan in floating columns.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is not a number of its dtype, wrong encoding, unknown column.
    """
    wanted = {name: np.dtype(dtype) for name, dtype in columns.items()}
    with lend_or_open(file) as opened:
        table = Table(opened, name_of(opened), header, skip_lines, delimiter, encoding, missing)
        if not table.names:
            return {
                name: np.empty(0, dtype if dtype.kind != "U" else object)
                for name, dtype in wanted.items()
            }
        if not header and len(table.names) != len(wanted):
            raise DatasetFileCorruptError(
                f"{table.name!r} has {len(table.names)} columns, but {len(wanted)} were named"
            )
        places = (
            [table.position_of(name) for name in wanted] if header else list(range(len(wanted)))
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
) -> npt.NDArray[Any]:
    """Read a CSV file of numbers as an array of shape ``(n_rows, n_columns)``; arguments as for :func:`read_csv`.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is not a number of ``dtype``, wrong encoding.
    """
    with lend_or_open(file) as opened:
        table = Table(opened, name_of(opened), header, skip_lines, delimiter, encoding, missing)
        columns = table.columns(dict.fromkeys(range(len(table.names)), np.dtype(dtype)))
    return np.stack(list(columns.values()), axis=1) if columns else np.empty((0, 0), dtype)


class Table:
    """The rows of a file.

    Args:
        file: an open binary or text stream, which stays open.
        name: its name in messages.
        header, skip_lines, delimiter, encoding, missing: as for :func:`read_csv`.

    Attributes:
        names: names of the columns, or the values of the first row without a header; empty without rows.
    """

    def __init__(
        self,
        file: Any,
        name: str,
        header: bool,
        skip_lines: int,
        delimiter: str,
        encoding: str,
        missing: Collection[str],
    ) -> None:
        self.name, self._header, self._missing, self._line = name, header, missing, 0
        self._rows = self._read_rows(file, skip_lines, delimiter, encoding)
        first = next(self._rows, None)
        if first is None and header:
            raise DatasetFileCorruptError(
                f"{name!r} is empty; expected a header in line {skip_lines + 1}"
            )
        self.names = [] if first is None else first[1]
        if first is not None and not header:
            self._rows = itertools.chain([first], self._rows)

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
        if names.count(column) != 1:
            raise DatasetFileCorruptError(
                f"{self.name!r} has {names.count(column)} columns named {column!r} in {names[:20]}"
            )
        return names.index(column)

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
        self, file: Any, skip_lines: int, delimiter: str, encoding: str
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
                try:
                    for row in csv.reader(lines, delimiter=delimiter, strict=True):
                        if row:
                            yield self._line, row
                except csv.Error as error:
                    raise DatasetFileCorruptError(
                        f"{self.name!r}, line {self._line}: {error}"
                    ) from error
        finally:
            if text is not file:
                with contextlib.suppress(
                    ValueError
                ):  # after an error the file may be closed already
                    text.detach()  # otherwise the wrapper would close the caller's stream

    def _read_lines(self, text: Any) -> Iterator[str]:
        while line := text.readline(_MAX_LINE_CHARACTERS):
            self._line += 1
            if len(line) == _MAX_LINE_CHARACTERS:
                raise DatasetFileCorruptError(
                    f"{self.name!r}, line {self._line}: longer than {_MAX_LINE_CHARACTERS} characters"
                )
            yield (
                line.removeprefix("\ufeff") if self._line == 1 else line
            )  # the byte order mark that spreadsheets write

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
    if dtype.kind == "b":
        return _TRUTH[text.strip().lower()]
    if "_" in text:  # Python's own notation, not one of data
        raise ValueError(text)
    if dtype.kind == "f":
        number = float(text)
        if np.isfinite(number) and abs(number) > float(np.finfo(dtype).max):
            raise OverflowError(text)
        return number
    try:
        value = int(text)
    except ValueError:
        number = float(text)  # "5.0" and "5e0", as numeric programs write integers
        value = int(number)
        if value != number or abs(value) > 1 << 53:
            raise
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise OverflowError(text)
    return value
