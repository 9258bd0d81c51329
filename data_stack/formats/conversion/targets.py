"""What is converted to: how each format is written, and gone on with after an interruption."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.registry import media_types
from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.conversion.feed import Feed
from data_stack.formats.conversion.source import Source
from data_stack.formats.image_folder import METADATA, ImageFolderWriter
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.manifest import MANIFEST
from data_stack.formats.webdataset import KEY, SHARD_INDEX, FieldEncoder, WebDatasetWriter, field_of_column, write_shard
from data_stack.io.location import Location
from data_stack.io.storage_errors import storage_errors

__all__ = ["TARGETS", "Target"]

_DEFAULT_SHARDLEN: Final = 10_000
_LOOKED_AT: Final = 16
#: dtypes that torch has.
_TORCH: Final = frozenset(("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))

_Array = npt.NDArray[Any]
_Begun = Callable[[int], None]
"""Called with the number of samples that an earlier attempt left; raises if they are others than those of the source."""


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
            if column.is_sequence and self.kind != "records":
                raise ConfigError(
                    f"column {name!r} holds sequences ({column.type}), which records alone keep; leave it out: --columns …"
                )

    def suited(self, source: Source) -> Source:
        """The same source, read as this format holds it best."""
        return source

    def attempts(self) -> list[Location]:
        """Where an attempt leaves what it writes."""
        return [self.location]

    @abstractmethod
    def is_finished(self, source: Source) -> bool:
        """Whether a whole dataset is there already."""

    @abstractmethod
    def write(self, feed: Feed, begun: _Begun) -> int:
        """Write the dataset; the number of samples that an earlier attempt had left."""


# ---------------------------------------------------------------------- records


class _Records(Target):
    """A folder of records; its writer goes on by itself."""

    kind = "records"
    has_shards = True

    def is_finished(self, source: Source) -> bool:
        folder = self.location.as_folder()
        if self.location.is_file():
            raise ConfigError(f"{self.location.full_name} is a file; records are a folder")
        is_sharded = folder.subfolder(shard_name(0)).has_file(SPEC)
        is_plain = folder.has_file(SPEC)
        if (is_plain and self.shardlen is not None) or (is_sharded and self.shardlen is None):
            raise ConfigError(
                f"{self.location.full_name} holds {'no shards' if is_plain else 'shards'}: go on with the shardlen that it was "
                f"begun with, or choose another folder"
            )
        if not is_sharded:
            if not folder.has_file(MANIFEST):
                return False
        elif not folder.subfolder(shard_name(0)).has_file(MANIFEST):
            return False
        with records.open(folder) as reader:
            n_there = len(reader)
        if n_there > len(source):
            raise ConfigError(
                f"{self.location.full_name} holds {n_there:,} samples already, more than the {len(source):,} to be written; "
                f"choose another folder"
            )
        return n_there == len(source)

    def write(self, feed: Feed, begun: _Begun) -> int:
        source = feed.source
        spec = {name: _record_column(column) for name, column in source.schema.items()}
        stored = [name for name in source.schema if source.can_give_stored(name)]
        folder = self.location.as_folder()
        writer: Any = (
            records.RecordWriter(folder, spec)
            if self.shardlen is None
            else records.ShardedRecordWriter(folder, spec, shardlen=self.shardlen)
        )
        with writer:
            n_there = len(writer)
            if n_there > feed.n_samples:
                raise ConfigError(f"{self.location.full_name} holds {n_there:,} samples already, more than are to be written")
            begun(n_there)
            feed.skip(n_there)
            for columns in feed.batches(stored=stored, start=n_there):
                writer.extend(columns)
                writer.flush()  # no more than a batch is to be done again
        return n_there


def _record_column(column: Column) -> Column:
    # Files are taken as they are, so that what they show is not looked at.
    return Column(column.type) if column.codec_type in media_types() else column


# ---------------------------------------------------------------------- Parquet


class _Parquet(Target):
    """A folder of Parquet files; its writer goes on behind the last one that is complete."""

    kind = "parquet"
    has_shards = True

    def suited(self, source: Source) -> Source:
        return replace(source, as_decimals=[name for name, field in source.decimals.items() if field is not None])

    def check(self, source: Source) -> None:
        super().check(source)
        self._schema(source)

    def is_finished(self, source: Source) -> bool:
        from data_stack.formats.parquet.metadata import ParquetManifest

        if self.location.is_file():
            raise ConfigError(
                f"{self.location.full_name} is a file; choose another name, Parquet is written as a folder of files"
            )
        manifest = ParquetManifest.read(self.location.as_folder())
        if manifest is None:
            return False
        if manifest.n_rows > len(source):
            raise ConfigError(
                f"{self.location.full_name} holds {manifest.n_rows:,} samples already, more than the {len(source):,} to be "
                f"written; choose another folder"
            )
        return manifest.n_rows == len(source)

    def write(self, feed: Feed, begun: _Begun) -> int:
        from data_stack.formats.parquet import ParquetWriter

        source = feed.source
        stored = [name for name in source.schema if source.can_give_stored(name)]
        with ParquetWriter(self.location.as_folder(), self._schema(source), rows_per_file=self.shardlen) as writer:
            n_there = len(writer)
            if n_there > feed.n_samples:
                raise ConfigError(f"{self.location.full_name} holds {n_there:,} samples already, more than are to be written")
            begun(n_there)
            feed.skip(n_there)
            for columns in feed.batches(stored=stored, start=n_there):
                writer.append_columns(columns, encoded=stored)
        return n_there

    def _schema(self, source: Source) -> Any:
        from data_stack.formats.conversion.parquet_columns import parquet_schema

        positions = np.unique(np.linspace(0, max(0, len(source) - 1), _LOOKED_AT if len(source) else 0).astype(np.intp))
        known = {name: source.decimals[name] for name in source.as_decimals}
        return parquet_schema(self.location.name, source.schema, lambda name: source.read(positions, [name])[name], known)


# ---------------------------------------------------------------------- folders of many files


class _Folder(Target):
    """A folder, which has another name until all of it is there; in a store what comes last tells that it is whole."""

    #: The file that comes last.
    last: str

    def attempts(self) -> list[Location]:
        return [self.location, self._part]

    @property
    def _part(self) -> Location:
        return Location(self.location.folder, f"{self.location.name}.part")

    def is_finished(self, source: Source) -> bool:
        if self.location.is_file():
            raise ConfigError(f"{self.location.full_name} is a file; {self.kind} is a folder")
        folder = self.location.as_folder()
        return folder.has_file(self.last) or (folder.path is not None and bool(folder.list_names()))

    def write(self, feed: Feed, begun: _Begun) -> int:
        path = self.location.path
        if path is None:
            return self._write_at(self.location, feed)
        part = self._part
        n_there = self._write_at(part, feed)
        with storage_errors(f"rename {part.full_name} to", path):
            os.rename(str(part.path), path)
        return n_there

    @abstractmethod
    def _write_at(self, location: Location, feed: Feed) -> int:
        """Write all at ``location``; the number of samples that were there."""


class _WebDataset(_Folder):
    """Shards in WebDataset's manner; a ``.tar`` is one file, whole or not there."""

    kind = "webdataset"
    has_shards = True
    last = SHARD_INDEX

    @property
    def _is_file(self) -> bool:
        return self.location.name.lower().endswith(".tar")

    def is_finished(self, source: Source) -> bool:
        if not self._is_file:
            return super().is_finished(source)
        if self.shardlen is not None:
            raise ConfigError(f"{self.location.name!r} is one file; give a folder for shards: {self.location.name[:-4]!r}")
        return self.location.is_file()

    def check(self, source: Source) -> None:
        super().check(source)
        fields = [_field(name, column) for name, column in source.schema.items() if name != KEY]
        if len({field.lower() for field in fields}) < len(fields):
            raise ConfigError(
                f"two columns would have one name in a shard ({', '.join(sorted(fields))}); rename one: --columns …"
            )

    def write(self, feed: Feed, begun: _Begun) -> int:
        if not self._is_file:
            return super().write(feed, begun)
        write_shard(self.location.folder, self.location.name, (each for batch in self._samples(feed, 0) for each in batch))
        return 0

    def _write_at(self, location: Location, feed: Feed) -> int:
        shardlen = _DEFAULT_SHARDLEN if self.shardlen is None else self.shardlen
        with WebDatasetWriter(location.as_folder(), name=self.location.name, shardlen=shardlen) as writer:
            n_there = len(writer)
            if n_there > feed.n_samples:
                raise ConfigError(f"{location.full_name} holds {n_there:,} samples, more than are to be written; remove it")
            feed.skip(n_there)
            for batch in self._samples(feed, n_there):
                for sample in batch:
                    writer.append(sample)
        return n_there

    def _samples(self, feed: Feed, start: int) -> Iterator[list[dict[str, Any]]]:
        """Samples with the bytes of their fields, which are made where they are read."""
        source, encoder = feed.source, FieldEncoder()
        fields = {name: _field(name, column) for name, column in source.schema.items() if name != KEY}
        stored = [name for name in fields if source.can_give_stored(name)]

        def prepare(first: int, columns: dict[str, Any]) -> list[dict[str, Any]]:
            samples: list[dict[str, Any]] = []
            for row in range(len(next(iter(columns.values())))):
                sample: dict[str, Any] = {KEY: columns[KEY][row]} if KEY in columns else {}
                for name, field in fields.items():
                    sample[field] = encoder.encoded(field, columns[name][row], first + row)
                samples.append(sample)
            return samples

        return feed.batches(stored=stored, start=start, prepare=prepare)


