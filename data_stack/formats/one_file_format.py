"""Formats of one file that holds an array for each column."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.registry import media_types
from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import plain_type, size_of_column
from data_stack.formats.format import Batch, WritableFormat, WriteBatch
from data_stack.io.location import Location
from data_stack.util.request_limit import check_request

_Array = npt.NDArray[Any]

#: The dtypes of columns of integers, by type, where the schema does not name a dtype.
_INTEGER_DTYPES: Final = {
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
    "int": np.dtype(np.int64),
}


class OneFileFormat(WritableFormat):
    """A format of one file that holds an array for each column.

    All columns are collected in memory, and written at once when they are complete.
    """

    keeps_files = False

    #: The types of columns that the format holds, besides images, sound and videos.
    types: ClassVar[frozenset[str]] = frozenset({"array", "npy", "utf8", "i64", "u64", "int"})

    @abstractmethod
    def save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        """Write all columns into a binary file.

        Args:
            file: the file, open for writing.
            columns: arrays of shape ``(n_samples, ...)`` by name; text has dtype object.

        Raises:
            ConfigError: the format has no such dtype.
        """

    def writes_folder(self, location: Location) -> bool:
        return False

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        held_types = media_types().union(self.types)
        for name, column in source.schema.items():
            if plain_type(column.type) not in held_types:
                raise ConfigError(
                    f"column {name!r} is of type {column.type!r}, which {self.name} cannot hold; "
                    "leave it out"
                )

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        batches: dict[str, list[_Array]] = {column_name: [] for column_name in source.schema}
        n_bytes = 0

        def collect(batch: Batch) -> None:
            nonlocal n_bytes
            n_bytes += sum(size_of_column(values) for values in batch.values())
            what = f"the samples of {source.name!r}, which {self.name} writes from memory,"
            check_request(n_bytes, what)
            for column_name, values in batch.items():
                batches[column_name].append(values)

        yield collect

        columns = {}
        for column_name, column in source.schema.items():
            # Popped, so that the batches of a column are freed when they are joined.
            columns[column_name] = self._join(column_name, batches.pop(column_name), column)
        with location.folder.create(location.name) as file:
            self.save(file, columns)

    def _join(self, name: str, batches: list[_Array], column: ColumnType) -> _Array:
        """Return all values of a column, shape ``(n_samples, ...)``; text has dtype object."""
        type_name = plain_type(column.type)
        dtype = column.dtype or _INTEGER_DTYPES.get(type_name)
        if not batches:
            shape = [size or 0 for size in column.shape or ()]
            batches = [np.empty((0, *shape), dtype)]
        try:
            values = np.concatenate(batches)
            if type_name == "utf8":
                return values.astype(object)
            if values.dtype == object:
                raise TypeError("its values differ in shape, or no dtype holds all of them")
            if dtype is None:
                return values
            return as_dtype(values, dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.name} cannot hold column {name!r}: {error}. Change it, or leave it out"
            ) from error


def as_fixed_text(name: str, values: _Array) -> _Array:
    """Return text as an array of NumPy's strings, all as long as the longest one.

    Args:
        name: the name of the column.
        values: the column. Text has dtype object and shape ``(n,)``; other columns are returned as
            they are.

    Raises:
        ConfigError: a text ends with a NUL, which NumPy's strings lose.
    """
    if values.dtype != object:
        return values
    texts = values.tolist()
    fixed = np.array(texts, np.str_)
    if fixed.tolist() != texts:
        raise ConfigError(
            f"column {name!r} has text that ends with a NUL, which NumPy's strings lose"
        )
    return fixed
