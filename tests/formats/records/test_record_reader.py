"""The reader of record datasets: the contract of all iterators, columns by themselves, parts of
samples, its life.
"""

from __future__ import annotations

import json
import multiprocessing
import operator
import os
import pickle
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from far_store import FarStorageConnector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_laws import check_all_ways_agree
from writing import append_all

from data_stack.codecs import registry
from data_stack.codecs.npy import NpyCodec
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.formats import records
from data_stack.formats.records import (
    ColumnType,
    RecordReader,
    RecordWriter,
    ShardedRecordReader,
    ShardedRecordWriter,
)
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.testing import DatasetIteratorContract
from data_stack.testing.comparing import assert_same
from data_stack.util.executor import set_thread_share
from data_stack.values.stacking import stack_samples

SPEC = {
    "id": ColumnType("i64"),
    "mat": ColumnType("array", "int16", (2, 3)),
    "name": ColumnType("utf8"),
    "ragged": ColumnType("array"),
}


def samples(n: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i - 2,
            "mat": np.arange(6, dtype=np.int16).reshape(2, 3) * i,
            "name": f"sample {i} " * (i % 3),
            "ragged": np.arange(i % 4, dtype=np.float32),
        }
        for i in range(n)
    ]


def write(folder: Any, n: int, *, manifest: bool = True) -> list[dict[str, Any]]:
    written = samples(n)
    append_all(RecordWriter(folder, SPEC), written)
    if not manifest:
        (folder / "manifest.json").unlink()
    return written


# ------------------------------------------------------------------ what every iterator promises

EVEN = [
    "id",
    "mat",
    "name",
]  # what the contract can compare; arrays of different shapes have a test of their own


class TestRecordReader(DatasetIteratorContract):
    @pytest.fixture
    def expected(self, tmp_path: Path) -> list[Any]:
        return [{name: sample[name] for name in EVEN} for sample in write(tmp_path, 7)]

    @pytest.fixture
    def iterator(self, tmp_path: Path, expected: list[Any]) -> Iterator[DatasetIteratorIF]:
        with RecordReader(tmp_path, columns=EVEN) as reader:
            yield reader


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(0, 9),
    data=st.data(),
    manifest=st.booleans(),
    options=st.sampled_from([{}, {"mapped": False}]),
)
def test_all_ways_to_the_samples_agree(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    data: st.DataObject,
    manifest: bool,
    options: dict[str, Any],
) -> None:
    folder = tmp_path_factory.mktemp("records")
    expected = write(folder, n, manifest=manifest)

    with RecordReader(folder, **options) as reader:
        check_all_ways_agree(reader, expected, data)


def test_iterating_over_large_samples_takes_the_memory_of_a_few(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, {"blob": "bytes"}) as writer:
        writer.extend({"blob": [bytes(5 << 18)] * 13})

    with RecordReader(tmp_path) as reader:
        tracemalloc.start()
        n_bytes = sum(len(sample["blob"]) for sample in reader)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert n_bytes == 65 << 18
    assert peak < 1 << 22


# ------------------------------------------------------------------ columns


def test_only_the_columns_asked_for_are_touched(tmp_path: Path) -> None:
    expected = write(tmp_path, 5)
    (tmp_path / "name.bag").write_bytes(b"x" * (tmp_path / "name.bag").stat().st_size)

    with RecordReader(tmp_path) as reader:
        assert reader.read_column("id").tolist() == [sample["id"] for sample in expected]
        assert reader[3, ["id"]] == {"id": 1}
        assert [column.tolist() for column in access_to(reader).columns(["id"], np.array([1]))] == [
            [-1]
        ]
        assert set(reader._columns.open_columns.by_name) == {"id"}
        with pytest.raises(DatasetFileCorruptError, match=r"name\.bag is damaged: the block"):
            reader[4]


@pytest.mark.parametrize("columns", [["nothing"], [], "id", ["id", "id"], [1], 7, None])
def test_columns_that_are_not_there_are_refused(tmp_path: Path, columns: Any) -> None:
    write(tmp_path, 2)

    with pytest.raises(ConfigError):
        RecordReader(tmp_path, columns=columns).read(0, ["nothing"] if columns is None else [])


