"""Record datasets in stores: MongoDB, S3, files, memory, the resources of a dataset; few requests, no more bytes than needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_store import FarStorageConnector

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records import Column, RecordReader, RecordWriter
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.testing.iterators import assert_same

N = 400
SPEC: dict[str, str | Column] = {"id": "i64", "text": "utf8", "x": Column("array", "float32", (64,))}


def sample(i: int) -> dict[str, Any]:
    return {"id": i, "text": f"text {i} " * (i % 9), "x": np.full(64, i, np.float32)}


def write(store: Any, prefix: str = "", n: int = N) -> None:
    with RecordWriter(store, SPEC, prefix=f"{prefix}plain") as writer:
        for i in range(n):
            writer.append(sample(i))


def test_rows_out_of_a_column_are_one_request(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, block_bytes=4096)
    write(store)

    with RecordReader(store, prefix="plain") as reader:
        reader.read_column("id")
        store.requests.clear()
        found = reader.read_column("x", [3, 4, 5, 390, 391, 7])

    assert found[:, 0].tolist() == [3, 4, 5, 390, 391, 7]
    assert len(store.requests) == 1


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
