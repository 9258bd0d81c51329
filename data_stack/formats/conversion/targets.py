"""What is converted to: how each format is written, and gone on with after an interruption."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.registry import media_types
from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.conversion.source import Source, size_of
from data_stack.formats.image_folder import METADATA
from data_stack.formats.image_folder_writer import ImageFolderWriter
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.manifest import MANIFEST
from data_stack.formats.webdataset import KEY, SHARD_INDEX, field_of_column
from data_stack.formats.webdataset_writer import WebDatasetWriter, write_shard
from data_stack.io.location import Location
from data_stack.io.storage_errors import storage_errors
from data_stack.util.request_limit import check_request

__all__ = ["TARGETS", "Target"]

_DEFAULT_SHARDLEN: Final = 10_000
#: dtypes that torch has.
_TORCH: Final = frozenset(("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))

_INTEGERS: Final = {"i64": np.dtype(np.int64), "u64": np.dtype(np.uint64), "int": np.dtype(np.int64)}

_Array = npt.NDArray[Any]
_Batches = Callable[[int, Collection[str]], Iterator[dict[str, Any]]]
"""Gives the columns of the samples from a position on, batch by batch; those that are named as the bytes of their files."""


class Target(ABC):
    """One format to write.

    Args:
        location: where to.
        shardlen: samples in a shard; None: as the format has it.

    Raises:
        ConfigError: the format has no shards.
    """

    #: The format's name.
    kind: str
    has_shards = False
    is_folder = True
    #: Whether nothing in a folder tells that all of it is there; it then has another name until that is so.
    is_renamed = False

    def __init__(self, location: Location, shardlen: int | None) -> None:
        self.location, self.shardlen = location, shardlen
        if shardlen is not None and shardlen < 1:
            raise ConfigError(f"a shard holds at least one sample, got shardlen={shardlen}")
        if shardlen is not None and not self.has_shards:
            raise ConfigError(f"{self.kind} has no shards; leave shardlen out, or choose records, parquet or webdataset")
        if self.is_folder and location.is_file():
            raise ConfigError(f"{location.full_name} is a file; {self.kind} is a folder: choose another name")

    def check(self, source: Source) -> None:
        """Whether the format can hold the columns, as far as can be told before anything is written.

        Raises:
            ConfigError: it cannot; the message names the column.
        """
        for name, column in source.schema.items():
            if column.is_sequence and self.kind != "records":
                raise ConfigError(
                    f"column {name!r} holds sequences ({column.type}), which records alone keep; leave it out: --columns …"
                )

    @property
    def attempt(self) -> Location:
        """Where the dataset lies until all of it is there."""
        if not self.is_renamed or self.location.path is None:
            return self.location
        return Location(self.location.folder, f"{self.location.name}.part")

    def publish(self) -> None:
        """Give a dataset that is whole its name.

        Raises:
            StorageError: it cannot be renamed.
        """
        source, target = self.attempt.path, self.location.path
        if source is not None and target is not None and source != target:
            with storage_errors(f"rename {self.attempt.full_name} to", str(target)):
                os.rename(source, target)

    @abstractmethod
    def is_finished(self, source: Source) -> bool:
        """Whether a whole dataset is there already."""

    def _is_there(self, last: str) -> bool:
        """Whether a folder is there; in a store, what comes last tells that it is whole."""
        folder = self.location.as_folder()
        return folder.has_file(last) or (folder.path is not None and self.location.is_folder())

    @abstractmethod
    def write(self, source: Source, batches: _Batches) -> int:
        """Write the dataset; the number of samples that an earlier attempt had left."""

    def _has_all(self, n_there: int, source: Source) -> bool:
        """Whether so many samples are all that are to be written.

        Raises:
            ConfigError: they are more.
        """
        if n_there > len(source):
            raise ConfigError(
                f"{self.location.full_name} holds {n_there:,} samples already, more than the {len(source):,} to be written; "
                f"remove it, or choose another target"
            )
        return n_there == len(source)

    def _append(self, writer: Any, source: Source, batches: _Batches, append: Callable[[dict[str, Any]], Any]) -> int:
        """Append what ``writer`` does not have yet, batch by batch; the number of samples that it had."""
        with writer:
            n_there = len(writer)
            self._has_all(n_there, source)
            for columns in batches(n_there, source.stored_names):
                append(columns)
        return n_there


class _Records(Target):
    """A folder of records; its writer goes on by itself."""

    kind = "records"
    has_shards = True

    def is_finished(self, source: Source) -> bool:
        folder = self.location.as_folder()
        is_sharded = folder.subfolder(shard_name(0)).has_file(SPEC)
        is_plain = folder.has_file(SPEC)
        if (is_plain and self.shardlen is not None) or (is_sharded and self.shardlen is None):
            raise ConfigError(
                f"{self.location.full_name} holds {'no shards' if is_plain else 'shards'}: go on with the shardlen that it was "
                f"begun with, or choose another folder"
            )
        if not (folder.subfolder(shard_name(0)) if is_sharded else folder).has_file(MANIFEST):
            return False
        with records.open(folder) as reader:
            return self._has_all(len(reader), source)

    def write(self, source: Source, batches: _Batches) -> int:
        # Files are taken as they are, so that what they show is not looked at.
        spec = {
            name: Column(column.type) if column.codec_type in media_types() else column for name, column in source.schema.items()
        }
        folder = self.location.as_folder()
        writer: Any = (
            records.RecordWriter(folder, spec)
            if self.shardlen is None
            else records.ShardedRecordWriter(folder, spec, shardlen=self.shardlen)
        )

        return self._append(writer, source, batches, writer.extend)


class _Parquet(Target):
    """A folder of Parquet files; its writer goes on behind the last one that is complete."""

    kind = "parquet"
    has_shards = True

    def check(self, source: Source) -> None:
        super().check(source)
        self._schema(source)

    def is_finished(self, source: Source) -> bool:
        from data_stack.formats.parquet.metadata import ParquetManifest

        manifest = ParquetManifest.read(self.location.as_folder())
        return manifest is not None and self._has_all(manifest.n_rows, source)

    def write(self, source: Source, batches: _Batches) -> int:
        from data_stack.formats.parquet import ParquetWriter

        stored = source.stored_names
        writer = ParquetWriter(self.location.as_folder(), self._schema(source), rows_per_file=self.shardlen)
        return self._append(writer, source, batches, lambda columns: writer.append_columns(columns, encoded=stored))

    def _schema(self, source: Source) -> Any:
        from data_stack.formats.conversion.parquet_columns import parquet_schema

        return parquet_schema(self.location.name, source.schema, lambda name: source.read(source.some(), [name])[name])


class _WebDataset(Target):
    """Shards in WebDataset's manner, the list of them last; a ``.tar`` is one file, whole or not there."""

    kind = "webdataset"
    has_shards = True

    def __init__(self, location: Location, shardlen: int | None) -> None:
        self.is_folder = self.is_renamed = not location.name.lower().endswith(".tar")
        super().__init__(location, shardlen)
        if shardlen is not None and not self.is_folder:
            raise ConfigError(f"{location.name!r} is one file; give a folder for shards: {location.name[:-4]!r}")

    def is_finished(self, source: Source) -> bool:
        return self._is_there(SHARD_INDEX) if self.is_folder else self.location.is_file()

    def check(self, source: Source) -> None:
        super().check(source)
        fields = _fields(source)
        if len({field.lower() for field in fields.values()}) < len(fields):
            raise ConfigError(
                f"two columns would have one name in a shard ({', '.join(sorted(fields.values()))}); rename one: --columns …"
            )

    def write(self, source: Source, batches: _Batches) -> int:
        fields = _fields(source)
        if not self.is_folder:
            samples = (sample for columns in batches(0, source.stored_names) for sample in _samples(columns, fields))
            write_shard(self.location.folder, self.location.name, samples)
            return 0
        writer = WebDatasetWriter(self.attempt.as_folder(), name=self.location.name, shardlen=self.shardlen or _DEFAULT_SHARDLEN)

        def append(columns: dict[str, Any]) -> None:
            for sample in _samples(columns, fields):
                writer.append(sample)

        return self._append(writer, source, batches, append)


