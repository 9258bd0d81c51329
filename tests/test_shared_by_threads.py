"""What threads share is made once, keeps all that they add, and mixes up none of their errors.

docs/stability.md lists what threads may share. Each test lets threads begin at the same moment.
"""

from __future__ import annotations

import contextvars
import io
import itertools
import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.predicates import in_lambda
from fsspec.implementations.memory import MemoryFileSystem
from process_harness import in_fork
from racing import race
from writing import append_all, image_bytes

import data_stack
from data_stack.codecs import Codec, FunctionCodec, register_codec, registered_types, registry
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    SampleAccess,
    SequenceDatasetIterator,
    access_to,
)
from data_stack.exception import StorageError
from data_stack.formats.builtin.npz import NpzFormat
from data_stack.formats.format import Format
from data_stack.formats.hdf5.file import HDF5File
from data_stack.formats.image_folder import ImageFolderIterator
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.records import ShardedRecordReader, ShardedRecordWriter
from data_stack.formats.registry import known_formats, register_format, unregister_format
from data_stack.formats.remote import RemoteAccess
from data_stack.io.content import FileDigests
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.io.storage_connectors.cached.health import FolderHealth
from data_stack.io.storage_connectors.cached.remote import Remote
from data_stack.io.storage_connectors.cached.room import CacheRoom
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.versions import SeenVersions
from data_stack.plugins import default_manager
from data_stack.repository import default_repository
from data_stack.util.executor import Executor
from data_stack.util.made_once import made_once

#: Long enough for all threads to come while the first one is still making what they share.
MOMENT_SECONDS = 0.05


# ---------------------------------------------------------------------- made once


def test_one_thread_makes_what_all_get() -> None:
    made: list[object] = []

    @made_once
    def make() -> object:
        time.sleep(MOMENT_SECONDS)
        made.append(object())
        return made[-1]

    values = race(lambda number: make())

    assert len(made) == 1
    assert set(values) == set(made)


def test_all_threads_get_one_default_repository() -> None:
    default_manager.cache_clear()
    default_repository.cache_clear()

    repositories = race(lambda number: data_stack.default_repository())

    assert len(set(map(id, repositories))) == 1


class Slow(AccessedDatasetIterator):
    """Numbers whose access takes a moment to make."""

    def make_access(self) -> SampleAccess:
        time.sleep(MOMENT_SECONDS)
        return access_to(SequenceDatasetIterator([[1, 2, 3]]))


def test_threads_that_read_first_share_one_access() -> None:
    iterator = Slow()

    accesses = race(lambda number: access_to(iterator))

    assert len(set(map(id, accesses))) == 1


class Listed(InMemoryStorageConnector):
    """Counts how often its resources are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.n_listings = 0

    def list_resources(self, prefix: str = "") -> list[str]:
        self.n_listings += 1
        time.sleep(MOMENT_SECONDS)
        return super().list_resources(prefix)


def test_a_folder_of_images_is_listed_once() -> None:
    store = Listed()
    store.set_resource("pets/cat/1.png", image_bytes(np.zeros((2, 2, 3), np.uint8)))
    iterator = ImageFolderIterator(store, prefix="pets")

    lengths = race(lambda number: len(iterator))

    assert lengths == [1] * 8
    assert store.n_listings == 1


def test_the_rows_of_a_filter_are_selected_once(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "a.parquet")
    n_calls = itertools.count()

    def is_even(x: int) -> bool:
        next(n_calls)
        return x % 2 == 0

    rows = ParquetDataset(tmp_path, filters=in_lambda(["x"], is_even))

    lengths = race(lambda number: len(rows))

    assert lengths == [50] * 8
    assert next(n_calls) == 100


class SlowFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that takes a moment to connect."""

    protocol = "slow-memory"
    n_connections = itertools.count()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        next(self.n_connections)
        time.sleep(MOMENT_SECONDS)
        super().__init__(*arguments, **options)


def test_threads_connect_to_a_store_once() -> None:
    fsspec.register_implementation("slow-memory", SlowFileSystem, clobber=True)
    connector = FsspecStorageConnector("slow-memory://store/a")

    race(lambda number: connector.has_resource("a"))

    assert next(SlowFileSystem.n_connections) == 1


# ---------------------------------------------------------------------- nothing is lost


def test_of_two_versions_of_a_file_the_second_is_noticed() -> None:
    n_files = 2_000
    seen = SeenVersions(n_files)

    unchanged = race(
        lambda number: [seen.is_unchanged(file, str(number)) for file in range(n_files)], 2
    )

    assert [sum(answers) for answers in zip(*unchanged, strict=True)] == [1] * n_files


def test_digests_of_files_may_be_forgotten_meanwhile(tmp_path: Path) -> None:
    store = FileStorageConnector(tmp_path)
    for number in range(2):
        store.set_resource(f"{number}", [b"data"])
    digests = FileDigests(max_files=1, settling_ns=0)
    resources = [store.get_resource(f"{number % 2}") for number in range(4)]

    found = race(
        lambda number: {digests.sha256_of(resources[number]) for _ in range(2_000)}, len(resources)
    )

    assert set(map(len, found)) == {1}
    for opened in resources:
        opened.close()


