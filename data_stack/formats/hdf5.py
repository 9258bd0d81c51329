"""Reads HDF5 files by row from any store, without following links."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import io
import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.stored_rows import StoredRowsReader
from data_stack.io.account import LeftOut, PlaceAccount
from data_stack.io.parsing import MAX_EXPANSION, check_apart, check_expansion, name_of, reading
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource
from data_stack.util.request_limit import (
    Request,
    check_request,
    current_request,
    decoding_for,
    limit_bytes,
)
from data_stack.values.stacked_values import python_values
from data_stack.values.stacking import take_runs

#: HDF5 reads a whole chunk for one row of it.
_MAX_CHUNK_BYTES = 1 << 30
_MAX_KEYS = 10_000
#: Datasets of plain numbers up to this size are checked as a whole, of larger ones some rows.
_MAX_BYTES_AT_ONCE = 64 << 20
_N_ROWS_SAMPLED = 32
#: Filters with simple, well-tested code, by their numbers in the format.
_SIMPLE_FILTERS = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
}
_SLOWEST_BYTES_PER_SECOND = 20 << 20
#: The attribute of a group in which pandas.HDFStore keeps a DataFrame or Series.
_PANDAS_TYPE = "pandas_type"
#: The rules that leave something out.
_FRAME = "a DataFrame of pandas, which pandas.read_hdf(path, key) reads"
_LINK = "a link, which is not followed; name the path that it leads to"


class HDF5DatasetIterator(ColumnsDatasetIterator):
    """Samples from datasets of one HDF5 resource; only the requested rows are read.

    Args:
        resource: the HDF5 file: a path, a resource of any store, which is read by range, or an open binary file.
        keys: paths of datasets, ``"train/samples"``, in a sequence for tuple samples or a mapping ``{field: path}`` for dict
            samples. A path may occur several times (target and tag).
        max_expansion: maximum number of bytes that a dataset of more than 64 MiB may have per stored byte (per byte of the file,
            if it is chunked in a remote store); None for no limit.
        encoding: encoding of string datasets; None for bytes.

    Values are numpy arrays of shape ``shape[1:]``, Python scalars of 1-dimensional datasets, and ``str`` of string datasets.
    Threads may share an iterator; forked and spawned workers open the file themselves.

    Soft links, links to other files, data in other files, virtual datasets and references are refused, at every component of a
    path.

    Raises:
        DatasetFileCorruptError: at the first access: the file is not HDF5 or damaged, or a dataset is missing or refused, or
            holds strings of another encoding.
        ConfigError: Python has no such encoding.
        RequestLimitError: at the first access: a sample of compressed datasets takes more memory than a request may; later: a
            column of a batch does.
    """

    _opens_in_each_process = True

    def __init__(
        self,
        resource: Any,
        keys: Sequence[str] | Mapping[str, str],
        *,
        max_expansion: float | None = MAX_EXPANSION,
        encoding: str | None = "utf-8",
    ) -> None:
        super().__init__(keys)
        self._resource, self._max_expansion = PositionalFile(resource), max_expansion
        self._encoding = _check_encoding(encoding)

    def _arguments(self) -> dict[str, Any]:
        if self._encoding == "utf-8":
            return super()._arguments()
        return {**super()._arguments(), "encoding": self._encoding}

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        keys = [str(key) for key in self._sources]
        _parse_apart(self._resource, keys, self._max_expansion, self._encoding)
        file = _File(self._resource)

        def open_column(key: str) -> ColumnReader:
            with file.reading():
                dataset = _dataset_at(file, key)
                _check_dataset(dataset, file, self._max_expansion)
                return _column(file, dataset, self._encoding)

        with decoding_for(Request()):  # a sample has a row of each, whose sizes add up
            return self._open_each(open_column)


def _check_encoding(encoding: str | None) -> str | None:
    try:
        return None if encoding is None else codecs.lookup(encoding).name
    except (LookupError, TypeError) as error:
        raise ConfigError(
            f"Python has no encoding {encoding!r:.60}; pass one such as encoding='latin-1', or None for bytes"
        ) from error


def _parse_apart(
    file: PositionalFile,
    keys: Sequence[str] | None,
    max_expansion: float | None,
    encoding: str | None = None,
) -> None:
    """Parse the file in another process first if no digest covers it, as libhdf5 may crash or hang."""
    seconds = 10 + min(file.size, _MAX_CHUNK_BYTES) / _SLOWEST_BYTES_PER_SECOND
    check_apart(file, f"{__name__}:_look_through", [keys, max_expansion, encoding], seconds=seconds)


def _look_through(
    resource: Any, keys: Sequence[str] | None, max_expansion: float | None, encoding: str | None
) -> None:
    """Parse everything that reading parses: the positions of chunks, and all values; of many plain numbers some rows."""
    if keys is None:
        dataset_keys(resource)
        return
    file = _File(resource)
    for key in keys:
        with file.reading():
            dataset = _dataset_at(file, key)
            _check_dataset(dataset, file, max_expansion)
            column = _column(file, dataset, encoding)
            if not isinstance(column, _DatasetColumn) or not len(column):
                continue
            if dataset.chunks is not None:
                dataset.id.chunk_iter(lambda chunk: None)
            filters = dataset.id.get_create_plist()
            is_plain = (
                h5py.check_string_dtype(dataset.dtype) is None and dataset.dtype.kind in "biufc"
            )
            kinds = {filters.get_filter(number)[0] for number in range(filters.get_nfilters())}
        if (
            is_plain
            and kinds <= _SIMPLE_FILTERS
            and dataset.size * dataset.dtype.itemsize > _MAX_BYTES_AT_ONCE
        ):
            rows = np.unique(np.linspace(0, len(column) - 1, _N_ROWS_SAMPLED).astype(np.int64))
        else:
            rows = np.arange(len(column))
        row_bytes = max(1, dataset.size * dataset.dtype.itemsize // len(column))
        n_at_once = max(1, min(_MAX_BYTES_AT_ONCE, limit_bytes() // 2) // row_bytes)
        n_at_once = min(n_at_once, column.rows_at_once or n_at_once)
        for start in range(0, len(rows), n_at_once):
            column.read(rows[start : start + n_at_once])


#: On exit libhdf5 closes open files by calls into Python, which is finalized by then: the process would die by SIGSEGV.
_open_roots: weakref.WeakSet[h5py.File] = weakref.WeakSet()


@atexit.register
def _close_roots() -> None:
    for root in list(_open_roots):
        with contextlib.suppress(Exception):  # for example of a store that is gone
            root.close()


class _File:
    """An h5py file over a resource; it raises the errors of the resource itself."""

    def __init__(self, resource: Any) -> None:
        self._bytes = _Recorder(resource)
        self.name, self.resource = self._bytes.name, self._bytes.resource
        with self.reading():
            self.root = h5py.File(self._bytes, "r")
        _open_roots.add(self.root)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Map HDF5's errors to ours; errors of the store are raised unchanged."""
        try:
            with reading(self.name, "HDF5 file", self._bytes):
                yield
        finally:
            failure, self._bytes.failure = self._bytes.failure, None
            if failure is not None:
                raise failure