def _fields(source: Source) -> dict[str, str]:
    """The files of a sample by its columns."""
    return {
        name: KEY if name == KEY else field_of_column(name, _plain_type(column.type)) for name, column in source.schema.items()
    }


def _samples(columns: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield {names[name]: value for name, value in zip(columns, values, strict=True)}


def _plain_type(kind: str) -> str:
    """The type of the values of a compressed column."""
    while kind.startswith("zstd(") and kind.endswith(")"):
        kind = kind[5:-1]
    return kind


class _Images(Target):
    """A folder of images, their metadata last."""

    kind = "images"
    is_renamed = True

    def is_finished(self, source: Source) -> bool:
        return self._is_there(METADATA[0])

    def check(self, source: Source) -> None:
        super().check(source)
        column = source.schema.get("image")
        if column is None:
            raise ConfigError(
                f"a folder of images needs a column 'image'; {source.name} has {', '.join(source.schema)}. Rename one: "
                f"--columns image=…"
            )
        if _plain_type(column.type) not in ("jpg", "png", "webp", "array", "npy"):
            raise ConfigError(f"column 'image' is of type {column.type!r}, which is no image")
        for name, other in source.schema.items():
            if name != "image" and _plain_type(other.type) not in ("utf8", "i64", "u64", "int", "json", "array"):
                raise ConfigError(f"column {name!r} is of type {other.type!r}, which JSON cannot hold; leave it out: --columns …")

    def write(self, source: Source, batches: _Batches) -> int:
        writer = ImageFolderWriter(self.attempt.as_folder())

        def append(columns: dict[str, Any]) -> None:
            for sample in _samples(columns, {name: name for name in columns}):
                image = sample["image"]
                if np.ndim(image) == 3 and np.shape(image)[2] == 1:
                    raise ConfigError(
                        f"image {len(writer)} has the shape {np.shape(image)}: PNG would lose its last axis; give it without "
                        f"(.map), or choose another format"
                    )
                writer.append(sample)

        return self._append(writer, source, batches, append)


# ---------------------------------------------------------------------- one file, one shape a column


class _OneFile(Target):
    """A file of columns whose values have one dtype and shape; they are collected in memory, and written at once."""

    is_folder = False
    #: Letters of the kinds of dtypes that the format has, as numpy calls them.
    dtype_kinds = "biufc"
    has_text = True

    def is_finished(self, source: Source) -> bool:
        return self.location.is_file()

    def check(self, source: Source) -> None:
        super().check(source)
        for name, column in source.schema.items():
            kind = _plain_type(column.type)
            if not (kind == "utf8" and self.has_text) and kind not in media_types() | {"array", "npy", *_INTEGERS}:
                raise ConfigError(
                    f"column {name!r} is of type {column.type!r}, which {self.kind} cannot hold; leave it out (--columns …), or "
                    f"choose records or webdataset"
                )
            if column.dtype is not None:
                self._check_dtype(column.dtype, name)

    def write(self, source: Source, batches: _Batches) -> int:
        parts: dict[str, list[_Array]] = {name: [] for name in source.schema}
        n_bytes = 0
        for batch in batches(0, ()):
            n_bytes += sum(size_of(column) for column in batch.values())
            check_request(n_bytes, f"the samples of {source.name!r}, which {self.kind} holds in one piece,")
            for name, values in batch.items():
                parts[name].append(values)
        columns = {name: self._joined(name, parts.pop(name), column) for name, column in source.schema.items()}
        with self.location.folder.create(self.location.name) as file:
            try:
                self._save(file, columns)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{self.location.full_name} cannot be written: {error}") from error
        return 0

    @abstractmethod
    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        """Write all into a file."""

    def _joined(self, name: str, parts: list[_Array], column: Column) -> _Array:
        """All values of a column, of shape ``(n_samples, ...)``; text as dtype object.

        Raises:
            ConfigError: they have no dtype and shape in common that the format has.
        """
        kind, dtype, shape = _plain_type(column.type), column.dtype, column.shape
        if kind == "utf8":
            return np.concatenate([np.empty(0, object), *parts])
        if kind in _INTEGERS:
            dtype, shape = dtype or _INTEGERS[kind], ()
        if not parts:
            if dtype is None or shape is None or None in shape:
                raise ConfigError(f"column {name!r} has no values, and so no shape, which {self.kind} needs")
            parts = [np.empty((0, *map(int, shape)), dtype)]  # type: ignore[arg-type]  # no None is among them
        first = np.shape(parts[0][0]) if len(parts[0]) else parts[0].shape[1:]
        if any(part.dtype == object or part.shape[1:] != first for part in parts):
            shapes = (np.shape(value) for part in parts for value in part)
            odd = next(
                (f"sample {row} has the shape {each}" for row, each in enumerate(shapes) if each != first), "no dtype fits"
            )
            raise ConfigError(
                f"column {name!r}: in {self.kind} all values have one dtype and shape, here {first}, but {odd}. Bring them to "
                f"one (.map), leave it out (--columns …), or choose records or webdataset"
            )
        values = np.concatenate(parts)
        if dtype is not None:
            values = values.astype(dtype, copy=False)
        self._check_dtype(values.dtype, name)
        return values

    def _check_dtype(self, dtype: np.dtype[Any], name: str) -> None:
        if dtype.kind not in self.dtype_kinds:
            raise ConfigError(
                f"column {name!r} is of dtype {dtype}, which {self.kind} cannot hold; map it to another, or leave it out"
            )


class _HDF5(_OneFile):
    """One dataset a column, contiguous."""

    kind = "hdf5"

    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.hdf5 import write_hdf5

        write_hdf5(file, columns)


class _Npz(_OneFile):
    """One array a column; text as strings of the longest one's length."""

    kind = "npz"
    dtype_kinds = "biufcmM"

    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.numpy_arrays import write_npz

        write_npz(file, {name: _fixed_text(name, values) for name, values in columns.items()})


def _fixed_text(name: str, values: _Array) -> _Array:
    if values.dtype != object:
        return values
    for row, text in enumerate(values):
        if text.endswith("\0"):
            raise ConfigError(f"column {name!r} of sample {row} ends with a NUL, which NumPy's strings lose")
    return np.array(values.tolist(), f"U{max(map(len, values), default=1) or 1}")


class _Torch(_OneFile):
    """A dict of tensors."""

    kind = "torch"
    has_text = False

    def _check_dtype(self, dtype: np.dtype[Any], name: str) -> None:
        if dtype.name not in _TORCH:
            raise ConfigError(f"column {name!r} is of dtype {dtype}, which torch cannot hold; map it to another, or leave it out")

    def _save(self, file: Any, columns: Mapping[str, _Array]) -> None:
        from data_stack.formats.torch_tensors import save_tensors, tensor_of

        memory = io.BytesIO()  # torch aborts the process where a file of Python cannot be written
        native = {name: values.astype(values.dtype.newbyteorder("=")) for name, values in columns.items()}
        save_tensors(memory, {name: tensor_of(values, values.dtype.name) for name, values in native.items()})
        file.write(memory.getbuffer())


TARGETS: Final[Mapping[str, type[Target]]] = {
    each.kind: each for each in (_Records, _HDF5, _Npz, _Torch, _WebDataset, _Parquet, _Images)
}
"""The formats that can be written, by name."""