def test_an_opened_resource_that_nobody_takes_is_closed() -> None:
    opened: list[StreamedResource] = []

    class Counted(InMemoryStorageConnector):
        checks_reads = True

        def get_resource(self, identifier: str, *_: Any) -> StreamedResource:
            opened.append(super().get_resource(identifier))
            return opened[-1]

    store = Counted()
    store.set_resource("a", [b"data"])
    remote = Remote(store)

    race(lambda number: [remote.describe("a", to_open=True) for _ in range(200)])

    assert sum(not resource.closed for resource in opened) == 1


def test_threads_take_no_more_room_than_a_cache_has(tmp_path: Path) -> None:
    page = bytes(4096)
    max_bytes = 200 * len(page)
    room = CacheRoom(str(tmp_path), max_bytes, FolderHealth(str(tmp_path)))
    (tmp_path / "bytes").mkdir()

    def write_pages(number: int) -> None:
        for file in range(60):
            if room.has_room(len(page)):
                (tmp_path / "bytes" / f"{number}-{file}").write_bytes(page)

    race(write_pages)

    assert 0 < sum(file.stat().st_size for file in tmp_path.rglob("*-*")) <= max_bytes


def test_a_loop_over_codecs_survives_a_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_classes", registered_types())

    def work(number: int) -> None:
        for count in range(100):
            if number == 0:
                register_codec(type_of_codec(f"codec_{count}"))
            else:
                assert all(codec.name for codec in registered_types().values())

    race(work)

    assert {f"codec_{count}" for count in range(100)} <= registered_types().keys()


def type_of_codec(codec_name: str) -> type[Codec]:
    class NamedCodec(FunctionCodec):
        name = codec_name

    NamedCodec.__qualname__ = codec_name
    return NamedCodec


def test_a_loop_over_formats_survives_a_registration() -> None:
    before = set(known_formats())

    def work(number: int) -> None:
        for count in range(100):
            if number < 4:
                register_format(type_of_format(f"format-{number}-{count}"))
                unregister_format(f"format-{number}-{count}")
            else:
                assert before <= {format_.name for format_ in known_formats().values()}

    race(work)

    assert set(known_formats()) == before


def type_of_format(format_name: str) -> type[Format]:
    class NamedFormat(NpzFormat):
        name = format_name

    return NamedFormat


def test_datasets_sharing_a_limit_of_files_open_at_once(tmp_path: Path) -> None:
    append_all(
        ShardedRecordWriter(tmp_path, {"x": "i64"}, shardlen=1), [{"x": x} for x in range(60)]
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 200, hard))

    try:
        with ShardedRecordReader(tmp_path) as reader:
            read = race(lambda number: [reader[x]["x"] for _ in range(5) for x in range(60)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert read == [[*range(60)] * 5] * 8


class Distant(RemoteAccess):
    """Numbers that a store far away holds, one in each block."""

    n_samples = 5_000

    def remote_bytes(self) -> float:
        return 1.0

    def blocks(self) -> npt.NDArray[np.int64]:
        return np.ones(self.n_samples, np.int64)

    def fetches(
        self, positions: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        return [lambda: positions]

    def sample(self, position: int) -> int:
        return position


def test_threads_may_prefetch_from_one_source() -> None:
    access = Distant(None)
    positions = np.arange(access.n_samples)

    def prefetch_in_parts(number: int) -> None:
        for part in np.array_split(positions, 100):
            access.prefetch(part)

    race(prefetch_in_parts)

    assert access.await_prefetched(positions[-1:])


# ---------------------------------------------------------------------- forks, errors, contexts


def test_threads_of_a_fork_may_read_resources_of_its_parent() -> None:
    store = InMemoryStorageConnector()
    store.set_resource("a", [b"0123456789"])
    resources = [store.get_resource("a") for _ in range(300)]
    for resource_of_parent in resources:
        resource_of_parent.read(1)

    def read_in_threads() -> bool:
        read = race(lambda number: [each.read_at(2, 3) for each in resources])
        return read == [[b"234"] * len(resources)] * 8

    assert in_fork(read_in_threads) == 0


def test_an_hdf5_error_is_raised_in_the_thread_that_read() -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as written:
        written.create_dataset("good", data=np.ones(100_000), chunks=(100_000,))
        written.create_dataset("bad", data=np.ones(100_000), chunks=(100_000,))
        place = written["bad"].id.get_chunk_info(0).byte_offset

    class Failing(StreamedResource):
        def readinto_at(self, offset: int, target: Any, /) -> int:
            if offset == place:
                raise StorageError("the server is gone")
            return super().readinto_at(offset, target)

    file = HDF5File(Failing("data.h5", buffer))
    has_failed, has_read = threading.Event(), threading.Event()

    def read(number: int) -> float:
        if number == 0:
            with pytest.raises(StorageError, match="gone"), file.reading():
                file.root["bad"][:]
                has_failed.set()
                assert has_read.wait(120)
            return 0.0
        assert has_failed.wait(120)
        with file.reading():
            total = float(file.root["good"][:].sum())
        has_read.set()
        return total

    assert race(read, 2) == [0.0, 100_000.0]


def test_a_thread_of_an_executor_has_an_empty_context() -> None:
    setting = contextvars.ContextVar[str]("setting")
    executor = Executor("test-context", lambda: 1, grace_seconds=1.0)

    setting.set("of the first caller")
    found = executor.submit(lambda: setting.get("")).result()

    assert found == ""
