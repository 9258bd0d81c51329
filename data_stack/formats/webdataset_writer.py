"""Writes WebDataset's shards, the same bytes for the same samples."""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from data_stack.codecs.codec import Codec
from data_stack.exception import ConfigError, UnsafeArchiveError
from data_stack.formats.webdataset import BLOCK_BYTES, INDEX_KIND, KEY, SHARD_INDEX, FieldType, codec_of_field, key_and_field
from data_stack.io.archives.archive import check_name
from data_stack.io.folder import Folder, folder_of

if TYPE_CHECKING:
    from typing_extensions import Self


class WebDatasetWriter:
    """Writes WebDataset shards ``NAME-000000.tar``, ``NAME-000001.tar`` …, the same bytes for the same samples.

    ::

        with WebDatasetWriter("train", name="train") as writer:
            writer.append({"jpg": image, "cls": 7})

    A shard is published when it is full, and ``shardindex.json`` when the writer is closed.

    Args:
        target: a path, a StorageConnector, a URL, or a Folder.
        prefix: folder below it.
        name: name of the shards; None for the name of the folder.
        shardlen: samples in each shard but the last.
        types: as for :class:`~data_stack.formats.webdataset.WebDatasetIterator`.

    Raises:
        ConfigError: shards of that name exist already.
    """

    def __init__(
        self,
        target: Any,
        *,
        prefix: str = "",
        name: str | None = None,
        shardlen: int = 10_000,
        types: Mapping[str, FieldType] | None = None,
    ) -> None:
        if shardlen < 1:
            raise ConfigError(f"a shard holds at least one sample, got shardlen={shardlen}")
        self._folder = folder_of(target, prefix)
        self._name = name or os.path.basename(self._folder.name.rstrip("/")) or "shard"
        self._shardlen, self._types = shardlen, dict(types or {})
        self._codecs: dict[str, Codec] = {}
        self._full: list[tuple[str, int]] = []
        self._length = 0
        if self._folder.has_file(self._shard(0)):
            raise ConfigError(f"{self._folder.full_name(self._shard(0))} exists already; choose another folder or name")
        self._tar: _TarWriter | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Number of samples."""
        return self._length

    def append(self, sample: Mapping[str, Any]) -> int:
        """Write a sample; return its position.

        Args:
            sample: values by field. Bytes are stored unchanged, other values by the extension of the field. ``__key__`` is the
                key, by default the position in nine digits; other names that begin with ``__`` are left out.

        Raises:
            ConfigError: a field or key is invalid, a key is used twice, or a value does not fit its extension. Nothing of the
                sample was written.
        """
        if self._is_closed:
            raise ConfigError(f"the writer of shards in {self._folder.name!r} is closed; open another one")
        position = self._length
        key, parts = _parts(sample, position, self._types, self._codecs)
        if self._tar is None:
            self._tar = _TarWriter(self._folder, self._shard(len(self._full)))
        self._tar.add(key, parts)
        self._length += 1
        if self._tar.n_samples == self._shardlen:
            self._finish_shard()
        return position

    def close(self) -> None:
        """Finish the last shard, and list all of them in ``shardindex.json``."""
        if not self._is_closed:
            if self._tar is not None or not self._full:
                self._tar = self._tar or _TarWriter(self._folder, self._shard(0))
                self._finish_shard()
            self._is_closed = True
            shards = [{"url": name, "nsamples": n_samples} for name, n_samples in self._full]
            index = {"__kind__": INDEX_KIND, "wids_version": 1, "name": self._name, "shardlist": shards}
            with self._folder.create(SHARD_INDEX) as file:
                file.write(json.dumps(index, indent=1).encode())

    def abandon(self) -> None:
        """Discard the shard that is not full, and close."""
        if self._tar is not None:
            self._tar.abandon()
            self._length -= self._tar.n_samples
            self._tar = None
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            self.close()
        else:
            self.abandon()

    # ------------------------------------------------------------------ inside

    def _shard(self, number: int) -> str:
        return f"{self._name}-{number:06d}.tar"

    def _finish_shard(self) -> None:
        tar, self._tar = self._tar, None
        if tar is not None:
            tar.finish()
            self._full.append((tar.name, tar.n_samples))


def write_shard(folder: Folder, file: str, samples: Iterable[Mapping[str, Any]]) -> int:
    """Write one tar of all ``samples``, as :class:`WebDatasetWriter` writes a shard; it is published when it is complete.

    Returns:
        The number of samples.

    Raises:
        ConfigError: as for :meth:`WebDatasetWriter.append`.
    """
    codecs: dict[str, Codec] = {}
    tar = _TarWriter(folder, file)
    try:
        for position, sample in enumerate(samples):
            tar.add(*_parts(sample, position, {}, codecs))
    except BaseException:
        tar.abandon()
        raise
    tar.finish()
    return tar.n_samples


def _parts(
    sample: Mapping[str, Any], position: int, types: Mapping[str, FieldType], codecs: dict[str, Codec]
) -> tuple[str, list[tuple[str, bytes]]]:
    """The key of a sample, and its files; ``codecs`` caches the codecs of fields."""
    key = str(sample.get(KEY, f"{position:09d}"))
    parts = []
    for field in sorted(field for field in sample if not field.startswith("__")):
        path, value = _path(key, field), sample[field]
        if isinstance(value, (bytes, bytearray, memoryview)):
            parts.append((path, bytes(value)))
            continue
        if field not in codecs:
            codecs[field] = codec_of_field(field, types)
        try:
            parts.append((path, codecs[field].encode(value)))
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"field {field!r} of sample {position} cannot be stored: {error}") from error
    if not parts:
        raise ConfigError(f"sample {position} has no fields to write")
    return key, parts


class _TarWriter:
    """Writes a tar: plain headers without times or owners, and pax headers if a name needs one."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name, self.n_samples = name, 0
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(folder.create(name))
        self._keys: set[str] = set()
        self._size = 0

    def add(self, key: str, parts: Iterable[tuple[str, bytes]]) -> None:
        if key in self._keys:
            raise ConfigError(f"two samples of {self.name} have the key {key!r}; keys must be unique in a shard")
        self._keys.add(key)
        for path, data in parts:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            header = info.tobuf(tarfile.PAX_FORMAT, "utf-8")
            self._write(b"".join((header, data, bytes(-len(data) % BLOCK_BYTES))))
        self.n_samples += 1

    def finish(self) -> None:
        self._write(bytes(2 * BLOCK_BYTES))
        self._write(bytes(-self._size % tarfile.RECORDSIZE))
        self._stack.close()

    def abandon(self) -> None:
        self._stack.__exit__(GeneratorExit, GeneratorExit(), None)  # an exception keeps the context from publishing

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        self._file.write(data)


def _path(key: str, field: str) -> str:
    """The name of a field's file.

    Raises:
        ConfigError: the key or field cannot be part of a file's name.
    """
    if not field or "/" in field or field.startswith(".") or field != field.lower():
        raise ConfigError(f"invalid field {field!r}: a field must be lower-case, without '/', and must not begin with a dot")
    path = f"{key}.{field}"
    try:
        is_name = check_name(path, "a shard") == path
    except UnsafeArchiveError as error:
        raise ConfigError(f"invalid key {key!r:.80}: {error}") from error
    if not is_name or key_and_field(path) != (key, field) or path.rpartition("/")[2].startswith("."):
        raise ConfigError(f"invalid key {key!r:.80}: a key must be a relative path without a dot in its last part")
    return path
