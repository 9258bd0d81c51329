"""Record datasets in stores: MongoDB, S3, files, memory, the resources of a dataset; few requests, no more bytes than needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records import Column, RecordReader, RecordWriter
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.storage_connectors.connector import BINARY
from data_stack.testing.iterators import assert_same

N = 400
SPEC: dict[str, str | Column] = {"id": "i64", "text": "utf8", "x": Column("array", "float32", (64,))}


def sample(i: int) -> dict[str, Any]:
    return {"id": i, "text": f"text {i} " * (i % 9), "x": np.full(64, i, np.float32)}


def write(store: Any, prefix: str = "", n: int = N) -> None:
    with RecordWriter(store, SPEC, prefix=f"{prefix}plain") as writer:
        for i in range(n):
            writer.append(sample(i))


class _CountingStore(InMemoryStorageConnector):
    """Counts the requests for ranges and their bytes. As a store that is far away it says that it checks what it sends."""

    checks_reads = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, int, int]] = []

    def get_resource(self, identifier: str, resource_type: Any = BINARY) -> StreamedResource:
        resource = super().get_resource(identifier, resource_type)
        source: Any = resource._source
        read, read_ranges, requests = source.readinto_at, source.read_ranges, self.requests

        def counted(offset: int, buffer: memoryview) -> int:
            requests.append((identifier.rpartition("/")[2], 1, len(buffer)))
            return int(read(offset, buffer))

        def counted_ranges(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            n_before = len(requests)
            found: list[bytes] = read_ranges(ranges)
            del requests[n_before:]
            requests.append((identifier.rpartition("/")[2], len(ranges), sum(size for _, size in ranges)))
            return found

        source.readinto_at, source.read_ranges = counted, counted_ranges
        return resource


def test_a_batch_is_one_request_a_column() -> None:
    store = _CountingStore()
    write(store)
    indices = [3, 4, 5, 390, 391, 7]

    with RecordReader(store, prefix="plain") as reader:
        reader.read_batch(indices)
        store.requests.clear()
        reader.read_batch(indices)

        assert sorted(name for name, _, _ in store.requests) == ["id.bag", "text.bag", "x.bag"]
        assert {name: n_ranges for name, n_ranges, _ in store.requests}["x.bag"] == 2  # neighbours are one range
        assert sum(size for _, _, size in store.requests) < 25_000  # of 120,000: what lies close is read along
        store.requests.clear()
        reader.read_column("x", range(100, 120))
        assert [name for name, _, _ in store.requests] == ["x.bag"]


def test_a_store_that_does_not_check_what_it_sends_is_checked() -> None:
    store = InMemoryStorageConnector()
    write(store)
    data, info = store._stored["plain/x.bag"]
    store._stored["plain/x.bag"] = (data[:1000] + bytes([data[1000] ^ 1]) + data[1001:], info)

    with RecordReader(store, prefix="plain") as reader:
        for way in (lambda: reader[2], lambda: reader.read_batch([2, 9]), lambda: reader.read_column("x")):
            with pytest.raises(DatasetFileCorruptError, match=r"x\.bag is damaged"):
                way()
        assert_same(reader[399], sample(399))


def test_another_file_than_the_manifest_describes_is_refused() -> None:
    store = InMemoryStorageConnector()
    write(store)
    data, _ = store._stored["plain/x.bag"]
    store.set_resource("plain/x.bag", [bytes(len(data))])

    with RecordReader(store, prefix="plain") as reader:
        with pytest.raises(DatasetFileCorruptError, match=r"plain/x\.bag is not the file"):
            reader[0]
