"""Comma-separated values as typed columns; every error names the line."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.columns import ArrayColumn, Column, ColumnsDatasetIterator, of_files_only
from data_stack.io.positional import PositionalFile, lent_or_opened, name_of, reading
from data_stack.io.resources import StreamedTextResource

__all__ = ["CSVDatasetIterator", "read_csv", "read_csv_matrix"]

_BLOCK_ROWS = 4096
#: A longer line is damage, or made to fill memory. (A field has csv.field_size_limit(), 131,072 characters.)
_MAX_LINE_CHARACTERS = 1 << 24
_TRUTH = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class _Dialect:
    """How a file is written."""

    header: bool
    skip_lines: int
    delimiter: str
    encoding: str
    missing: frozenset[str]


class CSVDatasetIterator(ColumnsDatasetIterator):
    """Samples ``(features, target, tag)`` from the rows of a CSV resource, read whole at the first access; the tag is the target.

    Args:
        resource: the path of a file; a StreamedResource, or a StreamedTextResource, which brings its encoding; or an open binary
            file.
        target: the column of the target, by name (needs a header) or position; None for samples ``(features,)``.
        dtype: of the features, which are all other columns: an array of shape ``(n_features,)``.
        target_dtype: an integer, floating or boolean dtype, or ``str``; targets are Python values of it.
        header: whether a line of names comes first.
        skip_lines: number of lines before that.
        delimiter: one character.
        encoding: of a binary resource.
        missing: texts that mean "unknown", as ``{"", "?"}``: nan in floating columns.

    Raises:
        DatasetFileCorruptError: at the first access: ragged rows, text that is no number or does not fit, wrong encoding.
        ConfigError: at the first access: there is no such target.
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
        self._dialect = _Dialect(header, skip_lines, delimiter, encoding, frozenset(missing))

    def _arguments(self) -> dict[str, Any]:
        dtypes = {"dtype": self._dtype.str, "target_dtype": self._target_dtype.str}
        return {"target": self._target, **dtypes, "dialect": vars(self._dialect)}

    @of_files_only
    def _open_columns(self) -> list[Column]:
        file = self._file
        target: int | None = None

        def dtypes(names: list[str]) -> list[np.dtype[Any] | None]:
            nonlocal target
            target = None if self._target is None else _position_of(self._target, names, self._dialect.header, file.name)
            return [self._target_dtype if i == target else self._dtype for i in range(len(names))]

        columns = _read(file.buffered(), file.name, self._dialect, dtypes)
        features = [column for i, column in enumerate(columns) if i != target]
        opened: list[Column] = [ArrayColumn(np.stack(features, axis=1) if features else np.empty((0, 0), self._dtype))]
        if self._target is not None:
            opened += [ArrayColumn(np.empty(0, self._target_dtype) if target is None else columns[target])] * 2
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
        file: the path of a file; or a binary or text stream that stands at the start, plain or decompressing, which stays the
            caller's to close.
        columns: ``{name: dtype}``, an integer, floating or boolean dtype, or ``str`` (an object array of str). With a header
            any of its names in any order; without one, names for all columns of the file in order.
        header: whether a line of names comes first.
        skip_lines: number of lines before that.
        delimiter: one character.
        encoding: of a binary stream.
        missing: texts that mean "unknown", as ``{"", "?"}``: nan in floating columns.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is no number or does not fit its dtype, wrong encoding, no such column.
    """
    wanted = {name: np.dtype(dtype) for name, dtype in columns.items()}
    places: list[int] = []

    def dtypes(names: list[str]) -> list[np.dtype[Any] | None]:
        if not header and len(names) != len(wanted):
            raise DatasetFileCorruptError(f"{name_of(file)!r} has {len(names)} columns, but {len(wanted)} were named")
        places.extend(_position_of(name, names, True, name_of(file)) for name in wanted) if header else places.extend(
            range(len(wanted))
        )
        chosen: list[np.dtype[Any] | None] = [None] * len(names)
        for place, dtype in zip(places, wanted.values(), strict=True):
            chosen[place] = dtype
        return chosen

    dialect = _Dialect(header, skip_lines, delimiter, encoding, frozenset(missing))
    with lent_or_opened(file) as opened:
        read = _read(opened, name_of(opened), dialect, dtypes)
    if not read:
        return {name: np.empty(0, dtype if dtype.kind != "U" else object) for name, dtype in wanted.items()}
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
    """Read a CSV file of nothing but numbers as an array of shape ``(n_rows, n_columns)``; arguments as for :func:`read_csv`.

    Raises:
        DatasetFileCorruptError: ragged rows, text that is no number or does not fit ``dtype``, wrong encoding.
    """
    dialect = _Dialect(header, skip_lines, delimiter, encoding, frozenset(missing))
    with lent_or_opened(file) as opened:
        columns = _read(opened, name_of(opened), dialect, lambda names: [np.dtype(dtype)] * len(names))
    return np.stack(columns, axis=1) if columns else np.empty((0, 0), dtype)


def _read(
    file: Any, name: str, dialect: _Dialect, dtypes: Callable[[list[str]], list[np.dtype[Any] | None]]
) -> list[npt.NDArray[Any]]:
    """All columns that ``dtypes`` (called with the header, or the first row in its place) gives a dtype; empty for the others."""
    rows = _rows(file, name, dialect)
    first = next(rows, None)
    if first is None:
        if dialect.header:
            raise DatasetFileCorruptError(f"{name!r} is empty; a header was expected in line {dialect.skip_lines + 1}")
        return []
    names = first[1]
    chosen = dtypes(names)
    if not dialect.header:
        rows = itertools.chain([first], rows)
    blocks: list[list[npt.NDArray[Any]]] = []
    while True:
        block = list(itertools.islice(rows, _BLOCK_ROWS))
        for line, row in block:
            if len(row) != len(names):
                raise DatasetFileCorruptError(f"{name!r}, line {line}: {len(row)} columns, expected {len(names)}")
        lines = [line for line, _ in block]
        blocks.append(
            [
                np.empty(0) if dtype is None else _converted([row[i] for _, row in block], dtype, lines, f"{name!r}", i, dialect)
                for i, dtype in enumerate(chosen)
            ]
        )
        if len(block) < _BLOCK_ROWS:
            return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _rows(file: Any, name: str, dialect: _Dialect) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that is not empty."""
    is_text = isinstance(file, io.TextIOBase)
    text = file if is_text else io.TextIOWrapper(file, dialect.encoding, newline="")
    try:
        with reading(name, f"CSV file in {dialect.encoding}"):
            lines = _bounded_lines(text, name)
            for _ in range(dialect.skip_lines):
                next(lines, None)
            reader = csv.reader(lines, delimiter=dialect.delimiter, strict=True)
            while True:
                try:
                    row = next(reader, None)
                except csv.Error as error:
                    raise DatasetFileCorruptError(f"{name!r}, line {dialect.skip_lines + reader.line_num}: {error}") from error
                if row is None:
                    return
                if row:
                    yield dialect.skip_lines + reader.line_num, row
    finally:
        if not is_text:
            text.detach()  # or the wrapper would close the caller's stream