def test_batches_have_the_declared_dtype_and_samples_python_integers(
    tmp_path: Path,
) -> None:
    spec: dict[str, str | ColumnType] = {
        "a": ColumnType("i64", "int32"),
        "b": "u64",
        "c": ColumnType("int", "int16"),
    }
    append_all(
        RecordWriter(tmp_path, spec),
        ({"a": -number, "b": 2**63 + number, "c": number} for number in (1, 2, 300)),
    )

    with RecordReader(tmp_path) as reader:
        assert {name: column.dtype for name, column in reader.schema.items()} == {
            "a": "int32",
            "b": "uint64",
            "c": "int16",
        }
        assert reader[2] == {"a": -300, "b": 2**63 + 300, "c": 300}
        batch = reader.read_batch([2, 0])
        assert {name: column.dtype for name, column in batch.items()} == {
            "a": np.int32,
            "b": np.uint64,
            "c": np.int16,
        }
        assert batch["b"].tolist() == [2**63 + 300, 2**63 + 1]
        for sample in (reader[2], next(iter(reader)), *reader.__getitems__([2, 0])):
            assert [type(value) for value in sample.values()] == [int, int, int]


# ------------------------------------------------------------------ codecs


@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("declared", ["i64", "u64", "int", "array"])
def test_an_empty_sequence_has_the_declared_dtype(
    tmp_path: Path, declared: str, is_sharded: bool
) -> None:
    dtypes = {"i64": "i8", "u64": "u8", "int": "i8", "array": "i2"}
    dtype = np.dtype(dtypes[declared])
    values: list[list[Any]] = [[1], [], [0, 1], []]
    if declared == "array":
        values = [[np.array([1], dtype)], [], [np.array([0], dtype)] * 2, []]
    rows = [{"xs": sequence} for sequence in values]
    spec = {"xs": ColumnType(f"{declared}[]", dtype, (1,) if declared == "array" else ())}
    if is_sharded:
        append_all(ShardedRecordWriter(tmp_path, spec, shardlen=1), rows)
    else:
        append_all(RecordWriter(tmp_path, spec), rows)

    with records.open(tmp_path) as reader:
        column = reader.read_column("xs")
        batches = [reader.read_batch([row])["xs"] for row in range(4)]
        if declared != "array":
            cells = reader.to_arrow().schema.field("xs").type
            assert cells.value_type == pa.from_numpy_dtype(dtype)
            assert reader.read_batch([])["xs"].dtype == dtype

    assert [value.dtype for value in column] == [dtype] * 4
    assert [batch.dtype for batch in batches] == [dtype] * 4
    assert [len(value) for value in column] == [batch.shape[1] for batch in batches] == [1, 0, 2, 0]


def test_an_unknown_codec_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    write(tmp_path, 3, manifest=False)
    spec = json.loads((tmp_path / "spec.json").read_bytes())
    (tmp_path / "spec.json").write_text(json.dumps({**spec, "name": "utf9"}))

    with pytest.raises(ConfigError, match=r"column 'name'.*'utf9'.*did you mean 'utf8'"):
        RecordReader(tmp_path)
    with RecordReader(tmp_path, columns=["id"]) as reader:  # what is not asked for may be unknown
        assert reader[0] == {"id": -2}


# ------------------------------------------------------------------ length


def test_only_flushed_samples_count_for_readers_opened_later(
    tmp_path: Path,
) -> None:
    expected = samples(9)
    with RecordWriter(tmp_path, SPEC) as writer:
        for sample in expected[:4]:
            writer.append(sample)
        writer.flush()
        reader = RecordReader(tmp_path)
        writer.extend({name: [sample[name] for sample in expected[4:7]] for name in SPEC})
        growing = RecordReader(tmp_path)
        assert len(growing) == len(reader) == 4
        assert_same(list(growing), expected[:4])
        growing.verify()
        writer.flush()
        assert_same(list(RecordReader(tmp_path)), expected[:7])

    assert_same(list(reader), expected[:4])
    with pytest.raises(IndexError, match="4 samples"):
        reader[4]
    assert_same(list(RecordReader(tmp_path)), expected[:7])


# ------------------------------------------------------------------ what it says of itself


