"""The source of a conversion: columns by name, read in batches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.registry import media_types
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.formats.columns import ColumnsDatasetIterator
from data_stack.io.location import Location
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import as_array

_MOST_LOOKED_AT: Final = 16
_NUMERIC: Final = "biufc"

Values = Any
"""The values of a column in a batch: an array of shape ``(n, ...)``."""


@dataclass(frozen=True)
class Source:
    """A dataset as columns.

    Attributes:
        name: for messages.
        values: its samples.
        stored: the same samples with the bytes of files in the columns of images, sound and videos; None without such columns.
        schema: what each column holds, as a record column would; dtype and shape where they hold for all samples.
        keys: what a column is called in a sample; more than are in the schema where some are only read when they are asked for.
        resources: what to close.
    """

    name: str
    values: DatasetIteratorIF
    schema: Mapping[str, Column]
    keys: Mapping[str, ColumnKey]
    stored: DatasetIteratorIF | None = None
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __len__(self) -> int:
        return len(self.values)

    def close(self) -> None:
        """Close what was opened for it."""
        self.resources.close()

    def can_give_stored(self, name: str) -> bool:
        """Whether a column can be read as the bytes of its files."""
        return self.stored is not None and self.schema[name].codec_type in media_types()

    @property
    def stored_names(self) -> list[str]:
        """The columns that can be read as the bytes of their files."""
        return [name for name in self.schema if self.can_give_stored(name)]

    def read(self, positions: npt.NDArray[np.intp], names: Iterable[str], stored: Collection[str] = ()) -> dict[str, Values]:
        """Columns of the samples at ``positions``, those in ``stored`` as the bytes of their files."""
        found: dict[str, Values] = {}
        for iterator, chosen in (
            (self.values, [name for name in names if name not in stored]),
            (self.stored, [name for name in names if name in stored]),
        ):
            if chosen and iterator is not None:
                columns = access_to(iterator).columns([self.keys[name] for name in chosen], positions)
                found.update(zip(chosen, columns, strict=True))
        return {name: found[name] for name in names}

    def some(self) -> npt.NDArray[np.intp]:
        """Positions of a few samples, from all over the dataset."""
        return np.unique(np.linspace(0, max(0, len(self) - 1), min(_MOST_LOOKED_AT, len(self))).astype(np.intp))

    def select_columns(self, columns: Mapping[str, str] | None) -> Source:
        """Only some of the columns, under the names that are the keys of ``columns``.

        Raises:
            ConfigError: there is no such column.
        """
        if columns is None:
            return self
        schema, keys = {}, {}
        for new, old in columns.items():
            by_position = {str(key): name for name, key in self.keys.items() if isinstance(key, int)}
            old = old if old in self.keys else by_position.get(old, old)
            if old not in self.keys:
                raise ConfigError(
                    f"{self.name} has no column {old!r:.80}{did_you_mean(old, self.keys)}; it has {', '.join(self.keys)}"
                )
            schema[new] = self.schema.get(old, Column("utf8"))  # the key of a WebDataset
            keys[new] = self.keys[old]
        return replace(self, schema=schema, keys=keys)


def plain_type(kind: str) -> str:
    """The type of the values of a compressed column."""
    while kind.startswith("zstd(") and kind.endswith(")"):
        kind = kind[5:-1]
    return kind


def size_of(column: npt.NDArray[Any]) -> int:
    """About how many bytes the values of a column take."""
    if column.dtype.kind != "O":
        return int(column.nbytes)
    return sum(getattr(value, "nbytes", None) or sys.getsizeof(value) for value in column)


def parse_columns(columns: str | Iterable[str] | Mapping[str, str] | None) -> dict[str, str] | None:
    """Columns as new names for old ones: of ``"a,b=c"``, ``["a", "b=c"]`` or ``{"a": "a", "b": "c"}``; None for all.

    Raises:
        ConfigError: it is something else, or names a column twice.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        return dict(columns)
    parts = columns.split(",") if isinstance(columns, str) else list(columns)
    parsed: dict[str, str] = {}
    for part in parts:
        new, equals, old = part.partition("=")
        if not new or (equals and not old) or new in parsed:
            raise ConfigError(f"columns are a,b or new=old, each once, not {part!r:.80}")
        parsed[new] = old if equals else new
    if not parsed:
        raise ConfigError("at least one column is needed")
    return parsed


# ---------------------------------------------------------------------- the formats


def open_source(location: Location, kind: str) -> Source:
    """The dataset of a known format at ``location``; the caller closes it.

    Raises:
        ConfigError: it has columns that cannot be converted together.
        DatasetFileCorruptError: it is not of that format, or damaged.
    """
    source = _OPENERS[kind](location)
    return replace(source, name=location.full_name)


