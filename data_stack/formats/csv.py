"""Reads CSV files as typed columns."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.column_reader import ArrayReader, ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.csv_dialect import check_delimiter, check_quoting
from data_stack.formats.csv_file import CSVFile
from data_stack.io.parsing import lend_or_open, name_of
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedTextResource
from data_stack.values.dtype_texts import parse_dtype


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

    #: The dtype of the features.
    _dtype: np.dtype[Any]

    #: The dtype of the target.
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
        columns = ["features"]
        if target is not None:
            # The target, and the tag, which is the target again.
            columns += ["target", "target"]
        super().__init__(columns)
        self._file = PositionalFile(resource)
        self._target = target
        self._dtype = parse_dtype(dtype)
        self._target_dtype = parse_dtype(target_dtype)
        if isinstance(resource, StreamedTextResource):
            encoding = resource.encoding
        self._dialect = {
            # None counts as True, which was the default before None was allowed: the fingerprint
            # of a dataset must not change.
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
        # The dialect in the fingerprint has no None.
        dialect = dict(self._dialect)
        if self._is_header_assumed:
            dialect["header"] = None
        table = CSVFile(self._file.open_buffered(), self._file.name, **dialect)

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
    dtypes = {name: parse_dtype(dtype) for name, dtype in columns.items()}
    with lend_or_open(file) as opened:
        table = CSVFile(
            opened,
            name_of(opened),
            header=header,
            skip_lines=skip_lines,
            delimiter=delimiter,
            encoding=encoding,
            missing=missing,
            quoting=quoting,
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
        table = CSVFile(
            opened,
            name_of(opened),
            header=header,
            skip_lines=skip_lines,
            delimiter=delimiter,
            encoding=encoding,
            missing=missing,
            quoting=quoting,
        )
        columns = table.columns(dict.fromkeys(range(len(table.names)), np.dtype(dtype)))
    if not columns:
        return np.empty((0, 0), dtype)
    return np.stack(list(columns.values()), axis=1)