def test_where_no_dataset_lies_is_said(tmp_path: Path) -> None:
    for open_it in (RecordReader, records.open, records.ShardedRecordReader):
        for place in (tmp_path, tmp_path / "nothing"):
            with pytest.raises(ResourceNotFoundError, match=r"spec\.json"):
                open_it(place)
    for wrong in (None, 5, b""):
        with pytest.raises(ConfigError):
            RecordReader(wrong)


# ------------------------------------------------------------------ its life


def test_a_closed_reader_gives_nothing_but_says_so(tmp_path: Path) -> None:
    write(tmp_path, 5)
    reader = RecordReader(tmp_path)
    reader[0]
    view = reader[1:3]
    reader.close()
    reader.close()

    ways: list[Callable[[], Any]] = [
        lambda: reader[0], lambda: list(reader), lambda: reader.read_batch([0]), lambda: view[0], lambda: reader[0, ["id"]],
        lambda: reader.read_column("id"), lambda: view.read_batch([0]),
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(StorageError, match="is closed"):
            way()


def test_closing_a_reader_closes_what_an_iteration_still_reads(tmp_path: Path) -> None:
    append_all(RecordWriter(tmp_path, {"text": "zstd(utf8)"}), ({"text": f"{i}"} for i in range(5)))
    n_open = len(os.listdir("/proc/self/fd"))
    set_thread_share(1024)  # this thread decodes alone, one value after the other

    with RecordReader(tmp_path, mapped=False) as reader:
        texts: Any = access_to(reader).iterate_column("text", np.arange(5))
        assert next(texts) == "0"
    set_thread_share(1)

    assert len(os.listdir("/proc/self/fd")) == n_open


def test_a_reader_pickles_small_and_refuses_another_dataset(tmp_path: Path) -> None:
    expected = write(tmp_path, 6)
    with RecordReader(tmp_path) as reader:
        list(reader)
        pickled = pickle.dumps(reader)
    assert len(pickled) < 600

    assert_same(list(pickle.loads(pickled)), expected)
    append_all(RecordWriter(tmp_path, SPEC), [expected[0]])
    with pytest.raises(ResourceChangedError):
        pickle.loads(pickled)


def test_an_exception_of_a_codec_is_reported_with_its_record(tmp_path: Path) -> None:
    def refuse(record: bytes) -> Any:
        if record.startswith(b"sample 4"):
            raise RecursionError("too deep")
        return len(record)

    write(tmp_path, 6)

    with RecordReader(tmp_path, columns=["name"], codecs={"utf8": (None, refuse)}) as reader:
        ways: list[Callable[[], Any]] = [
            lambda: reader[4], lambda: reader.read_batch([1, 4]), lambda: reader.read_column("name"), lambda: list(reader),
            lambda: reader.__getitems__([0, 4]),
        ]  # fmt: skip
        for way in ways:
            with pytest.raises(
                DatasetFileCorruptError,
                match=r"record 4 of column 'name' \(bytes .*RecursionError: too deep",
            ):
                way()
        before = []
        with pytest.raises(DatasetFileCorruptError):
            for sample in reader:
                before.append(sample)
        assert before == [reader[i] for i in range(4)]  # what was whole is given


# ---------------------------------------------------------------------- stores


def test_rows_out_of_a_column_are_one_request(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, block_bytes=4096)
    write(store, 4000)

    with RecordReader(store) as reader:
        assert (access_to(reader).fixed_columns, np.array(access_to(reader).blocks()).tolist()) == (
            False,
            [4000],
        )
        reader.read_column("id")
        store.requests.clear()
        found = reader.read_column("mat", [3, 4, 5, 3900, 3901, 7])

    assert found[:, 0, 1].tolist() == [3, 4, 5, 3900, 3901, 7]
    assert len(store.requests) == 1


def test_threads_opening_a_column_at_once_fetch_its_index_once(tmp_path: Path) -> None:
    store, start = FarStorageConnector(tmp_path), threading.Barrier(8)
    expected = write(store, 4000)

    def read(i: int) -> Any:
        start.wait(60)
        return opened.read(i, ["ragged"])["ragged"]

    with RecordReader(store) as opened, ThreadPoolExecutor(8) as threads:
        store.requests.clear()
        assert_same(list(threads.map(read, range(8))), [each["ragged"] for each in expected[:8]])
    assert len(store.requests) == 2  # the index, and the records


def test_damage_in_a_store_that_checks_nothing_is_noticed() -> None:
    store = InMemoryStorageConnector()
    expected = write(store, 4000)
    stored = store._stored["mat.bag"]
    data = stored.data
    damaged = data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
    store._stored["mat.bag"] = replace(stored, data=damaged)

    with RecordReader(store) as reader:
        for way in (
            lambda: reader[2],
            lambda: reader.read_batch([2, 9]),
            lambda: reader.read_column("mat"),
        ):
            with pytest.raises(DatasetFileCorruptError, match=r"mat\.bag is damaged"):
                way()
        assert_same(reader[3999], expected[3999])


def test_another_file_in_the_place_of_a_column_is_refused() -> None:
    store = InMemoryStorageConnector()
    write(store, 4000)
    size = store.stat("mat.bag").size
    store.set_resource("mat.bag", [bytes(size)])

    with (
        RecordReader(store) as reader,
        pytest.raises(DatasetFileCorruptError, match=r"mat\.bag is not the file"),
    ):
        reader[0]


# ---------------------------------------------------------------------- processes and threads


SHARED = samples(200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    for writer in (
        RecordWriter(folder / "plain", SPEC),
        ShardedRecordWriter(folder / "sharded", SPEC, shardlen=30),
    ):
        append_all(writer, SHARED)
    return folder


@pytest.fixture(params=["by range", "sharded"])
def reader(
    request: pytest.FixtureRequest, folder: Path, tmp_path: Path
) -> Iterator[RecordReader | ShardedRecordReader]:
    name = "sharded" if request.param == "sharded" else "plain"
    with records.open(folder / name, mapped=request.param != "by range") as opened:
        yield opened


def check_much(reader: Any, seed: int, n_reads: int = 20) -> bool:
    """Read here and there in all ways."""
    for chosen in np.random.default_rng(seed).integers(0, len(SHARED), (n_reads, 8)):
        wanted = [SHARED[i] for i in chosen]
        assert_same(reader[int(chosen[0])], wanted[0])
        assert_same(reader.read_batch(chosen), stack_samples(wanted))
    return True


def test_threads_share_a_reader(reader: RecordReader) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda seed: check_much(reader, seed), range(8)))


