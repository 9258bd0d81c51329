"""HDF5 files, read by row from wherever they are stored, and never from outside of themselves."""

from __future__ import annotations

import contextlib
import math
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.columns import Column, ColumnsDatasetIterator
from data_stack.formats.positional import MAX_EXPANSION, PositionalFile, check_expansion, reading
from data_stack.io.resources import StreamedResource

__all__ = ["HDF5DatasetIterator", "dataset_keys"]

#: HDF5 reads a whole chunk for one row of it.
_MAX_CHUNK_BYTES = 1 << 30
_MAX_SOFT_LINKS = 16
_MAX_KEYS = 10_000


class HDF5DatasetIterator(ColumnsDatasetIterator):
    """Samples from datasets inside of one HDF5 resource; only the rows that are asked for are read.

    Args:
        resource: the HDF5 file. It may lie in any store: it is read by range.
        keys: paths of datasets, ``"train/samples"``, in a sequence for tuple samples or a mapping ``{field: path}`` for dict
            samples. One path may stand in several places (target and tag).
        max_expansion: most bytes that a dataset may claim for each byte stored of it, where it claims more than 64 MiB; None
            for no limit.

    Values are numpy arrays of shape ``shape[1:]``, Python scalars of 1-dimensional datasets, and ``str`` of string datasets
    (UTF-8). Threads may share an iterator; forked and spawned workers open the file themselves.

    Links to other files, data kept in other files, virtual datasets and references are refused, at every component of a path.

    Raises:
        DatasetFileCorruptError: at the first access: no HDF5 file, damaged, no such dataset, or one that is refused.
    """

    _opens_in_each_process = True

    def __init__(
        self, resource: StreamedResource, keys: Sequence[str] | Mapping[str, str], *, max_expansion: float | None = MAX_EXPANSION
    ) -> None:
        super().__init__(keys)
        self._resource, self._max_expansion = PositionalFile(resource), max_expansion

    def _open_columns(self) -> list[Column]:
        file = _File(self._resource)

        def open_column(key: str) -> Column:
            with file.reading():
                dataset = _dataset_at(file, key)
                _check_dataset(dataset, file.name, self._max_expansion)
                return _DatasetColumn(file, dataset)

        return self._open_each(open_column)


class _File:
    """An h5py file over a resource, that tells what really went wrong below it."""

    def __init__(self, resource: Any) -> None:
        self._bytes = _Recorder(resource)
        self.name = self._bytes.name
        with self.reading():
            self.root = h5py.File(self._bytes, "r")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Map HDF5's errors to ours; a failure of the store is raised as itself."""
        try:
            with reading(self.name, "HDF5 file"):
                yield
        finally:
            failure, self._bytes.failure = self._bytes.failure, None
            if failure is not None:
                raise failure


class _Recorder(PositionalFile):
    """Remembers what fails instead of raising it into HDF5, and hands out zeros.

    An exception in its callback leaves HDF5 with a file half open, which it closes when the process exits, through a
    Python that is gone by then: a segmentation fault (seen with h5py 3.16, HDF5 2.0).
    """

    failure: Exception | None = None

    def readinto(self, buffer: Any, /) -> int:
        try:
            return super().readinto(buffer)
        except Exception as error:  # noqa: BLE001  # raised by whoever asked HDF5
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


