"""Writes WebDataset's shards, the same bytes for the same samples."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any

from data_stack.exception import ConfigError, UnsafeArchiveError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.webdataset_fields import KEY, FieldType, codec_of_field, key_and_field
from data_stack.formats.webdataset_shards import SHARD_INDEX
from data_stack.io.archives.archive import check_name
from data_stack.io.folder import Folder, folder_of
from data_stack.io.location import Location

DEFAULT_SHARDLEN = 10_000


class WebDatasetWriter(DatasetWriter):
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
        shardlen: int = DEFAULT_SHARDLEN,
        types: Mapping[str, FieldType] | None = None,
    ) -> None:
        if shardlen < 1:
            raise ConfigError(f"a shard holds at least one sample, got shardlen={shardlen}")
        self._folder = folder_of(target, prefix)
        self._name = name or os.path.basename(self._folder.name.rstrip("/")) or "shard"
        self._shardlen, given = shardlen, dict(types or {})
        self._codec = functools.cache(lambda field: codec_of_field(field, given))
        self._full: list[tuple[str, int]] = []
        self._length = 0
        if self._folder.has_file(self._shard(0)):
            raise ConfigError(
                f"{self._folder.full_name(self._shard(0))} exists already; choose another folder or name"
            )
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
            raise ConfigError(
                f"the writer of shards in {self._folder.name!r} is closed; open another one"
            )
        position = self._length
        key = str(sample.get(KEY, f"{position:09d}"))
        parts = self._parts(sample, key)
        if self._tar is None:
            self._tar = _TarWriter(self._folder, self._shard(len(self._full)))
        self._tar.add(key, parts)
        self._length += 1
        if self._tar.n_samples == self._shardlen:
            self._finish_shard(self._tar)
        return position

    def close(self) -> None:
        """Finish the last shard, and list all of them in ``shardindex.json``."""
        if not self._is_closed:
            if self._tar is not None or not self._full:
                self._finish_shard(self._tar or _TarWriter(self._folder, self._shard(0)))
            self._is_closed = True
            self._list_shards()

    def abandon(self) -> None:
        """Discard the shard that is not full, and close."""
        if self._tar is not None:
            self._tar.abandon()
            self._length -= self._tar.n_samples
            self._tar = None
        self._is_closed = True

    # ------------------------------------------------------------------ inside

    def _shard(self, number: int) -> str:
        return f"{self._name}-{number:06d}.tar"

    def _list_shards(self) -> None:
        shards = [{"url": name, "nsamples": n_samples} for name, n_samples in self._full]
        index = {
            "__kind__": "wids-shard-index-v1",
            "wids_version": 1,
            "name": self._name,
            "shardlist": shards,
        }
        with self._folder.create(SHARD_INDEX) as file:
            file.write(json.dumps(index, indent=1).encode())

    def _finish_shard(self, tar: _TarWriter) -> None:
        self._tar = None
        tar.finish()
        self._full.append((tar.name, tar.n_samples))

    def _parts(self, sample: Mapping[str, Any], key: str) -> list[tuple[str, bytes]]:
        """The files of a sample by name."""
        parts = []
        for field in sorted(field for field in sample if not field.startswith("__")):
            path, value = _path(key, field), sample[field]
            if isinstance(value, (bytes, bytearray, memoryview)):
                parts.append((path, bytes(value)))
                continue
            codec = self._codec(field)
            try:
                parts.append((path, codec.encode(value)))
            except (TypeError, ValueError, OverflowError) as error:
                raise ConfigError(
                    f"field {field!r} of sample {self._length} cannot be stored: {error}"
                ) from error
        if not parts:
            raise ConfigError(f"sample {self._length} has no fields to write")
        return parts


class SingleShardWriter(WebDatasetWriter):
    """Writes one tar of all samples under a name of its own, without a list of shards."""

    def __init__(self, place: Location) -> None:
        super().__init__(place.folder, name=place.name, shardlen=sys.maxsize)

    def _shard(self, number: int) -> str:
        return self._name

    def _list_shards(self) -> None:
        pass


class _TarWriter:
    """Writes a tar: plain headers without times or owners, and pax headers if a name needs one."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name, self.n_samples = name, 0
        self._stack = contextlib.ExitStack()
        file = self._stack.enter_context(folder.create(name))
        self._tar = tarfile.TarFile(
            fileobj=file, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8"
        )
        self._keys: set[str] = set()

    def add(self, key: str, parts: Iterable[tuple[str, bytes]]) -> None:
        if key in self._keys:
            raise ConfigError(
                f"two samples of {self.name} have the key {key!r}; keys must be unique in a shard"
            )
        self._keys.add(key)
        for path, data in parts:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            self._tar.addfile(info, io.BytesIO(data))
        self._tar.members.clear()  # type: ignore[attr-defined]  # one for each file
        self.n_samples += 1

    def finish(self) -> None:
        self._tar.close()
        self._stack.close()

    def abandon(self) -> None:
        self._stack.__exit__(
            GeneratorExit, GeneratorExit(), None
        )  # an exception keeps the context from publishing


def _path(key: str, field: str) -> str:
    """The name of a field's file.

    Raises:
        ConfigError: the key or field cannot be part of a file's name.
    """
    if not field or "/" in field or field.startswith(".") or field != field.lower():
        raise ConfigError(
            f"invalid field {field!r}: a field must be lower-case, without '/', and must not begin with a dot"
        )
    path = f"{key}.{field}"
    try:
        is_name = check_name(path, "a shard") == path
    except UnsafeArchiveError as error:
        raise ConfigError(f"invalid key {key!r:.80}: {error}") from error
    if (
        not is_name
        or key_and_field(path) != (key, field)
        or path.rpartition("/")[2].startswith(".")
    ):
        raise ConfigError(
            f"invalid key {key!r:.80}: a key must be a relative path without a dot in its last part"
        )
    return path