def _column(file: _File, dataset: Any, encoding: str | None) -> ColumnReader:
    """The rows of a dataset: by position if they are contiguous plain numbers, otherwise by HDF5."""
    stored = dataset.id
    if (
        stored.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
        and stored.get_storage_size() == dataset.size * dataset.dtype.itemsize > 0
        and stored.get_space_status()
        == h5py.h5d.SPACE_STATUS_ALLOCATED  # the offset of unwritten data is arbitrary
        and dataset.dtype.kind in "iuf"
        and stored.get_type() == h5py.h5t.py_create(dataset.dtype)
    ):
        return StoredRowsReader(
            PositionalFile(file.resource),
            stored.get_offset(),
            dataset.shape,
            dataset.dtype,
            mapped=True,
        )
    return _DatasetColumn(file, dataset, encoding)


class _Recorder(PositionalFile):
    """Stores an error instead of raising it into HDF5, and returns zeros.

    After an exception in a callback, HDF5 keeps a half-open file and closes it on exit by calls into Python, which is finalized
    by then: a segmentation fault (seen with h5py 3.16, HDF5 2.0).
    """

    failure: Exception | None = None

    def readinto(self, buffer: Any, /) -> int:
        try:
            return super().readinto(buffer)
        except Exception as error:  # noqa: BLE001  # reading() raises it
            self.failure = self.failure or error
            view = memoryview(buffer).cast("B")
            view[:] = bytes(len(view))
            return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        try:
            return super().seek(offset, whence)
        except Exception as error:  # noqa: BLE001  # as above
            self.failure = self.failure or error
            return 0


