"""Arrow files in a store that is far away: few requests, and no more bytes than are needed."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from far_store import FarStorageConnector
from sizes import sized

from data_stack.exception import DataStackError
from data_stack.formats.arrow_ipc import ArrowDataset
from data_stack.io.storage_connectors import InMemoryStorageConnector

N = 20_000
N_ROWS_OF_BATCH = 4000
LABELS = np.arange(N) % 10
TABLE = pa.table(
    {
        "blob": pa.FixedSizeListArray.from_arrays(
            pa.array(np.random.default_rng(0).integers(0, 256, 1024 * N, np.uint8)), 1024
        ),
        "label": LABELS,
        "kind": pa.array([f"k{number % 3}" for number in range(N)]).dictionary_encode(),
        "nested": pa.array([[{"a": number, "b": None}] for number in range(N)]),
        "nothing": pa.nulls(N),
        "text": [None if number % 7 == 0 else f"text {number}" for number in range(N)],
    }
)
FORMATS = [(False, None), (True, None), (True, "zstd")]


@pytest.fixture
def store(tmp_path: Path) -> FarStorageConnector:
    return FarStorageConnector(tmp_path / "store", block_bytes=1 << 16)


def put(
    store: FarStorageConnector,
    *,
    stream: bool,
    compression: str | None = None,
    n_rows_of_batch: int = N_ROWS_OF_BATCH,
) -> Any:
    """Write the table into a store, and return what opens it."""
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with store.create("a.arrow") as file, new(file, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=n_rows_of_batch)
    return (store, "a.arrow")


@pytest.mark.parametrize(("stream", "compression"), FORMATS)
def test_a_column_is_read_without_the_others(
    store: FarStorageConnector, stream: bool, compression: str | None
) -> None:
    rows = ArrowDataset(put(store, stream=stream, compression=compression))
    store.requests.clear()

    labels = rows.read_column("label")

    assert labels.tolist() == LABELS.tolist()
    assert store.fetched_bytes < TABLE.nbytes / 10
    assert len(store.requests) <= 2


@pytest.mark.parametrize(("stream", "compression"), FORMATS)
@pytest.mark.parametrize("name", ["kind", "nested", "nothing", "text"])
def test_any_column_alone_has_its_values(
    store: FarStorageConnector, stream: bool, compression: str | None, name: str
) -> None:
    rows = ArrowDataset(put(store, stream=stream, compression=compression))

    column = rows.read_column(name)

    expected = TABLE.column(name).to_pylist()
    assert column.tolist() == expected
    assert [rows[position][name] for position in (0, 7, N - 1)] == [
        expected[position] for position in (0, 7, N - 1)
    ]


def test_rows_are_read_with_the_chosen_columns_alone(store: FarStorageConnector) -> None:
    place = put(store, stream=False)
    rows = ArrowDataset(place, ["text", "label"])
    store.requests.clear()

    batch: Any = rows.read_batch([5, 10_005, 19_000])

    assert batch["label"].tolist() == [5, 5, 0]
    assert batch["text"].tolist() == ["text 5", "text 10005", "text 19000"]
    assert store.fetched_bytes < TABLE.nbytes / 10
    assert len(store.requests) <= 2


def test_rows_with_all_columns_take_one_request(store: FarStorageConnector) -> None:
    rows = ArrowDataset(put(store, stream=False))
    store.requests.clear()

    rows.read_batch([5, 10_005])

    assert len(store.requests) == 1


def test_small_record_batches_are_found_by_few_requests(
    store: FarStorageConnector,
) -> None:
    place = put(store, stream=True, n_rows_of_batch=100)
    store.requests.clear()

    assert len(ArrowDataset(place)) == N
    assert len(store.requests) < 20  # of 200 record batches


def test_headers_that_a_footer_lists_are_read_by_one_request(store: FarStorageConnector) -> None:
    place = put(store, stream=False, n_rows_of_batch=100)
    store.requests.clear()

    assert len(ArrowDataset(place)) == N
    assert len(store.requests) < 10


@pytest.mark.filterwarnings("ignore:.*ends without the mark")
def test_a_damaged_header_is_an_error_of_a_column(tmp_path: Path) -> None:
    table = TABLE.slice(0, 1000).select(["blob", "label", "text"])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    data = file.getvalue()
    start = data.index(b"\xff\xff\xff\xff", 8)  # of the record batch, behind the schema
    expected = table.column("label").to_pylist()
    n_errors = 0
    chance = random.Random(0)

    for _ in range(sized(60, 600)):
        place = start + chance.randrange(400)
        damaged = data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
        store = InMemoryStorageConnector()
        store.set_resource("a.arrow", io.BytesIO(damaged))
        try:
            labels = ArrowDataset((store, "a.arrow"), ["label"]).read_column("label")
        except DataStackError:
            n_errors += 1
        else:
            assert len(labels) == len(expected)

    assert n_errors
