"""Files of columns whose values have one dtype and shape; they are collected in memory and written at once."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.registry import media_types
from data_stack.exception import ConfigError
from data_stack.formats.columns import ColumnsDatasetIterator
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Destination
from data_stack.formats.conversion.source import Source, infer_column, plain_type, size_of
from data_stack.io.location import Location
from data_stack.util.request_limit import check_request

INTEGERS = {"i64": np.dtype(np.int64), "u64": np.dtype(np.uint64), "int": np.dtype(np.int64)}

_Array = npt.NDArray[Any]


class OneFileFormat(ConvertibleFormat):
    """A format of one file that holds an array for each column."""

    keeps_files = False
    #: The types of columns that it holds, in addition to images, sound and videos.
    types: ClassVar[Collection[str]] = ("array", "npy", "utf8", *INTEGERS)

    def is_folder(self, location: Location) -> bool:
        return False

    def check(self, source: Source, destination: Destination) -> None:
        super().check(source, destination)
        for name, column in source.schema.items():
            if plain_type(column.type) not in media_types().union(self.types):
                raise ConfigError(
                    f"column {name!r} is of type {column.type!r}, which {self.name} cannot hold; leave it out (--columns …), or "
                    f"choose records or webdataset"
                )

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
        dtype = column.dtype or INTEGERS.get(kind)
        if not parts:
            parts = [np.empty((0, *(size or 0 for size in column.shape or ())), dtype)]
        shapes = [np.shape(value) for part in parts for value in part]
        odd = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is not None:
            raise ConfigError(
                f"column {name!r}: {self.name} needs values of one shape, but the first has the shape {shapes[0]} and sample "
                f"{odd} has {shapes[odd]}. Reshape them with .map(), leave the column out (--columns …), or choose records or "
                f"webdataset"
            )
        values = np.concatenate(parts)
        if kind == "utf8":
            return values.astype(object)
        try:
            if values.dtype == object:
                raise TypeError("no dtype holds all of its values")
            return values if dtype is None else as_dtype(values, dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.name} cannot hold column {name!r}: {error}") from error


def open_columns(
    location: Location, iterator: ColumnsDatasetIterator, names: Sequence[str], stack: contextlib.ExitStack
) -> Source:
    """The columns of a file whose rows all have one dtype and shape."""
    schema = {name: _column_of_rows(iterator.read_column(name, [0] if len(iterator) else [])) for name in names}
    return Source(location.full_name, iterator, schema, {name: name for name in names}, None, stack.pop_all())


def open_keyed(location: Location, iterator: Any, keys_of: Callable[[Any], list[str]]) -> Source:
    """The arrays of a file, whose keys ``keys_of`` lists, as columns.

    Raises:
        ConfigError: it contains no arrays.
    """
    with contextlib.ExitStack() as stack:
        resource = stack.enter_context(location.open())
        keys = keys_of(resource)
        if not keys:
            raise ConfigError(f"{location.full_name} contains no arrays")
        return open_columns(location, iterator(resource, {key: key for key in keys}), keys, stack)


def _column_of_rows(rows: _Array) -> Column:
    dtype, shape = rows.dtype, rows.shape[1:]
    if dtype.kind == "O":
        return infer_column(rows.tolist(), "") if len(rows) else Column("utf8")
    if dtype.kind in "US" and not shape:
        return Column("utf8" if dtype.kind == "U" else "bytes")
    if not shape and dtype.kind in "iu":
        return Column("u64" if dtype == np.uint64 else "i64", dtype)
    return Column("npy" if dtype.names is not None else "array", dtype, shape)
