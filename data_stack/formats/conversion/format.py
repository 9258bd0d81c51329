"""What a format of stored datasets declares about itself: how it is recognized, opened as columns, written."""

from __future__ import annotations

import contextlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column, media_types
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import DeclaredColumn, access_to
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import as_array, objects
from data_stack.values.stacking import list_columns

Batches = Iterable[dict[str, Any]]
"""The columns of a dataset, batch by batch: arrays of shape ``(n, ...)``."""

_FormatClass = TypeVar("_FormatClass", bound="type[Format]")
#: All formats by name, see :func:`register_format`.
FORMATS: dict[str, Format] = {}


def holds_files(schema: Mapping[str, Column]) -> bool:
    """Whether a column holds images, sound or videos, which are stored as the bytes of files."""
    return any(column.codec_type in media_types() for column in schema.values())


@dataclass(frozen=True)
class Source:
    """A dataset as columns by name, which are read in batches.

    Attributes:
        name: its name in messages.
        values: its samples.
        stored: the same samples with the bytes of files in the columns of images, sound and videos; None without such columns.
        schema: type of each column, as in records; dtype and shape if all samples share them.
        keys: key of each column in a sample; may include columns that are only read on request, which the schema lacks.
        resources: what to close at the end.
    """

    name: str
    values: DatasetIteratorIF
    schema: Mapping[str, Column]
    keys: Mapping[str, ColumnKey]
    stored: DatasetIteratorIF | None = None
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def stored_names(self) -> list[str]:
        """The columns that can be read as the bytes of their files."""
        return [
            name
            for name, each in self.schema.items()
            if self.stored is not None and each.codec_type in media_types()
        ]

    def read(
        self, positions: npt.NDArray[np.intp], names: Iterable[str], stored: Collection[str] = ()
    ) -> dict[str, Any]:
        """Columns of the samples at ``positions``, those in ``stored`` as the bytes of their files."""
        found: dict[str, Any] = dict.fromkeys(names)
        for iterator, chosen in (
            (self.values, found.keys() - set(stored)),
            (self.stored, found.keys() & set(stored)),
        ):
            if chosen and iterator is not None:
                columns = access_to(iterator).columns(
                    [self.keys[name] for name in chosen], positions
                )
                found.update(zip(chosen, columns, strict=True))
        for name, column in found.items():
            # a batch of lists of numbers is an array
            if name in self.schema and plain_type(self.schema[name].type) == "json":
                found[name] = as_python_values(column)
        return found

    @cached_property
    def declared(self) -> dict[str, DeclaredColumn]:
        """What the schema of the samples says of each column."""
        known = access_to(self.values).declare_columns() or {}
        return {name: known.get(str(key), DeclaredColumn()) for name, key in self.keys.items()}

    def select_columns(self, columns: Mapping[str, str] | None) -> Source:
        """Select columns and rename them to the keys of ``columns``.

        Raises:
            ConfigError: a column does not exist.
        """
        if columns is None:
            return self
        schema, keys = {}, {}
        by_position = {str(key): name for name, key in self.keys.items() if isinstance(key, int)}
        for new, old in columns.items():
            old = old if old in self.keys else by_position.get(old, old)
            if old not in self.keys:
                raise ConfigError(
                    f"{self.name} has no column {old!r:.80}{did_you_mean(old, self.keys)}; it has {[*self.keys]}"
                )
            schema[new] = self.schema.get(old, Column("utf8"))  # the key of a WebDataset
            keys[new] = self.keys[old]
        return replace(self, schema=schema, keys=keys)


class Format:
    """A format that :func:`data_stack.load` recognizes by the suffix of a file.

    ::

        @register_format
        class CSVFormat(Format):
            name, suffixes, is_streamed = "csv", {".csv": "text/csv"}, True
    """

    #: Its name, as in ``load(path, format="csv")``.
    name: ClassVar[str]
    #: The suffixes of its files, with the media type of each.
    suffixes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: Files are read from start to end, so they may be compressed.
    is_streamed: ClassVar[bool] = False
    #: Options that :func:`data_stack.load` passes on when it opens a file of the format.
    options: ClassVar[frozenset[str]] = frozenset()


def register_format(format_class: _FormatClass) -> _FormatClass:
    """Register a format by its name; a class decorator."""
    FORMATS[format_class.name] = format_class()
    return format_class


class ReadableFormat(Format, ABC):
    """A format that :func:`~data_stack.formats.convert` reads."""

    @abstractmethod
    def open(self, location: Location) -> Source:
        """Open the dataset at ``location``; the caller closes its resources.

        Raises:
            ConfigError: it has no columns that can be converted.
            DatasetFileCorruptError: it is damaged, or of another format.
        """

    def open_columns(
        self,
        location: Location,
        columns: Sequence[str] | None,
        *,
        optional: Collection[str] = (),
        **options: Any,
    ) -> Source:
        """Open a dataset for the sake of some columns. Others need not be readable, nor as long.

        A format that opens all columns at once, and cannot open some of them, overrides this.

        Args:
            location: as of :meth:`open`.
            columns: the columns that will be read; None for all.
            optional: further columns that will be read if they exist.
            options: those of the format, see ``options``.

        Returns:
            A source with at least these columns.

        Raises:
            As :meth:`open`; also ConfigError if one of ``columns`` does not exist.
        """
        return self.open(location, **options)


