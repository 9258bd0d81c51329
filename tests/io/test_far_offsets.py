"""Positions and lengths that no file has, on every kind of resource: an empty read or a ValueError, never an OverflowError."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from data_stack.formats.parquet.files import folder_and_paths
from data_stack.io.folder import folder_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector, StorageConnector
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector

CONTENT = bytes(range(256)) * 4
NUMBERS = [0, 3, len(CONTENT), len(CONTENT) + 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 2**70, -1, -(2**63), -(2**70)]


def stored(connector: StorageConnector) -> StreamedResource:
    connector.set_resource("a", CONTENT)
    return connector.get_resource("a")


def file_at(folder: Path) -> Path:
    path = folder / "a"
    path.write_bytes(CONTENT)
    return path


KINDS: dict[str, Callable[[Path], StreamedResource]] = {
    "file": lambda folder: stored(FileStorageConnector(folder)),
    "memory": lambda folder: stored(InMemoryStorageConnector()),
    "fsspec": lambda folder: stored(FsspecStorageConnector(f"local://{folder}")),
    "cache": lambda folder: stored(CachedStorageConnector(FileStorageConnector(folder / "remote"), folder / "cache")),
    "bytes of the caller": lambda folder: StreamedResource("a", io.BytesIO(CONTENT)),
    "file of the caller": lambda folder: StreamedResource("a", file_at(folder).open("rb")),
    "file of a folder": lambda folder: folder_of(file_at(folder).parent).open("a"),
    "file of a file system": lambda folder: folder_and_paths(str(file_at(folder).parent), filesystem=pafs.LocalFileSystem())[
        0
    ].open("a"),
}


def check(resource: StreamedResource) -> None:
    for offset, size in itertools.product(NUMBERS, NUMBERS):
        if offset < 0 or size < 0:
            for read in (resource.read_at, lambda *span: resource.read_ranges([span]), lambda *span: resource.prefetch([span])):
                if resource.prefetches or read.__name__ != "<lambda>":
                    with pytest.raises(ValueError, match="negative"):
                        read(offset, size)
            continue
        expected = CONTENT[offset : offset + size]
        assert resource.read_at(offset, size) == expected
        assert resource.read_ranges([(offset, size), (0, 2)]) == [expected, CONTENT[:2]]
        assert resource.prefetch([(offset, size)]) >= 1
        buffer = bytearray(min(size, 8))
        assert bytes(buffer[: resource.readinto_at(offset, buffer)]) == CONTENT[offset : offset + len(buffer)]
    resource.seek(0)
    assert resource.read(2**70) == CONTENT
    for call in (lambda: resource.seek(2**70), lambda: resource.seek(-(2**70)), lambda: resource.read(-(2**70))):
        with pytest.raises(ValueError, match=r"byte|at least|negative"):
            call()


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_far_behind_the_end_is_empty_and_one_before_the_start_a_value_error(tmp_path: Path, kind: str) -> None:
    with KINDS[kind](tmp_path) as resource:
        check(resource)