class _DatasetColumn(ColumnReader):
    """The rows of one dataset, read by HDF5."""

    def __init__(self, file: _File, dataset: Any, encoding: str | None) -> None:
        self._file = file
        is_text = encoding is not None and h5py.check_string_dtype(dataset.dtype) is not None
        self._dataset = dataset.asstr(encoding) if is_text else dataset
        self._is_text = is_text
        self._length, self._name, self._dtype = len(dataset), dataset.name, dataset.dtype
        self._row_bytes = dataset.dtype.itemsize * math.prod(dataset.shape[1:])
        self._is_compressed = dataset.chunks is not None
        current_request().reserve(
            self._row_bytes * self._is_compressed,
            f"a sample with dataset {self._name!r} of {file.name!r}",
        )
        #: Each value of variable length may be as long as the file, and all may be the same bytes.
        self.rows_at_once = (
            max(1, limit_bytes() // max(1, file.resource.size)) if dataset.dtype.hasobject else None
        )

    def __len__(self) -> int:
        return self._length

    def value(self, index: int) -> Any:
        with self._file.reading(), self._decoding():
            value = self._dataset[index]
        return python_values(value) if isinstance(value, np.generic) else value

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        n_rows, n_at_once = self._length if indices is None else len(indices), self.rows_at_once
        what = f"rows of dataset {self._name!r} of {self._file.name!r}"
        if self._is_compressed:
            check_request(n_rows * self._row_bytes, what)
        if n_at_once is None:
            return self._read(indices)
        n_bytes, parts = 0, []
        wanted = np.arange(n_rows) if indices is None else indices
        for start in range(0, max(1, n_rows), n_at_once):
            parts.append(self._read(wanted[start : start + n_at_once]))
            n_bytes += sum(getattr(value, "nbytes", 0) or len(value) for value in parts[-1].flat)
            check_request(n_bytes, what)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any] | None:
        if self._dtype.hasobject or self._is_text:
            return None
        found: npt.NDArray[Any] = np.empty(
            (len(starts), length, *self._dataset.shape[1:]), self._dtype
        )
        check_request(
            found.nbytes if self._is_compressed else 0,
            f"rows of dataset {self._name!r} of {self._file.name!r}",
        )
        order = np.argsort(starts, kind="stable")
        # runs that overlap or follow each other are read together, a chunk of them but once
        breaks = np.flatnonzero(np.diff(starts[order]) > length) + 1
        with self._file.reading(), self._decoding():
            for together in np.split(order, breaks) if len(order) else ():
                first, last = int(starts[together[0]]), int(starts[together[-1]])
                rows = np.asarray(self._dataset[first : last + length])
                found[together] = take_runs(rows, starts[together] - first, length)
        return found

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        """Say which strings are of another encoding: the file is not damaged."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise DatasetFileCorruptError(
                f"{self._file.name!r}: dataset {self._name!r} holds strings that are not {error.encoding}, such as "
                f"{error.object[:20]!r}; pass their encoding, such as encoding='latin-1', encoding=None for bytes, or choose "
                f"other datasets: columns=[…]"
            ) from error

    def _read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        with self._file.reading(), self._decoding():
            if indices is None:
                return np.asarray(self._dataset[:])
            if not len(indices):
                return np.asarray(self._dataset[:0])
            # HDF5 needs ascending positions without repeats.
            rows, places = np.unique(indices, return_inverse=True)
            # Reading a slice is much faster than reading a list.
            is_run = rows[-1] - rows[0] == len(rows) - 1
            return np.asarray(
                (self._dataset[rows[0] : rows[-1] + 1] if is_run else self._dataset[rows])[places]
            )


def dataset_keys(resource: Any) -> list[str]:
    """Paths of the datasets of an HDF5 file (a path, resource or open binary file) that can be read, sorted.

    Links are left out, and so are the axes and blocks of a DataFrame that pandas stored; :func:`datasets_to_read` names them.

    Raises:
        DatasetFileCorruptError: no HDF5 file, damaged, more than 10,000 objects, or DataFrames of pandas and nothing else.
    """
    return _look_for_datasets(resource)[0]


def datasets_to_read(resource: Any) -> list[str]:
    """As :func:`dataset_keys`; a LeftOutWarning names what is left out."""
    paths, left_out = _look_for_datasets(resource)
    PlaceAccount(name_of(resource), len(paths), tuple(left_out)).warn()
    return paths


def _look_for_datasets(resource: Any) -> tuple[list[str], list[LeftOut]]:
    """The paths of the datasets of a file, sorted, and what is left out."""
    if isinstance(resource, (PositionalFile, StreamedResource)):
        _parse_apart(PositionalFile(resource), None, None)
    file = _File(resource)
    paths: list[str] = []
    frames: list[str] = []
    left_out: list[LeftOut] = []
    n_objects = 0

    def visit(path: str, item: Any) -> None:
        nonlocal n_objects
        n_objects += 1
        if n_objects > _MAX_KEYS:
            raise DatasetFileCorruptError(f"{file.name!r} holds more than {_MAX_KEYS} objects")
        if isinstance(item, h5py.Dataset):
            paths.append(path)
        elif isinstance(item, h5py.Group):
            if _PANDAS_TYPE in item.attrs:
                frames.append(path)
            left_out.extend(_links_in(item, path))

    with file.reading():
        left_out += _links_in(file.root, "")
        file.root.visititems(visit)  # visits each object once, and only hard links
    if frames:
        below = tuple(f"{frame}/" for frame in frames)
        paths = [path for path in paths if not path.startswith(below)]
        if not paths:
            raise DatasetFileCorruptError(
                f"{file.name!r} holds DataFrames of pandas, such as {frames[0]!r:.100}, whose axes and blocks are no "
                f"columns. Pass data_stack.from_pandas(pandas.read_hdf(path, {frames[0]!r:.100}))"
            )
        left_out += [LeftOut(frame, _FRAME) for frame in frames]
    return sorted(paths), left_out


def _links_in(group: Any, path: str) -> list[LeftOut]:
    """The links in a group that are not followed."""
    return [
        LeftOut(f"{path}/{name}".lstrip("/"), _LINK)
        for name in group
        if not isinstance(group.get(name, getlink=True), h5py.HardLink)
    ]


def write_hdf5(file: Any, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as an HDF5 file, plain and contiguous, so that rows are read by position.

    Args:
        file: a binary file open for writing; it is written from memory, as HDF5 aborts the process if a Python file fails.
        columns: arrays by the path of their dataset; those of dtype object hold text of any length.

    Raises:
        ConfigError: the name or dtype of a column is invalid in HDF5, or ``columns`` is no mapping.
    """
    if not isinstance(columns, Mapping):
        raise ConfigError(
            f"expected arrays by name, got {columns!r:.200}; convert(iterator, path) writes those of an iterator"
        )
    memory = io.BytesIO()
    with h5py.File(memory, "w") as root:
        for name, values in columns.items():
            if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
                raise ConfigError(
                    f"{name!r} cannot be the path of an HDF5 dataset; rename the column"
                )
            if values.dtype.kind not in "biufcO":
                raise ConfigError(
                    f"column {name!r} of dtype {values.dtype} cannot be stored in HDF5; leave it out"
                )
            dtype = h5py.string_dtype() if values.dtype.kind == "O" else values.dtype
            try:
                root.create_dataset(name, data=values, dtype=dtype)
            except (
                ValueError,
                TypeError,
                OSError,
            ) as error:  # for example a path through another dataset
                raise ConfigError(f"HDF5 cannot store a dataset {name!r}: {error}") from error
    file.write(memory.getbuffer())