def _field(name: str, column: Column) -> str:
    return field_of_column(name, _plain_type(column.type))


def _plain_type(kind: str) -> str:
    """The type of the values of a compressed column."""
    while kind.startswith("zstd(") and kind.endswith(")"):
        kind = kind[5:-1]
    return kind


class _Images(_Folder):
    """A folder of images; one of this machine is gone on with."""

    kind = "images"
    last = METADATA[0]

    def check(self, source: Source) -> None:
        super().check(source)
        column = source.schema.get("image")
        if column is None:
            raise ConfigError(
                f"a folder of images needs a column 'image'; {source.name} has {', '.join(source.schema)}. Rename one: "
                f"--columns image=…"
            )
        kind = _plain_type(column.type)
        if kind not in ("jpg", "png", "webp", "array", "npy"):
            raise ConfigError(f"column 'image' is of type {column.type!r}, which is no image")
        for name, other in source.schema.items():
            if name != "image" and _plain_type(other.type) not in ("utf8", "i64", "u64", "int", "json", "array"):
                raise ConfigError(f"column {name!r} is of type {other.type!r}, which JSON cannot hold; leave it out: --columns …")

    def _write_at(self, location: Location, feed: Feed) -> int:
        source = feed.source
        stored = [name for name in source.schema if source.can_give_stored(name)]
        with ImageFolderWriter(location.as_folder()) as writer:
            n_there = len(writer)
            if n_there > feed.n_samples:
                raise ConfigError(f"{location.full_name} holds {n_there:,} samples, more than are to be written; remove it")
            feed.skip(n_there)
            for columns in feed.batches(stored=stored, start=n_there):
                for row in range(len(columns["image"])):
                    sample = {name: values[row] for name, values in columns.items()}
                    if np.ndim(sample["image"]) == 3 and np.shape(sample["image"])[2] == 1:
                        raise ConfigError(
                            f"image {len(writer)} has the shape {np.shape(sample['image'])}: PNG would lose its last axis; "
                            f"give it without (.map), or choose another format"
                        )
                    writer.append(sample)
        return n_there


