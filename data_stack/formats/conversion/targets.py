"""The targets of a conversion: how each format is written."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.registry import media_types, types_by_extension
from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.conversion.source import Source, plain_type, size_of
from data_stack.formats.image_folder_writer import write_image_folder
from data_stack.formats.webdataset import KEY, field_of_column
from data_stack.formats.webdataset_writer import WebDatasetWriter, write_shard
from data_stack.io.location import Location
from data_stack.util.request_limit import check_request

_DEFAULT_SHARDLEN: Final = 10_000
_INTEGERS: Final = {"i64": np.dtype(np.int64), "u64": np.dtype(np.uint64), "int": np.dtype(np.int64)}

_Array = npt.NDArray[Any]
_Batches = Iterable[dict[str, Any]]
"""The columns of the samples, batch by batch."""


class Target(ABC):
    """One format to write.

    Args:
        location: where the dataset will lie.
        shardlen: samples in a shard; None: as the format has it.

    Raises:
        ConfigError: the format has no shards.
    """

    #: The format's name.
    kind: str
    has_shards = False
    is_folder = True
    #: Whether columns of images and other files are written as the bytes of these.
    keeps_files = True

    def __init__(self, location: Location, shardlen: int | None) -> None:
        self.location, self.shardlen = location, shardlen
        if shardlen is not None and shardlen < 1:
            raise ConfigError(f"a shard holds at least one sample, got shardlen={shardlen}")
        if shardlen is not None and not self.has_shards:
            raise ConfigError(f"{self.kind} has no shards; leave shardlen out, or choose records, parquet or webdataset")

    def check(self, source: Source) -> None:
        """Whether the format can hold the columns, as far as can be told before anything is written.

        Raises:
            ConfigError: it cannot; the message names the column.
        """
        for name, column in source.schema.items():
            if column.type == "decimal":
                raise ConfigError(
                    f"column {name!r} holds Decimals, which no format but Parquet stores; leave it out (--columns …), or copy "
                    f"the dataset with `data-stack parquet copy`"
                )
            if column.is_sequence and self.kind != "records":
                raise ConfigError(
                    f"column {name!r} holds sequences ({column.type}), which records alone keep; leave it out: --columns …"
                )

    @abstractmethod
    def write(self, place: Location, source: Source, batches: _Batches) -> None:
        """Write the dataset at a place where nothing is."""


class _Records(Target):
    """A folder of records."""

    kind = "records"
    has_shards = True

    def write(self, place: Location, source: Source, batches: _Batches) -> None:
        # Files are taken as they are, so that what they show is not looked at.
        spec = {
            name: Column(column.type) if column.codec_type in media_types() else column for name, column in source.schema.items()
        }
        writer: Any = (
            records.RecordWriter(place.as_folder(), spec)
            if self.shardlen is None
            else records.ShardedRecordWriter(place.as_folder(), spec, shardlen=self.shardlen)
        )
        with writer:
            for columns in batches:
                writer.extend(columns)


class _Parquet(Target):
    """A folder of Parquet files."""

    kind = "parquet"
    has_shards = True

    def check(self, source: Source) -> None:
        super().check(source)
        self._schema(source)

    def write(self, place: Location, source: Source, batches: _Batches) -> None:
        from data_stack.formats.parquet import ParquetWriter

        with ParquetWriter(place.as_folder(), self._schema(source), rows_per_file=self.shardlen) as writer:
            for columns in batches:
                writer.append_columns(columns, encoded=source.stored_names)

    def _schema(self, source: Source) -> Any:
        from data_stack.formats.conversion.parquet_columns import parquet_schema

        return parquet_schema(self.location.name, source.schema, lambda name: source.read(source.some(), [name])[name])


class _WebDataset(Target):
    """Shards in WebDataset's manner, the list of them last; a ``.tar`` is one file, whole or not there."""

    kind = "webdataset"
    has_shards = True

    def __init__(self, location: Location, shardlen: int | None) -> None:
        super().__init__(location, shardlen)
        self.is_folder = not location.name.lower().endswith(".tar")
        if shardlen is not None and not self.is_folder:
            raise ConfigError(f"{location.name!r} is one file; give a folder for shards: {location.name[:-4]!r}")

    def check(self, source: Source) -> None:
        super().check(source)
        fields = _fields(source)
        if len({field.lower() for field in fields.values()}) < len(fields):
            raise ConfigError(
                f"two columns would have one name in a shard ({', '.join(sorted(fields.values()))}); rename one: --columns …"
            )

    def write(self, place: Location, source: Source, batches: _Batches) -> None:
        samples = _samples(batches, _fields(source))
        if not self.is_folder:
            write_shard(place.folder, place.name, samples)
            return
        shardlen = self.shardlen or _DEFAULT_SHARDLEN
        with WebDatasetWriter(place.as_folder(), name=self.location.name, shardlen=shardlen) as writer:
            for sample in samples:
                writer.append(sample)


def _fields(source: Source) -> dict[str, str]:
    """The files of a sample by its columns."""
    return {
        name: KEY if name == KEY else field_of_column(name, plain_type(column.type)) for name, column in source.schema.items()
    }