def _dataset_at(file: _File, key: str) -> Any:
    """Resolve ``key`` one component at a time, without following links."""
    item: Any = file.root
    walked: list[str] = []
    for component in [each for each in key.split("/") if each not in ("", ".")]:
        where = "/".join([*walked, component])
        # `component in item` would follow the link and open another file.
        if not isinstance(item, h5py.Group) or not item.id.links.exists(component.encode()):
            known = (
                ", ".join(map(repr, list(item)[:20]))
                if isinstance(item, h5py.Group)
                else "no group"
            )
            raise DatasetFileCorruptError(
                f"{file.name!r} has no {where!r}; {'/'.join(walked) or '/'!r} holds {known}"
            )
        link = item.get(component, getlink=True)
        if not isinstance(link, h5py.HardLink):
            to = (
                f"{link.path!r:.200}; name that path"
                if isinstance(link, h5py.SoftLink)
                else "another file"
            )
            raise DatasetFileCorruptError(
                f"{file.name!r}: {where!r} links to {to}. Links are refused"
            )
        item = item[component]
        walked.append(component)
    if not isinstance(item, h5py.Dataset):
        raise DatasetFileCorruptError(
            f"{file.name!r}: {key!r} is a {type(item).__name__.lower()}, not a dataset"
        )
    return item


def _check_dataset(dataset: Any, file: _File, max_expansion: float | None) -> None:
    name, layout = file.name, dataset.id.get_create_plist()
    refused = {
        "is a virtual dataset, with values in other files": layout.get_layout() == h5py.h5d.VIRTUAL,
        "keeps its values in another file": layout.get_external_count() > 0,
        "holds a single value, not a column": not dataset.shape,
        "holds references, not values": h5py.check_ref_dtype(dataset.dtype) is not None,
    }
    for problem in [text for text, is_so in refused.items() if is_so]:
        raise DatasetFileCorruptError(
            f"{name!r}: {dataset.name!r} {problem}; choose other datasets: columns=[…]"
        )
    # HDF5 visits each chunk to compute the stored size: 36 MiB of requests for a file of 256 MiB in a remote store.
    is_scattered = dataset.chunks is not None and file.resource.prefetches
    stored_bytes = file.resource.size if is_scattered else dataset.id.get_storage_size()
    check_expansion(
        f"{name}:{dataset.name}", dataset.size * dataset.dtype.itemsize, stored_bytes, max_expansion
    )
    if math.prod(dataset.chunks or ()) * dataset.dtype.itemsize > _MAX_CHUNK_BYTES:
        raise DatasetFileCorruptError(
            f"{name!r}: {dataset.name!r} has chunks of more than {_MAX_CHUNK_BYTES} bytes"
        )