def test_forked_children_go_on_with_the_reader_of_their_parent(reader: RecordReader) -> None:
    check_much(reader, 0, 3)  # files are open, and threads have been made
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=check_much, args=(reader, seed)) for seed in range(4)]
    for child in children:
        child.start()
    check_much(reader, 99)
    for child in children:
        child.join(120)

    assert [child.exitcode for child in children] == [0] * 4


def test_a_spawned_process_knows_the_type_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_providers", [lambda: {"scan": NpyCodec()}])
    spec: dict[str, str | ColumnType] = {"scan": "scan", "small": "zstd(scan)"}
    for writer in (
        RecordWriter(tmp_path / "plain", spec),
        ShardedRecordWriter(tmp_path / "sharded", spec, shardlen=2),
    ):
        append_all(writer, ({"scan": np.full(3, i), "small": np.full(4, i)} for i in range(5)))

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name in ("plain", "sharded"):
            with records.open(tmp_path / name) as reader:
                found = pool.submit(operator.getitem, reader, 3).result(timeout=120)
            assert found["scan"].tolist() == [3, 3, 3]
            assert found["small"].tolist() == [3, 3, 3, 3]


def test_few_labels_of_a_store_are_requested_once(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, 4096)
    with RecordWriter(store, {"label": "i64"}) as writer:
        writer.extend({"label": np.arange(8192)})

    with RecordReader(store) as reader:
        store.requests.clear()
        first = reader.read_batch([5, 4000])["label"].tolist()
        n_requests = len(store.requests)
        later = reader.read_batch([8191, 0, 1])["label"].tolist()

    assert (first, later) == ([5, 4000], [8191, 0, 1])
    assert n_requests >= 1
    assert len(store.requests) == n_requests