class ConvertibleFormat(ReadableFormat):
    """A format that :func:`~data_stack.formats.convert` reads and writes."""

    has_shards: ClassVar[bool] = False
    #: Whether images, sound and videos are written as the bytes of their files.
    keeps_files: ClassVar[bool] = True
    #: Whether only a folder that no other format recognizes can be of this format.
    is_fallback: ClassVar[bool] = False

    def is_folder(self, location: Location) -> bool:
        """Whether a dataset at ``location`` is a folder, not a file."""
        return True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        """Whether a folder that holds ``names`` may be a dataset of this format."""
        return False

    def check(self, source: Source, location: Location, shardlen: int | None) -> None:
        """Check whether the format can hold the columns at ``location``, as far as that is known before anything is written.

        Raises:
            ConfigError: it cannot; the message names the column.
        """
        if shardlen is not None and shardlen < 1:
            raise ConfigError(f"shardlen must be at least 1, got {shardlen}")
        if shardlen is not None and not self.has_shards:
            raise ConfigError(
                f"{self.name} has no shards; leave shardlen out, or choose records, parquet or webdataset"
            )
        for name, column in source.schema.items():
            if column.type == "decimal" and (
                self.name != "parquet" or source.declared[name].dtype != "Decimal"
            ):
                raise ConfigError(
                    f"column {name!r} holds Decimals; Parquet stores those of tables; leave it out: --columns …"
                )
            if column.is_sequence and self.name != "records":
                raise ConfigError(
                    f"column {name!r} holds sequences, which only records store; leave it out: --columns …"
                )

    @abstractmethod
    def write(
        self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches
    ) -> None:
        """Write the dataset.

        Args:
            source: where it is from.
            place: where nothing is yet; a folder is renamed to its final name when it is complete.
            name: that name.
            shardlen: number of samples in a shard; None for the format's default.
            batches: the columns of the source.
        """


def choose_keys(
    name: str,
    keys: Mapping[str, ColumnKey],
    columns: Sequence[str] | None,
    optional: Collection[str] = (),
) -> dict[str, ColumnKey]:
    """Those of the keys of a dataset that :meth:`ConvertibleFormat.open_columns` opens, in their order.

    Args:
        name: the name of the dataset, for messages.
        keys: key of each column.
        columns: names of columns, or positions as text; None for all.
        optional: names of further columns.

    Raises:
        ConfigError: a column does not exist.
    """
    if columns is None:
        return dict(keys)
    by_position = {str(key): column for column, key in keys.items() if isinstance(key, int)}
    wanted = set(optional)
    for column in columns:
        known = column if column in keys else by_position.get(column, column)
        if known not in keys:
            shown = ", ".join(map(repr, keys))
            raise ConfigError(
                f"{name} has no column {column!r:.80}{did_you_mean(column, keys)}; it has {shown:.1000}"
            )
        wanted.add(known)
    return {column: key for column, key in keys.items() if column in wanted}


# ---------------------------------------------------------------------- columns of values


