"""Writes WebDataset's shards, the same bytes for the same samples."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, Final

from data_stack.exception import ConfigError, UnsafeArchiveError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.webdataset_fields import (
    KEY,
    FieldType,
    codec_of_field,
    key_and_field,
)
from data_stack.formats.webdataset_shards import SHARD_INDEX
from data_stack.io.archives.member_names import normalize_member_name
from data_stack.io.folder import Folder, folder_of
from data_stack.io.location import Location

#: How many samples a shard has if a user does not say.
DEFAULT_SHARDLEN: Final = 10_000


class WebDatasetWriter(DatasetWriter):
    """Writes WebDataset shards ``NAME-000000.tar``, ``NAME-000001.tar`` …

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

    #: The folder of the shards.
    _folder: Folder

    #: The name of the shards.
    _name: str

    #: Samples in each shard but the last.
    _shardlen: int

    #: The types of fields that the caller gave.
    _types: dict[str, FieldType]

    #: The codec of each field that occurred.
    _codecs: dict[str, Any]

    #: Name and number of samples of each published shard.
    _published: list[tuple[str, int]]

    #: The number of samples that were written.
    _n_samples: int

    #: The shard that is being written; None before its first sample.
    _tar: _TarWriter | None

    #: Whether the writer was closed or abandoned.
    _is_closed: bool

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
        self._shardlen = shardlen
        self._types = dict(types or {})
        self._codecs = {}
        self._published = []
        self._n_samples = 0
        self._tar = None
        self._is_closed = False
        first_shard = self._name_of_shard(0)
        if self._folder.has_file(first_shard):
            raise ConfigError(
                f"{self._folder.full_name(first_shard)} exists already; "
                f"choose another folder or name"
            )

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._n_samples

    def append(self, sample: Mapping[str, Any]) -> int:
        """Write a sample; return its position.

        Args:
            sample: values by field. Bytes are stored unchanged, other values by the extension of
                the field. ``__key__`` is the key, by default the position in nine digits; other
                names that begin with ``__`` are left out.

        Raises:
            ConfigError: a field or key is invalid, a key is used twice, or a value does not fit its
                extension. Nothing of the sample was written.
        """
        if self._is_closed:
            raise ConfigError(
                f"the writer of shards in {self._folder.name!r} is closed; open another one"
            )
        position = self._n_samples
        key = str(sample.get(KEY, f"{position:09d}"))
        files = self._encode(sample, key)
        if self._tar is None:
            self._tar = self._start_shard()
        self._tar.add(key, files)
        self._n_samples += 1
        if self._tar.n_samples == self._shardlen:
            self._publish_shard(self._tar)
        return position

    def close(self) -> None:
        """Finish the last shard, and list all shards in ``shardindex.json``."""
        if self._is_closed:
            return
        # A dataset without samples is one empty shard.
        if self._tar is None and not self._published:
            self._tar = self._start_shard()
        if self._tar is not None:
            self._publish_shard(self._tar)
        self._is_closed = True
        self._list_shards()

    def abandon(self) -> None:
        """Discard the shard that is not full, and close."""
        if self._tar is not None:
            self._tar.abandon()
            self._n_samples -= self._tar.n_samples
            self._tar = None
        self._is_closed = True

    # ------------------------------------------------------------------ shards

    def _name_of_shard(self, number: int) -> str:
        return f"{self._name}-{number:06d}.tar"

    def _start_shard(self) -> _TarWriter:
        return _TarWriter(self._folder, self._name_of_shard(len(self._published)))

    def _publish_shard(self, tar: _TarWriter) -> None:
        """Publish the shard that is being written. The next sample starts another one."""
        # First, as a shard whose publication fails cannot be written to any more.
        self._tar = None
        tar.finish()
        self._published.append((tar.name, tar.n_samples))

    def _list_shards(self) -> None:
        """Write ``shardindex.json``."""
        shards = [{"url": name, "nsamples": n_samples} for name, n_samples in self._published]
        index = {
            "__kind__": "wids-shard-index-v1",
            "wids_version": 1,
            "name": self._name,
            "shardlist": shards,
        }
        with self._folder.create(SHARD_INDEX) as file:
            file.write(json.dumps(index, indent=1).encode())

    # ------------------------------------------------------------------ samples

    def _encode(self, sample: Mapping[str, Any], key: str) -> list[tuple[str, bytes]]:
        """Return path and content of each file of a sample."""
        files = []
        fields = [field for field in sample if not field.startswith("__")]
        for field in sorted(fields):
            path = _path_of(key, field)
            files.append((path, self._encode_field(field, sample[field])))
        if not files:
            raise ConfigError(f"sample {self._n_samples} has no fields to write")
        return files

    def _encode_field(self, field: str, value: Any) -> bytes:
        """Return the content of a field's file.

        Raises:
            ConfigError: the value does not fit the extension of the field.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if field not in self._codecs:
            self._codecs[field] = codec_of_field(field, self._types)
        try:
            encoded: bytes = self._codecs[field].encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"field {field!r} of sample {self._n_samples} cannot be stored: {error}"
            ) from error
        return encoded


class SingleShardWriter(WebDatasetWriter):
    """Writes one tar of all samples under a name of its own, without a list of shards.

    Args:
        place: the path of the tar.
    """

    def __init__(self, place: Location) -> None:
        super().__init__(place.folder, name=place.name, shardlen=sys.maxsize)

    def _name_of_shard(self, number: int) -> str:
        return self._name

    def _list_shards(self) -> None:
        """Do nothing: the tar is the whole dataset."""


class _TarWriter:
    """Writes a tar: plain headers without times or owners, and pax headers if a name needs one.

    Args:
        folder: the folder of the tar.
        name: the name of the tar in it.

    Attributes:
        name: the name of the tar.
        n_samples: the number of samples that were added.
    """

    #: Publishes the tar when it is closed without an error.
    _stack: contextlib.ExitStack

    #: The open tar.
    _tar: tarfile.TarFile

    #: The keys of the samples that were added.
    _keys: set[str]

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.n_samples = 0
        self._keys = set()
        self._stack = contextlib.ExitStack()
        file = self._stack.enter_context(folder.create(name))
        self._tar = tarfile.TarFile(
            fileobj=file, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8"
        )

    def add(self, key: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Add a sample.

        Args:
            key: the key of the sample.
            files: path and content of each of its files.

        Raises:
            ConfigError: the tar has a sample with that key.
        """
        if key in self._keys:
            raise ConfigError(
                f"two samples of {self.name} have the key {key!r}; keys must be unique in a shard"
            )
        self._keys.add(key)
        for path, content in files:
            info = tarfile.TarInfo(path)
            info.size = len(content)
            self._tar.addfile(info, io.BytesIO(content))
        # tarfile keeps an object for each file, which would fill the memory.
        self._tar.members.clear()  # type: ignore[attr-defined]  # not in the stubs
        self.n_samples += 1

    def finish(self) -> None:
        """Publish the tar."""
        self._tar.close()
        self._stack.close()

    def abandon(self) -> None:
        """Discard the tar."""
        # An exception keeps the context of the file from publishing it.
        self._stack.__exit__(GeneratorExit, GeneratorExit(), None)


def _path_of(key: str, field: str) -> str:
    """Return the path of a field's file.

    Raises:
        ConfigError: the key or field cannot be part of a path.
    """
    if not field or "/" in field or field.startswith(".") or field != field.lower():
        raise ConfigError(
            f"invalid field {field!r}: a field must be lower-case, without '/', "
            f"and must not begin with a dot"
        )
    path = f"{key}.{field}"
    try:
        is_unchanged = normalize_member_name(path, "a shard") == path
    except UnsafeArchiveError as error:
        raise ConfigError(f"invalid key {key!r:.80}: {error}") from error
    is_hidden = path.rpartition("/")[2].startswith(".")
    # A reader must find the same key and field in the path.
    if not is_unchanged or is_hidden or key_and_field(path) != (key, field):
        raise ConfigError(
            f"invalid key {key!r:.80}: a key must be a relative path without a dot in its last part"
        )
    return path