# ---------------------------------------------------------------------- one file, one shape a column


class _OneFile(Target):
    """A file of columns whose values have one dtype and shape. It is whole or not there; an interrupted one begins anew."""

    def is_finished(self, source: Source) -> bool:
        return self.location.is_file()

    def check(self, source: Source) -> None:
        super().check(source)
        for name in source.schema:
            self._fixed(source, name)

    def write(self, feed: Feed, begun: _Begun) -> int:
        with self.location.folder.create(self.location.name) as file:
            try:
                self._write_into(file, feed)
            except (TypeError, ValueError) as error:
                if isinstance(error, ConfigError):
                    raise
                raise ConfigError(f"{self.location.full_name} cannot be written: {error}") from error
        return 0

    @abstractmethod
    def _write_into(self, file: Any, feed: Feed) -> None:
        """Write all into a file."""

    def _fixed(self, source: Source, name: str) -> tuple[Any, tuple[int, ...]]:
        """The dtype (``str`` for text) and shape of the values of a column.

        Raises:
            ConfigError: they have none in common that the format has.
        """
        column = source.schema[name]
        kind = _plain_type(column.type)
        if kind == "utf8" and self.kind != "torch":
            return str, ()
        if kind in ("i64", "u64", "int"):
            dtype: Any = column.dtype or np.dtype(np.uint64 if kind == "u64" else np.int64)
            return self._checked(dtype, name), ()
        if kind not in media_types() and kind not in ("array", "npy"):
            raise ConfigError(
                f"column {name!r} is of type {column.type!r}, which {self.kind} cannot hold; leave it out (--columns …), or "
                f"choose records or webdataset"
            )
        if column.dtype is not None and column.shape is not None and None not in column.shape:
            return self._checked(column.dtype, name), tuple(int(size) for size in column.shape if size is not None)
        if not len(source):
            raise ConfigError(f"column {name!r} has no values, and so no shape, which {self.kind} needs")
        positions = np.unique(np.linspace(0, len(source) - 1, _LOOKED_AT).astype(np.intp))
        values = source.read(positions, [name])[name]
        if values.dtype.kind == "O":
            self._refuse(values, np.shape(values[0]), name, positions)
        return self._checked(values.dtype, name), values.shape[1:]

    def _checked(self, dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
        kinds = "biufcmM" if self.kind == "npz" else "biufc"
        if dtype.kind not in kinds or (self.kind == "torch" and dtype.name not in _TORCH):
            raise ConfigError(
                f"column {name!r} is of dtype {dtype}, which {self.kind} cannot hold; map it to another, or leave it out"
            )
        return dtype

    def _refuse(self, values: Any, shape: tuple[int, ...], name: str, positions: Any) -> None:
        odd = next((row for row, value in enumerate(values) if np.shape(value) != shape), None)
        if odd is None:
            raise ConfigError(
                f"column {name!r} has values from sample {positions[0]} on that no dtype holds together: map them to one, leave "
                f"it out (--columns …), or choose records or webdataset"
            )
        raise ConfigError(
            f"column {name!r} of sample {positions[odd]} has the shape {np.shape(values[odd])}, others have {shape}: in "
            f"{self.kind} all values of a column have one shape. Bring them to one (.map), leave it out (--columns …), or choose "
            f"records or webdataset"
        )

    def _block(self, values: Any, name: str, first: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Array:
        """Values as an array of that dtype and shape."""
        array = np.asarray(values)
        if array.dtype.kind == "O" or array.shape[1:] != shape:
            self._refuse(array, shape, name, range(first, first + len(array)))
        if array.dtype != dtype:
            cast = array.astype(dtype)
            if not np.can_cast(array.dtype, dtype, "safe") and not np.array_equal(cast, array):
                raise ConfigError(
                    f"column {name!r} has values of dtype {array.dtype} from sample {first} on, others are {dtype}: map them"
                )
            array = cast
        return array

    def _blocks(self, feed: Feed, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[_Array]:
        def prepare(first: int, columns: dict[str, Any]) -> _Array:
            return self._block(columns[name], name, first, dtype, shape)

        if not feed.n_samples:
            yield np.empty((0, *shape), dtype)
        yield from feed.batches([name], prepare=prepare)


class _HDF5(_OneFile):
    """One dataset a column, contiguous."""

    kind = "hdf5"

    def _write_into(self, file: Any, feed: Feed) -> None:
        from data_stack.formats.hdf5 import HDF5Writer

        fixed = {name: self._fixed(feed.source, name) for name in feed.names}

        def prepare(first: int, columns: dict[str, Any]) -> dict[str, Any]:
            return {
                name: columns[name].tolist() if dtype is str else self._block(columns[name], name, first, dtype, shape)
                for name, (dtype, shape) in fixed.items()
            }

        with HDF5Writer(file, fixed, feed.n_samples) as writer:
            for columns in feed.batches(prepare=prepare):
                writer.extend(columns)


class _Npz(_OneFile):
    """One array a column, each written in a pass of its own; text as strings of the longest one's length."""

    kind = "npz"

    def _write_into(self, file: Any, feed: Feed) -> None:
        from data_stack.formats.numpy_arrays import write_npz

        columns: dict[str, Iterator[_Array]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name in feed.names:
            dtype, shape = self._fixed(feed.source, name)
            columns[name] = self._texts(feed, name) if dtype is str else self._blocks(feed, name, dtype, shape)
            shapes[name] = (feed.n_samples, *shape)
        write_npz(file, columns, shapes=shapes)

    def _texts(self, feed: Feed, name: str) -> Iterator[_Array]:
        longest, first = 1, 0
        for batch in feed.batches([name], counts=False):
            for row, text in enumerate(batch[name]):
                if text.endswith("\0"):
                    raise ConfigError(f"column {name!r} of sample {first + row} ends with a NUL, which NumPy's strings lose")
                longest = max(longest, len(text))
            first += len(batch[name])
        if not first:
            yield np.empty(0, f"U{longest}")
        for batch in feed.batches([name]):
            yield np.array(batch[name].tolist(), f"U{longest}")


class _Torch(_OneFile):
    """A dict of tensors, each written in a pass of its own."""

    kind = "torch"

    def _write_into(self, file: Any, feed: Feed) -> None:
        from data_stack.formats.torch_tensors import write_tensors

        fixed = {name: self._fixed(feed.source, name) for name in feed.names}
        write_tensors(
            file,
            {name: self._blocks(feed, name, dtype, shape) for name, (dtype, shape) in fixed.items()},
            shapes={name: (feed.n_samples, *shape) for name, (_, shape) in fixed.items()},
            dtypes={name: dtype for name, (dtype, _) in fixed.items()},
        )


TARGETS: Final[Mapping[str, type[Target]]] = {
    each.kind: each for each in (_Records, _HDF5, _Npz, _Torch, _WebDataset, _Parquet, _Images)
}
"""The formats that can be written, by name."""
