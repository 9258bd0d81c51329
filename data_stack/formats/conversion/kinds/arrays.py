"""Files that hold an array for each column; these are collected in memory, then written at once."""

from __future__ import annotations

import contextlib
import io
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column, media_types
from data_stack.codecs.fitting import as_dtype
from data_stack.exception import ConfigError
from data_stack.formats.columns import ColumnsDatasetIterator
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Destination, register_format
from data_stack.formats.conversion.source import Source, infer_column, plain_type, size_of
from data_stack.formats.numpy_arrays import NpzDatasetIterator, npz_keys, write_npz
from data_stack.io.location import Location
from data_stack.util.request_limit import check_request

_INTEGERS = {"i64": np.dtype(np.int64), "u64": np.dtype(np.uint64), "int": np.dtype(np.int64)}

_Array = npt.NDArray[Any]


class OneFileFormat(ConvertibleFormat):
    """A format of one file that holds an array for each column."""

    keeps_files = False
    #: The types of columns that it holds, in addition to images, sound and videos.
    types: ClassVar[Collection[str]] = ("array", "npy", "utf8", *_INTEGERS)

    def is_folder(self, location: Location) -> bool:
        return False

    def check(self, source: Source, destination: Destination) -> None:
        super().check(source, destination)
        for name, column in source.schema.items():
            if plain_type(column.type) not in media_types().union(self.types):
                raise ConfigError(f"column {name!r} is of type {column.type!r}, which {self.name} cannot hold; leave it out")

    def write(self, source: Source, destination: Destination, batches: Batches) -> None:
        parts: dict[str, list[_Array]] = {name: [] for name in source.schema}
        n_bytes = 0
        for batch in batches:
            n_bytes += sum(size_of(column) for column in batch.values())
            check_request(n_bytes, f"the samples of {source.name!r}, which {self.name} writes from memory,")
            for name, values in batch.items():
                parts[name].append(values)
        columns = {name: self._join(name, parts.pop(name), column) for name, column in source.schema.items()}
        with destination.place.folder.create(destination.place.name) as file:
            self.save(file, columns)

    @abstractmethod
    def save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        """Write all columns into a file.

        Raises:
            ConfigError: the format has no such dtype.
        """

    def _join(self, name: str, parts: list[_Array], column: Column) -> _Array:
        """All values of a column, shape ``(n_samples, ...)``; text has dtype object."""
        kind = plain_type(column.type)
        dtype = column.dtype or _INTEGERS.get(kind)
        if not parts:
            parts = [np.empty((0, *(size or 0 for size in column.shape or ())), dtype)]
        try:
            values = np.concatenate(parts)
            if kind == "utf8":
                return values.astype(object)
            if values.dtype == object:
                raise TypeError("its values differ in shape, or no dtype holds all of them")
            return values if dtype is None else as_dtype(values, dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.name} cannot hold column {name!r}: {error}. Change it, or leave it out") from error


def _open(location: Location, iterator_class: Any, keys_of: Callable[[Any], list[Any]]) -> Source:
    """The arrays of a file, whose keys ``keys_of`` lists, as columns.

    Raises:
        ConfigError: it contains no arrays.
    """
    with contextlib.ExitStack() as stack:
        resource = stack.enter_context(location.open())
        keys = {(key if isinstance(key, str) else f"column_{key}"): key for key in keys_of(resource)}
        if not keys:
            raise ConfigError(f"{location.full_name} contains no arrays")
        iterator: ColumnsDatasetIterator = iterator_class(resource, keys)
        schema = {name: _column_of_rows(iterator.read_column(name, [0] if len(iterator) else [])) for name in keys}
        return Source(location.full_name, iterator, schema, {name: name for name in keys}, None, stack.pop_all())


def _column_of_rows(rows: _Array) -> Column:
    dtype, shape = rows.dtype, rows.shape[1:]
    if dtype.kind == "O":
        return infer_column(rows.tolist(), "") if len(rows) else Column("utf8")
    if dtype.kind in "US" and not shape:
        return Column("utf8" if dtype.kind == "U" else "bytes")
    if not shape and dtype.kind in "iu":
        return Column("u64" if dtype == np.uint64 else "i64", dtype)
    return Column("npy" if dtype.names is not None else "array", dtype, shape)


@register_format
class HDF5Format(OneFileFormat):
    """An HDF5 file with a contiguous dataset for each column."""

    name = "hdf5"
    suffixes = dict.fromkeys((".h5", ".hdf5", ".hdf"), "application/x-hdf5")

    def open(self, location: Location) -> Source:
        from data_stack.formats.hdf5 import HDF5DatasetIterator, dataset_keys

        return _open(location, HDF5DatasetIterator, dataset_keys)

    def save(self, file: Any, columns: Mapping[str, Any]) -> None:
        from data_stack.formats.hdf5 import write_hdf5

        write_hdf5(file, columns)


@register_format
class NpzFormat(OneFileFormat):
    """An array for each column; text as strings as long as the longest one."""

    name = "npz"
    suffixes = {".npz": "application/octet-stream"}

    def open(self, location: Location) -> Source:
        return _open(location, NpzDatasetIterator, npz_keys)

    def save(self, file: Any, columns: Mapping[str, Any]) -> None:
        arrays = {name: np.array(each.tolist(), np.str_) if each.dtype == object else each for name, each in columns.items()}
        for name, values in columns.items():
            if values.dtype == object and arrays[name].tolist() != values.tolist():
                raise ConfigError(f"column {name!r} has text that ends with a NUL, which NumPy's strings lose")
        write_npz(file, arrays)


@register_format
class TorchFormat(OneFileFormat):
    """A dict of tensors."""

    name = "torch"
    suffixes = dict.fromkeys((".pt", ".pth"), "application/octet-stream")
    types = ("array", "npy", *_INTEGERS)

    def open(self, location: Location) -> Source:
        from data_stack.formats.torch_tensors import TensorsDatasetIterator, load_tensors, tensors_of

        def keys_of(resource: Any) -> list[str | int]:
            return list(tensors_of(load_tensors(resource, map_location="meta"), location.full_name))

        return _open(location, TensorsDatasetIterator, keys_of)

    def save(self, file: Any, columns: Mapping[str, Any]) -> None:
        from data_stack.formats.torch_tensors import save_tensors, tensor_of

        tensors = {}
        for name, values in columns.items():
            try:
                tensors[name] = tensor_of(values.astype(values.dtype.newbyteorder("=")), values.dtype.name)
            except TypeError as error:
                raise ConfigError(f"column {name!r} is of dtype {values.dtype}, which torch does not have") from error
        memory = io.BytesIO()  # torch aborts the process if writing to a Python file fails
        save_tensors(memory, tensors)
        file.write(memory.getbuffer())