def _samples(batches: _Batches, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for columns in batches:
        for values in zip(*columns.values(), strict=True):
            yield {names[name]: value for name, value in zip(columns, values, strict=True)}


class _Images(Target):
    """A folder of images, their metadata last."""

    kind = "images"

    def check(self, source: Source) -> None:
        super().check(source)
        column = source.schema.get("image")
        if column is None:
            raise ConfigError(
                f"a folder of images needs a column 'image'; {source.name} has {', '.join(source.schema)}. Rename one: "
                f"--columns image=…"
            )
        if plain_type(column.type) not in {*types_by_extension("image").values(), "array", "npy"}:
            raise ConfigError(f"column 'image' is of type {column.type!r}, which is no image")
        for name, other in source.schema.items():
            if name != "image" and plain_type(other.type) not in ("utf8", "i64", "u64", "int", "json", "array"):
                raise ConfigError(f"column {name!r} is of type {other.type!r}, which JSON cannot hold; leave it out: --columns …")

    def write(self, place: Location, source: Source, batches: _Batches) -> None:
        write_image_folder(place.as_folder(), map(_check_image, _samples(batches, {name: name for name in source.schema})))


def _check_image(sample: dict[str, Any]) -> dict[str, Any]:
    shape = np.shape(sample["image"])
    if len(shape) == 3 and shape[2] == 1:
        raise ConfigError(f"an image has the shape {shape}: PNG would lose its last axis; remove it by .map()")
    return sample


# ---------------------------------------------------------------------- one file, one shape a column


class _OneFile(Target):
    """A file of columns whose values have one dtype and shape; they are collected in memory, and written at once."""

    is_folder = keeps_files = False
    #: The types of columns that it holds, beside images, sound and videos.
    types: Collection[str] = ("array", "npy", "utf8", *_INTEGERS)

    def check(self, source: Source) -> None:
        super().check(source)
        for name, column in source.schema.items():
            if plain_type(column.type) not in media_types().union(self.types):
                raise ConfigError(
                    f"column {name!r} is of type {column.type!r}, which {self.kind} cannot hold; leave it out (--columns …), or "
                    f"choose records or webdataset"
                )

    def write(self, place: Location, source: Source, batches: _Batches) -> None:
        parts: dict[str, list[_Array]] = {name: [] for name in source.schema}
        n_bytes = 0
        for batch in batches:
            n_bytes += sum(size_of(column) for column in batch.values())
            check_request(n_bytes, f"the samples of {source.name!r}, which {self.kind} holds in one piece,")
            for name, values in batch.items():
                parts[name].append(values)
        columns = {name: self._join(name, parts.pop(name), column) for name, column in source.schema.items()}
        with place.folder.create(place.name) as file:
            self._save(file, columns)

    @abstractmethod
    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        """Write all into a file; raises ConfigError for a dtype that it does not store."""

    def _join(self, name: str, parts: list[_Array], column: Column) -> _Array:
        """All values of a column, of shape ``(n_samples, ...)``; text as dtype object."""
        kind = plain_type(column.type)
        dtype = column.dtype or _INTEGERS.get(kind)
        if not parts:
            parts = [np.empty((0, *(size or 0 for size in column.shape or ())), dtype)]
        shapes = [np.shape(value) for part in parts for value in part]
        odd = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is not None:
            raise ConfigError(
                f"column {name!r}: in {self.kind} all values have one shape, here {shapes[0]}, but sample {odd} has the shape "
                f"{shapes[odd]}. Bring them to one (.map), leave it out (--columns …), or choose records or webdataset"
            )
        values = np.concatenate(parts)
        if kind == "utf8":
            return values.astype(object)
        try:
            if values.dtype == object:
                raise TypeError("no dtype holds all of its values")
            return values if dtype is None else as_dtype(values, dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.kind} cannot hold column {name!r}: {error}") from error


class _HDF5(_OneFile):
    """One dataset a column, contiguous."""

    kind = "hdf5"

    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.hdf5 import write_hdf5

        write_hdf5(file, columns)


class _Npz(_OneFile):
    """One array a column; text as strings of the longest one's length."""

    kind = "npz"

    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.numpy_arrays import write_npz

        arrays = {}
        for name, values in columns.items():
            arrays[name] = values if values.dtype != object else np.array(values.tolist(), np.str_)
            if values.dtype == object and arrays[name].tolist() != values.tolist():
                raise ConfigError(f"column {name!r} has text that ends with a NUL, which NumPy's strings lose")
        write_npz(file, arrays)


class _Torch(_OneFile):
    """A dict of tensors."""

    kind = "torch"
    types = ("array", "npy", *_INTEGERS)

    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.torch_tensors import save_tensors, tensor_of

        tensors = {}
        for name, values in columns.items():
            try:
                tensors[name] = tensor_of(values.astype(values.dtype.newbyteorder("=")), values.dtype.name)
            except TypeError as error:
                raise ConfigError(f"column {name!r} is of dtype {values.dtype}, which torch cannot hold") from error
        memory = io.BytesIO()  # torch aborts the process where a file of Python cannot be written
        save_tensors(memory, tensors)
        file.write(memory.getbuffer())


TARGETS: Final[Mapping[str, type[Target]]] = {
    each.kind: each for each in (_Records, _HDF5, _Npz, _Torch, _WebDataset, _Parquet, _Images)
}
"""The formats that can be written, by name."""