class _DatasetColumn:
    """The rows of one dataset."""

    def __init__(self, file: _File, dataset: Any) -> None:
        self._file = file
        self._dataset = dataset.asstr() if h5py.check_string_dtype(dataset.dtype) else dataset
        self._length = len(dataset)

    def __len__(self) -> int:
        return self._length

    def value(self, index: int) -> Any:
        with self._file.reading():
            value = self._dataset[index]
        return value.item() if isinstance(value, np.generic) else value

    def read(self, indices: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
        with self._file.reading():
            if indices is None:
                return np.asarray(self._dataset[:])
            if not len(indices):
                return np.asarray(self._dataset[:0])
            # HDF5 wants ascending positions without repeats, and reads a run as a slice far faster than a list.
            rows, places = np.unique(indices, return_inverse=True)
            if rows[-1] - rows[0] == len(rows) - 1:
                values = self._dataset[rows[0] : rows[-1] + 1]
            else:
                values = self._dataset[rows]
            return np.asarray(values[places])


def dataset_keys(resource: Any) -> list[str]:
    """Paths of the datasets of an HDF5 file that can be read, sorted; links to elsewhere are left out.

    Raises:
        DatasetFileCorruptError: no HDF5 file, damaged, or more than 10,000 objects.
    """
    file = _File(resource)
    found: list[str] = []
    # Hard links may form loops: each object is entered once, by its address.
    seen: set[Any] = set()
    waiting: list[tuple[str, Any]] = [("", file.root)]
    with file.reading():
        while waiting:
            path, group = waiting.pop()
            for name in group:
                if group.get(name, getlink=True, getclass=True) is not h5py.HardLink:
                    continue
                item = group[name]
                address = h5py.h5o.get_info(item.id).addr
                if address in seen:
                    continue
                seen.add(address)
                if len(seen) > _MAX_KEYS:
                    raise DatasetFileCorruptError(f"{file.name!r} holds more than {_MAX_KEYS} objects")
                if isinstance(item, h5py.Group):
                    waiting.append((posixpath.join(path, name), item))
                elif isinstance(item, h5py.Dataset):
                    found.append(posixpath.join(path, name))
    return sorted(found)


def _dataset_at(file: _File, key: str) -> Any:
    """Walk to ``key`` one component at a time; what leads out of the file is never followed."""
    item: Any = file.root
    components = _components(key)
    walked: list[str] = []
    n_soft_links = 0
    while components:
        component = components.pop(0)
        where = "/".join([*walked, component])
        # `component in item` would follow the link, and open another file only to see whether it is there.
        if not isinstance(item, h5py.Group) or not item.id.links.exists(component.encode()):
            known = ", ".join(map(repr, list(item)[:20])) if isinstance(item, h5py.Group) else "no group"
            raise DatasetFileCorruptError(f"{file.name!r} has no {where!r}; {'/'.join(walked) or '/'!r} holds {known}")
        link = item.get(component, getlink=True)
        if isinstance(link, h5py.SoftLink):
            n_soft_links += 1
            if n_soft_links > _MAX_SOFT_LINKS:
                raise DatasetFileCorruptError(f"{file.name!r}: {key!r} leads through more than {_MAX_SOFT_LINKS} soft links")
            if link.path.startswith("/"):
                item, walked = file.root, []
            components = _components(link.path) + components
        elif isinstance(link, h5py.HardLink):
            item = item[component]
            walked.append(component)
        else:
            raise DatasetFileCorruptError(f"{file.name!r}: {where!r} links to another file, which is never followed")
    if not isinstance(item, h5py.Dataset):
        raise DatasetFileCorruptError(f"{file.name!r}: {key!r} is a {type(item).__name__.lower()}, not a dataset")
    return item


def _components(path: str) -> list[str]:
    return [component for component in path.split("/") if component not in ("", ".")]


def _check_dataset(dataset: Any, name: str, max_expansion: float | None) -> None:
    layout = dataset.id.get_create_plist()
    if layout.get_layout() == h5py.h5d.VIRTUAL:
        raise DatasetFileCorruptError(f"{name!r}: {dataset.name!r} is a virtual dataset, whose values are in other files")
    if layout.get_external_count():
        raise DatasetFileCorruptError(f"{name!r}: {dataset.name!r} keeps its values in another file")
    if dataset.shape is None or not dataset.shape:
        raise DatasetFileCorruptError(f"{name!r}: {dataset.name!r} holds a single value, not a column")
    if h5py.check_ref_dtype(dataset.dtype) is not None:
        raise DatasetFileCorruptError(f"{name!r}: {dataset.name!r} holds references, not values")
    check_expansion(f"{name}:{dataset.name}", dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size(), max_expansion)
    if dataset.chunks is not None and math.prod(dataset.chunks) * dataset.dtype.itemsize > _MAX_CHUNK_BYTES:
        raise DatasetFileCorruptError(f"{name!r}: {dataset.name!r} has chunks of more than {_MAX_CHUNK_BYTES} bytes")