def _open_records(location: Location) -> Source:
    from data_stack.formats import records

    with contextlib.ExitStack() as stack:
        reader: Any = stack.enter_context(records.open(location.as_folder()))
        schema = dict(reader.schema)
        stored = None
        if any(column.codec_type in media_types() for column in schema.values()):
            stored = stack.enter_context(records.open(location.as_folder(), codecs=dict.fromkeys(media_types())))
        return Source("", reader, schema, {name: name for name in schema}, stored, stack.pop_all())


def _open_hdf5(location: Location) -> Source:
    from data_stack.formats.hdf5 import HDF5DatasetIterator, dataset_keys

    return _open_keyed(location, HDF5DatasetIterator, dataset_keys)


def _open_npz(location: Location) -> Source:
    from data_stack.formats.numpy_arrays import NpzDatasetIterator, npz_keys

    return _open_keyed(location, NpzDatasetIterator, npz_keys)


def _open_keyed(location: Location, iterator: Any, keys_of: Callable[[Any], list[str]]) -> Source:
    with contextlib.ExitStack() as stack:
        resource = stack.enter_context(location.open())
        keys = keys_of(resource)
        if not keys:
            raise ConfigError(f"{location.full_name} holds no arrays")
        return _of_columns(iterator(resource, {key: key for key in keys}), keys, stack)


def _open_torch(location: Location) -> Source:
    from data_stack.formats.torch_tensors import TensorsDatasetIterator, TorchDatasetIterator, load_tensors, tensors_of

    with contextlib.ExitStack() as stack:
        if location.is_file():
            resource = stack.enter_context(location.open())
            tensors = tensors_of(load_tensors(resource, map_location="meta"), location.full_name)
            keys = {(key if isinstance(key, str) else f"column_{key}"): key for key in tensors}
            return _of_columns(TensorsDatasetIterator(resource, keys), list(keys), stack)
        folder = location.as_folder()
        names = [name for name in folder.list_names() if name.endswith((".pt", ".pth"))]
        files = {name.rpartition(".")[0]: stack.enter_context(folder.open(name)) for name in names}
        return _of_columns(TorchDatasetIterator(files), list(files), stack)


def _of_columns(iterator: ColumnsDatasetIterator, names: Sequence[str], stack: contextlib.ExitStack) -> Source:
    """Columns of a file, whose rows all have one dtype and shape."""
    schema = {}
    for name in names:
        rows = iterator.read_column(name, [0] if len(iterator) else [])
        schema[name] = _column_of_rows(rows)
    return Source("", iterator, schema, {name: name for name in names}, None, stack.pop_all())


def _column_of_rows(rows: npt.NDArray[Any]) -> Column:
    dtype, shape = rows.dtype, rows.shape[1:]
    if dtype.kind == "O":
        return _infer(rows.tolist(), "") if len(rows) else Column("utf8")
    if dtype.kind == "U" and not shape:
        return Column("utf8")
    if dtype.kind == "S" and not shape:
        return Column("bytes")
    if not shape and dtype.kind in "iu":
        return Column("u64" if dtype == np.uint64 else "i64", dtype)
    return Column("npy" if dtype.names is not None else "array", dtype, shape)


def _open_webdataset(location: Location) -> Source:
    from data_stack.formats.webdataset import KEY, WebDatasetIterator, column_of_field, shard_names, type_of_field

    shards = (
        [location] if location.is_file() else [Location(location.as_folder(), name) for name in shard_names(location.as_folder())]
    )
    if not shards:
        raise ConfigError(f"{location.full_name} holds no .tar")
    values = WebDatasetIterator(shards)
    columns = [column_of_field(each) for each in values.fields]
    keys: dict[str, ColumnKey] = {
        (column if columns.count(column) == 1 else each): each for column, each in zip(columns, values.fields, strict=True)
    }
    schema = {column: Column(type_of_field(str(each))) for column, each in keys.items()}
    for column, each in keys.items():
        if schema[column].type == "npy" and len(values):
            schema[column] = _infer([values.read_column(each, [0])[0]], column)
    stored = None
    if any(column.type in media_types() for column in schema.values()):
        endings = {str(each).rpartition(".")[2] for each in keys.values()}
        stored = WebDatasetIterator(shards, types={ending: None for ending in endings if type_of_field(ending) in media_types()})
    if list(values.keys) != [f"{position:09d}" for position in range(len(values))]:
        schema = {KEY: Column("utf8"), **schema}
    return Source("", values, schema, {KEY: KEY, **keys}, stored)


def _open_images(location: Location) -> Source:
    from data_stack.formats.image_folder import ImageFolderIterator

    values = ImageFolderIterator(location.as_folder())
    types = values.image_types
    # Pictures of several kinds become PNG, which loses nothing of what they show.
    schema = {"image": Column(types.pop() if len(types) == 1 else "png")}
    stored = ImageFolderIterator(location.as_folder(), decode=False) if not types else None
    for name in values.fields[1:]:
        schema[name] = _infer(values.read_column(name).tolist(), name)
    return Source("", values, schema, {name: name for name in schema}, stored)


