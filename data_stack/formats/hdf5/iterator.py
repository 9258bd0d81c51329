"""Samples from the datasets of an HDF5 file."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.hdf5.apart import parse_apart
from data_stack.formats.hdf5.datasets import check_dataset, dataset_at
from data_stack.formats.hdf5.file import HDF5File
from data_stack.formats.hdf5.rows import open_rows
from data_stack.io.parsing import MAX_EXPANSION
from data_stack.io.positional import PositionalFile
from data_stack.util.request_limit import Request, decoding_for

_DEFAULT_ENCODING = "utf-8"


class HDF5DatasetIterator(ColumnsDatasetIterator):
    """Samples from datasets of one HDF5 resource; only the requested rows are read.

    Args:
        resource: the HDF5 file: a path, a resource of any store, which is read by range, or an open
            binary file.
        keys: paths of datasets, ``"train/samples"``, in a sequence for tuple samples or a mapping
            ``{field: path}`` for dict samples. A path may occur several times (target and tag).
        max_expansion: maximum number of bytes that a dataset of more than 64 MiB may have per
            stored byte (per byte of the file, if it is chunked in a remote store); None for no
            limit.
        encoding: encoding of string datasets; None for bytes.

    Values are numpy arrays of shape ``shape[1:]``, Python scalars of 1-dimensional datasets, and
    ``str`` of string datasets. Threads may share an iterator; forked and spawned workers open the
    file themselves.

    Soft links, links to other files, data in other files, virtual datasets and references are
    refused, at every component of a path.

    Raises:
        DatasetFileCorruptError: at the first access: the file is not HDF5 or damaged, or a dataset
            is missing or refused, or holds strings of another encoding.
        ConfigError: Python has no such encoding.
        RequestLimitError: at the first access: a sample of compressed datasets takes more memory
            than a request may; later: a column of a batch does.
    """

    #: libhdf5 keeps a position in each open file, which processes must not share.
    _opens_in_each_process = True

    #: The HDF5 file.
    _resource: PositionalFile

    #: The maximum number of bytes per stored byte; None for no limit.
    _max_expansion: float | None

    #: The encoding of string datasets, as Python names it; None for bytes.
    _encoding: str | None

    def __init__(
        self,
        resource: Any,
        keys: Sequence[str] | Mapping[str, str],
        *,
        max_expansion: float | None = MAX_EXPANSION,
        encoding: str | None = _DEFAULT_ENCODING,
    ) -> None:
        super().__init__(keys)
        self._resource = PositionalFile(resource)
        self._max_expansion = max_expansion
        self._encoding = None if encoding is None else _normalize_encoding(encoding)

    def _arguments(self) -> dict[str, Any]:
        arguments = super()._arguments()
        if self._encoding != _DEFAULT_ENCODING:
            arguments["encoding"] = self._encoding
        return arguments

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        keys = [str(key) for key in self._sources]
        parse_apart(self._resource, keys, self._max_expansion, self._encoding)
        file = HDF5File(self._resource)

        def open_column(key: str) -> ColumnReader:
            with file.reading():
                dataset = dataset_at(file, key)
                check_dataset(dataset, file, self._max_expansion)
                return open_rows(file, dataset, self._encoding)

        # A sample has a row of each dataset, whose sizes add up.
        with decoding_for(Request()):
            return self._open_per_source(open_column)


def _normalize_encoding(encoding: str) -> str:
    """Return Python's name of an encoding: ``"utf-8"`` for ``"UTF8"``.

    Raises:
        ConfigError: Python has no such encoding.
    """
    try:
        return codecs.lookup(encoding).name
    except (LookupError, TypeError) as error:
        raise ConfigError(
            f"Python has no encoding {encoding!r:.60}; pass one such as encoding='latin-1', "
            "or None for bytes"
        ) from error
