"""What is converted to: how each format is written, and gone on with after an interruption."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column
from data_stack.codecs.registry import media_types
from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.conversion.feed import Feed, Prepare, size_of
from data_stack.formats.conversion.source import Source
from data_stack.formats.image_folder import METADATA, ImageFolderWriter
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.manifest import MANIFEST
from data_stack.formats.webdataset import KEY, SHARD_INDEX, FieldEncoder, WebDatasetWriter, field_of_column, write_shard
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.io.storage_errors import storage_errors
from data_stack.util.request_limit import check_request

__all__ = ["TARGETS", "Target"]

_DEFAULT_SHARDLEN: Final = 10_000
_LOOKED_AT: Final = 16
#: dtypes that torch has.
_TORCH: Final = frozenset(("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))

_INTEGERS: Final = {"i64": np.dtype(np.int64), "u64": np.dtype(np.uint64), "int": np.dtype(np.int64)}

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

    def _append(
        self, writer: Any, feed: Feed, append: Callable[[Any], Any], begun: _Begun | None = None, prepare: Prepare | None = None
    ) -> int:
        """Append what ``writer`` does not have yet, batch by batch; the number of samples that it had."""
        with writer:
            n_there = len(writer)
            self._has_all(n_there, feed.source)
            if begun is not None:
                begun(n_there)
            feed.skip(n_there)
            for batch in feed.batches(feed.source.stored_names, start=n_there, prepare=prepare):
                append(batch)
        return n_there


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
        if not (folder.subfolder(shard_name(0)) if is_sharded else folder).has_file(MANIFEST):
            return False
        with records.open(folder) as reader:
            n_there = len(reader)
        return self._has_all(n_there, source)

    def write(self, feed: Feed, begun: _Begun) -> int:
        spec = {name: _record_column(column) for name, column in feed.source.schema.items()}
        folder = self.location.as_folder()
        writer: Any = (
            records.RecordWriter(folder, spec)
            if self.shardlen is None
            else records.ShardedRecordWriter(folder, spec, shardlen=self.shardlen)
        )

        return self._append(writer, feed, writer.extend, begun)


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
        return manifest is not None and self._has_all(manifest.n_rows, source)

    def write(self, feed: Feed, begun: _Begun) -> int:
        from data_stack.formats.parquet import ParquetWriter

        stored = feed.source.stored_names
        writer = ParquetWriter(self.location.as_folder(), self._schema(feed.source), rows_per_file=self.shardlen)
        return self._append(writer, feed, lambda columns: writer.append_columns(columns, encoded=stored), begun)

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
            return self._write_into(self.location.as_folder(), feed)
        part = self._part
        n_there = self._write_into(part.as_folder(), feed)
        with storage_errors(f"rename {part.full_name} to", path):
            os.rename(str(part.path), path)
        return n_there

    @abstractmethod
    def _write_into(self, folder: Folder, feed: Feed) -> int:
        """Write all into a folder; the number of samples that were there."""


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
        batches = feed.batches(feed.source.stored_names, prepare=self._to_samples(feed.source))
        write_shard(self.location.folder, self.location.name, (sample for batch in batches for sample in batch))
        return 0

    def _write_into(self, folder: Folder, feed: Feed) -> int:
        shardlen = _DEFAULT_SHARDLEN if self.shardlen is None else self.shardlen
        writer = WebDatasetWriter(folder, name=self.location.name, shardlen=shardlen)

        def append(samples: list[dict[str, Any]]) -> None:
            for sample in samples:
                writer.append(sample)

        return self._append(writer, feed, append, prepare=self._to_samples(feed.source))

    def _to_samples(self, source: Source) -> Prepare:
        """Makes samples of columns, with the bytes of their fields; called in the threads that read ahead."""
        encoder = FieldEncoder()
        fields = {name: _field(name, column) for name, column in source.schema.items() if name != KEY}

        def prepare(first: int, columns: dict[str, Any]) -> list[dict[str, Any]]:
            samples: list[dict[str, Any]] = []
            for row in range(len(next(iter(columns.values())))):
                sample: dict[str, Any] = {KEY: columns[KEY][row]} if KEY in columns else {}
                for name, field in fields.items():
                    sample[field] = encoder.encoded(field, columns[name][row], first + row)
                samples.append(sample)
            return samples

        return prepare


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

    def _write_into(self, folder: Folder, feed: Feed) -> int:
        writer = ImageFolderWriter(folder)

        def append(columns: dict[str, Any]) -> None:
            for row, image in enumerate(columns["image"]):
                if np.ndim(image) == 3 and np.shape(image)[2] == 1:
                    raise ConfigError(
                        f"image {len(writer)} has the shape {np.shape(image)}: PNG would lose its last axis; give it without "
                        f"(.map), or choose another format"
                    )
                writer.append({name: values[row] for name, values in columns.items()})

        return self._append(writer, feed, append)


# ---------------------------------------------------------------------- one file, one shape a column


class _OneFile(Target):
    """A file of columns whose values have one dtype and shape; they are collected in memory, and written at once."""

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

    def write(self, feed: Feed, begun: _Begun) -> int:
        parts: dict[str, list[_Array]] = {name: [] for name in feed.source.schema}
        n_bytes = 0
        for batch in feed.batches():
            n_bytes += sum(size_of(column) for column in batch.values())
            check_request(n_bytes, f"the samples of {feed.source.name!r}, which {self.kind} holds in one piece,")
            for name, values in batch.items():
                parts[name].append(values)
        columns = {name: self._joined(name, parts.pop(name), column) for name, column in feed.source.schema.items()}
        with self.location.folder.create(self.location.name) as file:
            try:
                self._save(file, columns)
            except (TypeError, ValueError) as error:
                if isinstance(error, ConfigError):
                    raise
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
        kind, dtype, fixed = _plain_type(column.type), column.dtype, column.shape
        if kind == "utf8":
            return np.concatenate([np.empty(0, object), *parts])
        if kind in _INTEGERS:
            dtype, fixed = dtype or _INTEGERS[kind], ()
        if not parts:
            if dtype is None or fixed is None or None in fixed:
                raise ConfigError(f"column {name!r} has no values, and so no shape, which {self.kind} needs")
            parts = [np.empty((0, *map(int, fixed)), dtype)]  # type: ignore[arg-type]  # no None is among them
        first, shape = 0, np.shape(parts[0][0]) if len(parts[0]) else parts[0].shape[1:]
        for part in parts:
            if part.dtype.kind == "O" or part.shape[1:] != shape:
                self._refuse(part, shape, name, first)
            first += len(part)
        values = np.concatenate(parts)
        if dtype is not None and values.dtype != dtype:
            values = values.astype(dtype)
        self._check_dtype(values.dtype, name)
        return values

    def _check_dtype(self, dtype: np.dtype[Any], name: str) -> None:
        if dtype.kind not in self.dtype_kinds:
            raise ConfigError(
                f"column {name!r} is of dtype {dtype}, which {self.kind} cannot hold; map it to another, or leave it out"
            )

    def _refuse(self, values: _Array, shape: tuple[int, ...], name: str, first: int) -> None:
        odd = next((row for row, value in enumerate(values) if np.shape(value) != shape), None)
        if odd is None:
            raise ConfigError(
                f"column {name!r} has values from sample {first} on that no dtype holds together: map them to one, leave "
                f"it out (--columns …), or choose records or webdataset"
            )
        raise ConfigError(
            f"column {name!r} of sample {first + odd} has the shape {np.shape(values[odd])}, others have {shape}: in "
            f"{self.kind} all values of a column have one shape. Bring them to one (.map), leave it out (--columns …), or choose "
            f"records or webdataset"
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

        arrays = {name: _fixed_text(values, name) if values.dtype == object else values for name, values in columns.items()}
        write_npz(file, {name: [array] for name, array in arrays.items()}, shapes={n: array.shape for n, array in arrays.items()})


def _fixed_text(values: _Array, name: str) -> _Array:
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