def _open_parquet(location: Location) -> Source:
    from data_stack.formats.conversion.parquet_columns import columns_of_parquet, find_stored_schema, with_plain_lists
    from data_stack.formats.parquet import ParquetDataset

    where: Any = (location.folder, location.name) if location.is_file() else (location.as_folder(), "")
    values = ParquetDataset(where[0], prefix=where[1])
    if (plain := with_plain_lists(values.schema)) != values.schema:
        values = ParquetDataset(where[0], prefix=where[1], schema=plain)
    schema = columns_of_parquet(values, _infer)
    stored = None
    if any(column.codec_type in media_types() for column in schema.values()):
        stored = ParquetDataset(where[0], prefix=where[1], schema=find_stored_schema(values.schema, schema))
    return Source("", values, schema, {name: name for name in values.schema.fields}, stored)


_OPENERS: Final[Mapping[str, Callable[[Location], Source]]] = {
    "records": _open_records,
    "hdf5": _open_hdf5,
    "npz": _open_npz,
    "torch": _open_torch,
    "webdataset": _open_webdataset,
    "images": _open_images,
    "parquet": _open_parquet,
}


# ---------------------------------------------------------------------- any iterator


def source_of_iterator(iterator: DatasetIteratorIF) -> Source:
    """Samples of any iterator; the columns of tuples are called ``sample``, ``target`` and ``tag`` where its meta says where
    these are, else ``column_0``, ``column_1`` …

    Raises:
        ConfigError: it has no sample to tell its columns by, or they hold what no format can.
    """
    name = getattr(getattr(iterator, "dataset_meta", None), "identifier", None) or repr(iterator)
    if not len(iterator):
        raise ConfigError(f"{name} has no samples, so there is nothing to tell its columns by")
    positions = np.unique(np.linspace(0, len(iterator) - 1, _MOST_LOOKED_AT).astype(np.intp))
    samples = iterator.__getitems__(positions)
    first = samples[0]
    keys: dict[str, ColumnKey]
    if isinstance(first, Mapping):
        keys = {str(key): key for key in first}
    elif isinstance(first, (tuple, list)):
        keys = {name_of_position(iterator, position): position for position in range(len(first))}
    else:
        raise ConfigError(
            f"samples of {name} are bare values of type {type(first).__name__}; name them: .map(lambda value: {{'x': value}})"
        )
    try:
        columns = {column: [sample[key] for sample in samples] for column, key in keys.items()}
    except LookupError as error:
        raise ConfigError(f"samples of {name} differ in their columns; map them to the same ones") from error
    return Source(name, iterator, {column: _infer(values, column) for column, values in columns.items()}, keys)


def name_of_position(iterator: Any, position: int) -> str:
    """A name for a column of tuples: what the meta says that it is, or ``column_0`` and so on."""
    meta = getattr(iterator, "dataset_meta", None)
    for name in ("sample", "target", "tag"):
        if meta is not None and getattr(meta, f"{name}_pos") == position:
            return name
    return f"column_{position}"


def _infer(values: Sequence[Any], name: str) -> Column:
    """What a column holds, by some of its values; no dtype and shape, as others may differ in these."""
    types = {_type_of(value, name) for value in values}
    if types <= {"i64", "u64", "array"} and len(types) > 1:
        return Column("array")
    if len(types) > 1:
        if types <= {"json", "utf8", "i64", "array", "u64"} and not any(isinstance(value, np.ndarray) for value in values):
            return Column("json")
        raise ConfigError(
            f"column {name!r} holds values of several kinds ({', '.join(sorted(types))}); map them to one, or leave it out"
        )
    return Column(types.pop() if types else "json")


def _type_of(value: Any, name: str) -> str:
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, str):
        return "utf8"
    if isinstance(value, (bool, np.bool_)):
        return "array"
    if isinstance(value, (int, np.integer)) and getattr(value, "dtype", np.dtype(int)).kind != "m":  # a span, to numpy an integer
        return "u64" if value >= 2**63 or isinstance(value, np.uint64) else "i64"
    if isinstance(value, (float, complex)):
        return "array"
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__"):
        try:
            dtype = as_array(value).dtype
        except TypeError as error:
            raise ConfigError(f"column {name!r} holds values that numpy cannot take: {error}") from error
        if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
            raise ConfigError(f"column {name!r} is of dtype {dtype}, whose digits differ between machines; map it to float64")
        return "array" if dtype.kind in _NUMERIC else "npy"
    if value is None or isinstance(value, (list, tuple, dict)):
        return "tree" if _holds_arrays(value) else "json"
    raise ConfigError(f"column {name!r} holds a {type(value).__qualname__}, which no format stores; map it, or leave it out")


def _holds_arrays(value: Any) -> bool:
    """Whether there is something in it that JSON has not."""
    if isinstance(value, Mapping):
        return any(not isinstance(key, str) for key in value) or any(map(_holds_arrays, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_arrays, value))
    return not (value is None or isinstance(value, (str, bool, int, float)))