def _bounded_lines(text: Any, name: str) -> Iterator[str]:
    number = 0
    while line := text.readline(_MAX_LINE_CHARACTERS):
        number += 1
        if number == 1:
            line = line.removeprefix("\ufeff")  # the byte order mark that spreadsheets write
        if len(line) == _MAX_LINE_CHARACTERS:
            raise DatasetFileCorruptError(f"{name!r}, line {number}: longer than {_MAX_LINE_CHARACTERS} characters")
        yield line


def _position_of(column: str | int, names: list[str], header: bool, name: str) -> int:
    if isinstance(column, int):
        if -len(names) <= column < len(names):
            return column % len(names)
        raise ConfigError(f"{name!r} has {len(names)} columns; there is no column {column}")
    if not header:
        raise ConfigError(f"column {column!r} of {name!r} is given by name, but the file has no header; give its position")
    if names.count(column) != 1:
        raise DatasetFileCorruptError(
            f"{name!r} has {names.count(column)} columns named {column!r}; it has {', '.join(map(repr, names[:20]))}"
        )
    return names.index(column)


def _converted(
    texts: list[str], dtype: np.dtype[Any], lines: list[int], name: str, column: int, dialect: _Dialect
) -> npt.NDArray[Any]:
    if dtype.kind == "U":
        strings = np.empty(len(texts), object)  # numpy's own strings would cut trailing NULs, and long ones
        strings[:] = texts
        return strings
    if dtype.kind not in "fiub":
        raise ConfigError(f"a CSV column is read as numbers, bools or str, not as {dtype}")
    convert = _CONVERTERS[dtype.kind]
    values = []
    for line, text in zip(lines, texts, strict=True):
        try:
            if dtype.kind == "f" and text in dialect.missing:
                values.append(np.nan)
            else:
                values.append(convert(text, dtype))
        except (ValueError, KeyError, OverflowError) as error:
            shown = text if len(text) <= 40 else text[:40] + "…"
            raise DatasetFileCorruptError(f"{name}, line {line}, column {column + 1}: {shown!r} is no {dtype}") from error
    return np.array(values, dtype)


def _float(text: str, dtype: np.dtype[Any]) -> float:
    if "_" in text:  # Python's own notation, nobody's data
        raise ValueError(text)
    value = float(text)
    if dtype.itemsize < 8 and np.isfinite(value) and abs(value) > float(np.finfo(dtype).max):
        raise OverflowError(text)
    return value


def _integer(text: str, dtype: np.dtype[Any]) -> int:
    if "_" in text:
        raise ValueError(text)
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


def _truth(text: str, dtype: np.dtype[Any]) -> bool:
    return _TRUTH[text.strip().lower()]


_CONVERTERS: dict[str, Callable[[str, np.dtype[Any]], Any]] = {"f": _float, "i": _integer, "u": _integer, "b": _truth}