def as_python_values(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column with lists instead of arrays and with numbers of Python, as samples of JSON have them; dtype object."""
    if column.dtype != object:
        return objects(column.tolist())
    values = []
    for value in column:
        is_of_numpy = isinstance(value, (np.ndarray, np.generic))
        values.append(value.tolist() if is_of_numpy else value)
    return objects(values)


def spread(n_samples: int) -> npt.NDArray[np.intp]:
    """Some positions of a dataset of ``n_samples``."""
    return np.unique(np.linspace(0, max(0, n_samples - 1), min(16, n_samples)).astype(np.intp))


def column_of_dtype(dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Column:
    """The column of values of one dtype, and of one shape if it has no None."""
    if not shape and dtype.kind in "US":
        return Column("utf8" if dtype.kind == "U" else "bytes")
    if not shape and dtype.kind in "iu":
        return Column("u64" if dtype == np.uint64 else "i64", dtype)
    kind = "array" if dtype.kind in "biufc" else "npy"
    return Column(
        kind, None if shape and dtype.kind in "SUO" else dtype, None if None in shape else shape
    )


def plain_type(kind: str) -> str:
    """The type of a column without compression: ``"array"`` for ``"zstd(array)"``."""
    return kind.replace("zstd(", "").rstrip(")")


def samples_of_batches(batches: Batches, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The samples of batches, with the values of each column under its name in ``names``."""
    for columns in batches:
        for values in zip(*columns.values(), strict=True):
            yield {names[name]: value for name, value in zip(columns, values, strict=True)}


def size_of(column: npt.NDArray[Any]) -> int:
    """The approximate size of a column's values in bytes."""
    if column.dtype.kind != "O":
        return int(column.nbytes)
    return sum(getattr(value, "nbytes", None) or sys.getsizeof(value) for value in column)


def source_of_iterator(iterator: DatasetIteratorIF) -> Source:
    """Samples of any iterator; the columns of tuples are called ``sample``, ``target`` and ``tag`` where its meta says where
    these are, else ``column_0``, ``column_1`` …

    Without samples, the columns are those of an empty batch and of the schema.

    Raises:
        ConfigError: it has neither samples nor known columns, or a column holds values that no format stores.
    """
    name = getattr(getattr(iterator, "dataset_meta", None), "identifier", None) or repr(iterator)
    samples = iterator.__getitems__(spread(len(iterator)))
    first: Any = samples[0] if samples else access_to(iterator).batch(np.empty(0, np.intp))
    if not samples and not list_columns(first):
        raise ConfigError(f"{name} has no samples, and its columns are unknown")
    keys: dict[str, ColumnKey]
    if isinstance(first, Mapping):
        keys = {str(key): key for key in first}
    elif isinstance(first, (tuple, list)):
        keys = {name_of_position(iterator, position): position for position in range(len(first))}
    else:
        raise ConfigError(
            f"samples of {name} are bare values; name them: .map(lambda value: {{'x': value}})"
        )
    if not samples:
        declared = Source(name, iterator, {}, keys).declared
        schema = {
            column: _column_without_values(first[key], declared[column])
            for column, key in keys.items()
        }
        return Source(name, iterator, schema, keys)
    try:
        columns = {column: [sample[key] for sample in samples] for column, key in keys.items()}
    except LookupError as error:
        raise ConfigError(
            f"samples of {name} differ in their columns; map them to the same ones"
        ) from error
    return Source(
        name,
        iterator,
        {column: infer_column(values, column) for column, values in columns.items()},
        keys,
    )


def _column_without_values(rows: npt.NDArray[Any], declared: DeclaredColumn) -> Column:
    """The column of an empty batch; of objects, the one that a schema declares, or JSON."""
    if rows.dtype != object or declared.dtype in (None, "object"):
        return (
            Column("json") if rows.dtype == object else column_of_dtype(rows.dtype, rows.shape[1:])
        )
    shape = (None,) if declared.shape is None else declared.shape
    return (
        Column("decimal")
        if declared.dtype == "Decimal"
        else column_of_dtype(np.dtype(declared.dtype), shape)
    )


def name_of_position(iterator: Any, position: int) -> str:
    """The name of a column of tuples: its role in the meta, or ``column_0`` and so on."""
    meta = getattr(iterator, "dataset_meta", None)
    for name in ("sample", "target", "tag"):
        if meta is not None and getattr(meta, f"{name}_pos") == position:
            return name
    return f"column_{position}"


def infer_column(values: Sequence[Any], name: str) -> Column:
    """Infer the type of a column from some of its values; without dtype and shape, as other values may differ."""
    types = {_type_of(value, name) for value in values}
    if types <= {"i64", "u64", "array"} and len(types) > 1:
        return Column("array")
    if len(types) > 1:
        if types <= {"json", "utf8", "i64", "array", "u64"} and not any(
            isinstance(value, np.ndarray) for value in values
        ):
            return Column("json")
        if len(types - {"json"}) == 1:
            return Column("decimal" if "decimal" in types else "tree")
        raise ConfigError(
            f"column {name!r} holds values of several types ({', '.join(sorted(types))}); leave it out"
        )
    return Column(types.pop() if types else "json")


def _type_of(value: Any, name: str) -> str:
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, str):
        return "utf8"
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        return "u64" if value >= 2**63 or isinstance(value, np.uint64) else "i64"
    if isinstance(value, (bool, float, complex)):
        return "array"
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__"):
        try:
            dtype = as_array(value).dtype
        except TypeError as error:
            raise ConfigError(
                f"column {name!r} holds values that numpy cannot convert: {error}"
            ) from error
        if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
            raise ConfigError(
                f"column {name!r} is of dtype {dtype}, whose size differs between machines; map it to float64"
            )
        return "array" if dtype.kind in "biufc" else "npy"
    if isinstance(value, Decimal):
        return "decimal"
    if value is None or isinstance(value, (list, tuple, dict)):
        return "tree" if _holds_arrays(value) else "json"
    raise ConfigError(
        f"column {name!r} holds a {type(value).__qualname__}, which no format stores; map it, or leave it out"
    )


def _holds_arrays(value: Any) -> bool:
    """Whether a value contains anything that JSON cannot hold."""
    if isinstance(value, Mapping):
        return any(not isinstance(key, str) for key in value) or any(
            map(_holds_arrays, value.values())
        )
    if isinstance(value, (list, tuple)):
        return any(map(_holds_arrays, value))
    if isinstance(value, float):
        return not math.isfinite(value)
    return not (value is None or isinstance(value, (str, bool, int)))
