"""Petastorm's loaders for torch: whole rows as tensors, in the reader's order, pass after pass."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from data_stack_petastorm import (
    NGram,
    TransformSpec,
    WeightedSamplingReader,
    make_batch_reader,
    make_reader,
)
from data_stack_petastorm.pytorch import (
    BatchedDataLoader,
    DataLoader,
    InMemBatchedDataLoader,
    decimal_friendly_collate,
)
from data_stack_petastorm.test_util.reader_mock import ReaderMock, schema_data_generator_example
from data_stack_petastorm.unischema import Unischema, UnischemaField
from petastorm_fixtures import petastorm_folder

from data_stack.exception import ConfigError, LoaderStateError
from data_stack.formats.parquet.selecting import col

N_ROWS = 240
N_GROUPS = 12

#: The columns of the table that become tensors.
NUMBERS = ["id", "u2", "u4", "flag", "vector"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose columns all tell the number of their row."""
    file = tmp_path_factory.mktemp("table") / "table.parquet"
    ids = np.arange(N_ROWS)
    columns = {
        "id": ids,
        "u2": ids.astype("u2"),
        "u4": ids.astype("u4"),
        "flag": ids % 2 == 0,
        "vector": list(np.stack([ids, -ids], axis=1).astype("f4")),
        "ragged": [np.zeros(1 + number % 3) for number in ids],
        "name": [f"row {number}" for number in ids],
        "price": [Decimal(int(number)) / 4 for number in ids],
        "day": np.datetime64("2024-01-01") + ids,
        "maybe": pa.array([None if number % 5 == 0 else number for number in ids.tolist()]),
    }
    pq.write_table(pa.table(columns), file, row_group_size=N_ROWS // N_GROUPS)
    return file


def make_test_reader(
    table: Path, fields: list[str] | None = None, *, batched: bool = False, **arguments: Any
) -> Any:
    """Return a reader of rows, or of row groups, with a fixed seed and no workers."""
    make = make_batch_reader if batched else make_reader
    defaults = {
        "schema_fields": NUMBERS if fields is None else fields,
        "reader_pool_type": "dummy",
        "seed": 1,
    }
    return make(table, **{**defaults, **arguments})


def ids_of(batches: Iterable[Any]) -> list[int]:
    return [int(number) for batch in batches for number in batch["id"]]


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("loader_class", "batched", "capacity"),
    [(DataLoader, False, 0), (DataLoader, True, 50), (BatchedDataLoader, False, 50)],
)
def test_batches_are_tensors_of_whole_rows(
    table: Path, loader_class: Any, batched: bool, capacity: int
) -> None:
    reader = make_test_reader(table, batched=batched)

    with loader_class(reader, 50, shuffling_queue_capacity=capacity) as loader:
        batches = list(loader)

    assert [len(batch["id"]) for batch in batches] == [50, 50, 50, 50, 40]
    assert len(loader) == 5
    assert {name: column.dtype for name, column in batches[0].items()} == {
        "id": torch.int64,
        "u2": torch.int32,
        "u4": torch.int64,
        "flag": torch.uint8,
        "vector": torch.float32,
    }
    assert sorted(ids_of(batches)) == list(range(N_ROWS))
    for batch in batches:
        ids = batch["id"]
        assert torch.equal(batch["vector"], torch.stack([ids, -ids], dim=1).float())
        assert torch.equal(batch["u2"], ids.int())
        assert torch.equal(batch["flag"], 1 - (ids % 2).byte())


def test_strings_and_decimals_are_lists(table: Path) -> None:
    fields = ["id", "name", "price"]
    rows = [row._asdict() for row in itertools.islice(make_test_reader(table, fields), 4)]
    expected = decimal_friendly_collate(rows)

    batch = next(iter(DataLoader(make_test_reader(table, fields), 4)))

    assert batch["name"] == expected["name"]
    assert batch["price"] == expected["price"]
    assert torch.equal(batch["id"], expected["id"])


@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader, InMemBatchedDataLoader])
@pytest.mark.parametrize(
    ("field", "message"), [("maybe", "None"), ("ragged", "different shapes"), ("day", "datetime64")]
)
def test_an_error_names_the_field_without_tensors(
    table: Path, loader_class: Any, field: str, message: str
) -> None:
    with pytest.raises(TypeError, match=f"field '{field}'.*{message}"):
        list(loader_class(make_test_reader(table, [field]), 60))


@pytest.mark.parametrize(
    "collate_fn",
    [decimal_friendly_collate, lambda rows: {key: [row[key] for row in rows] for key in rows[0]}],
)
def test_structs_are_omitted_with_a_warning(tmp_path: Path, collate_fn: Any) -> None:
    pq.write_table(pa.table({"id": [1, 2], "pair": [{"a": 1}, {"a": 2}]}), tmp_path / "a.parquet")
    reader = make_batch_reader(tmp_path, reader_pool_type="dummy")

    with pytest.warns(UserWarning, match="'pair' are left out") as warned:
        loader = DataLoader(reader, 2, collate_fn)

    assert warned[0].filename == __file__
    assert [list(batch) for batch in loader] == [["id"]]


# ------------------------------------------------------------------ missing values


@pytest.fixture(scope="module")
def with_nulls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two row groups; in the first one all floats have a value."""
    file = tmp_path_factory.mktemp("nulls") / "nulls.parquet"
    columns = {
        "id": np.arange(8),
        "half": pa.array([0, 1, 2, 3, None, 5, None, 7], pa.float32()),
        "pair": pa.array([[0.0, n] for n in range(4)] + [[1.0, None]] * 4),
        "count": pa.array([1, 2, 3, 4, 5, 6, 7, None]),
    }
    pq.write_table(pa.table(columns), file, row_group_size=4)
    return file


@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader, InMemBatchedDataLoader])
@pytest.mark.parametrize(
    "arguments",
    [{"batched": True}, {"batched": True, "nulls": "nan"}, {"batched": False, "nulls": "nan"}],
)
def test_missing_floats_are_nan(
    with_nulls: Path, loader_class: Any, arguments: dict[str, Any]
) -> None:
    reader = make_test_reader(with_nulls, ["half", "pair"], shuffle_row_groups=False, **arguments)

    (batch,) = loader_class(reader, 8)

    assert batch["half"].dtype == torch.float32
    assert np.array_equal(batch["half"], [0, 1, 2, 3, np.nan, 5, np.nan, 7], equal_nan=True)
    second_of_pair = [0, 1, 2, 3, np.nan, np.nan, np.nan, np.nan]
    assert np.array_equal(batch["pair"][:, 1], second_of_pair, equal_nan=True)


@pytest.mark.parametrize("arguments", [{"batched": True, "nulls": "none"}, {"batched": False}])
@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader])
def test_missing_floats_are_refused_with_advice(
    with_nulls: Path, loader_class: Any, arguments: dict[str, Any]
) -> None:
    reader = make_test_reader(with_nulls, ["half"], shuffle_row_groups=False, **arguments)
    batches = iter(loader_class(reader, 4))
    next(batches)

    message = r"field 'half' has rows without a value \(None\).*nulls='nan'"
    with pytest.raises(TypeError, match=message):
        next(batches)


# ------------------------------------------------------------------ functions of users


@pytest.mark.parametrize("pool_type", ["dummy", "thread"])
def test_a_collate_function_runs_in_the_worker(table: Path, pool_type: str) -> None:
    def first_and_last(rows: Any) -> tuple[Any, ...]:
        return rows[0]["id"], rows[-1]["id"], type(rows[0]["flag"])

    reader = make_test_reader(
        table,
        ["id", "flag"],
        reader_pool_type=pool_type,
        workers_count=1,
        shuffle_row_groups=False,
    )

    with DataLoader(reader, 100, first_and_last) as loader:
        batches = list(loader)

    assert batches == [(0, 99, np.uint8), (100, 199, np.uint8), (200, 239, np.uint8)]


@pytest.mark.parametrize("takes_single_rows", [False, True])
def test_a_stop_iteration_of_collate_ends_no_loader(table: Path, takes_single_rows: bool) -> None:
    def stop_at_second_batch(rows: Any) -> Any:
        if rows[0]["id"] == 0:
            return rows[0]
        return next(iter(()))

    if takes_single_rows:
        drops_a_row = TransformSpec(lambda frame: frame[frame["id"] != 1])
        reader = make_test_reader(
            table, ["id"], batched=True, transform_spec=drops_a_row, shuffle_row_groups=False
        )
    else:
        reader = make_test_reader(table, ["id"], shuffle_row_groups=False)

    with DataLoader(reader, 100, stop_at_second_batch) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(batches)


def test_tensors_of_a_transform_that_names_no_fields_are_batched(table: Path) -> None:
    spec = TransformSpec(
        lambda row: {"id": row["id"], "vector": torch.tensor(row["vector"]) / 2},
        removed_fields=["flag"],
    )
    reader = make_test_reader(table, ["id", "vector", "flag"], transform_spec=spec)

    with DataLoader(reader, 16) as loader:
        for batch in loader:
            assert torch.equal(batch["vector"][:, 0], batch["id"].float() / 2)


# ------------------------------------------------------------------ passes and states


def test_a_broken_loop_restarts_with_another_epoch(table: Path) -> None:
    with DataLoader(make_test_reader(table), 16, shuffling_queue_capacity=100) as loader:
        for _ in loader:
            break
        first = ids_of(loader)
        second = ids_of(loader)

    assert sorted(first) == list(range(N_ROWS))
    assert sorted(second) == list(range(N_ROWS))
    assert first != second


def make_shard(table: Path, rank: int, n_shards: int, batch_size: int, **arguments: Any) -> Any:
    """Return the loader of a shard, which shuffles."""
    reader = make_test_reader(table, cur_shard=rank, shard_count=n_shards, **arguments)
    return DataLoader(reader, batch_size, shuffling_queue_capacity=40)


def test_a_loop_resumes_with_another_number_of_shards(table: Path) -> None:
    ids: list[int] = []
    state: Any = None
    for rank in range(3):
        loader = make_shard(table, rank, n_shards=3, batch_size=8)
        batches = iter(loader)
        ids += ids_of([next(batches), next(batches)])
        state = json.loads(json.dumps(loader.state_dict()))

    for rank in range(2):
        loader = make_shard(table, rank, n_shards=2, batch_size=16)
        loader.load_state_dict(state)
        ids += ids_of(loader)

    assert sorted(ids) == list(range(N_ROWS))


def test_shards_with_different_seeds_need_their_own_states(table: Path) -> None:
    ids: list[int] = []
    states = []
    for rank in range(3):
        loader = make_shard(table, rank, n_shards=3, batch_size=8, seed=rank)
        ids += ids_of(itertools.islice(loader, 2))
        states.append(loader.state_dict())

    for rank in range(3):
        loader = make_shard(table, rank, n_shards=3, batch_size=8, seed=rank)
        with pytest.raises(LoaderStateError, match="seed"):
            loader.load_state_dict(states[rank - 1])
        loader.load_state_dict(states[rank])
        ids += ids_of(loader)

    assert sorted(ids) == list(range(N_ROWS))


# ------------------------------------------------------------------ n-grams


@pytest.mark.parametrize(
    "loader_class",
    [
        DataLoader,
        BatchedDataLoader,
        functools.partial(InMemBatchedDataLoader, rows_capacity=None),
    ],
)
def test_sequences_are_nested_dicts_of_tensors(loader_class: Any) -> None:
    ngram = NGram({0: ["timestamp", "flag"], 1: ["accel"]}, 100, "timestamp")
    reader = make_reader(petastorm_folder("timeseries"), ngram, reader_pool_type="dummy")

    batch = next(iter(loader_class(reader, 32)))

    assert list(batch) == [0, 1]
    assert batch[0]["timestamp"].shape == (32,)
    assert batch[0]["flag"].dtype == torch.uint8
    assert batch[1]["accel"].shape == (32, 3)


# ------------------------------------------------------------------ in memory


def test_rows_in_memory_have_torchs_order(table: Path) -> None:
    reader = make_test_reader(table, shuffle_row_groups=False)
    loader = InMemBatchedDataLoader(
        reader, 100, num_epochs=2, seed=5, rows_capacity=None, shuffle=True
    )

    ids = ids_of(loader)

    expected: list[int] = []
    for epoch in range(2):
        generator = torch.Generator().manual_seed(5 + epoch)
        expected += torch.randperm(N_ROWS, generator=generator).tolist()
    assert ids == expected
    assert len(loader) == 6
    with pytest.raises(RuntimeError, match="num_epochs"):
        ids_of(loader)


def test_a_capacity_below_an_epoch_warns(table: Path) -> None:
    reader = make_test_reader(table, shuffle_row_groups=False)

    with pytest.warns(UserWarning, match="keeps the first 100 of 240 rows") as warned:
        loader = InMemBatchedDataLoader(reader, 30, rows_capacity=100)

    assert warned[0].filename == __file__
    assert ids_of(loader) == list(range(100))


def test_an_endless_foreign_reader_needs_a_capacity() -> None:
    schema = Unischema("Rows", [UnischemaField("id", np.int64, ())])
    reader = ReaderMock(schema, schema_data_generator_example)

    with pytest.raises(ConfigError, match="requires rows_capacity"):
        InMemBatchedDataLoader(reader, rows_capacity=None)


def drop_even_ids(frame: Any) -> Any:
    return frame[frame["id"] % 2 == 1]


def test_an_epoch_with_dropped_rows_is_kept_once(table: Path) -> None:
    def load(num_epochs: int | None) -> Any:
        transform = TransformSpec(drop_even_ids, selected_fields=["id"])
        reader = make_test_reader(
            table,
            batched=True,
            num_epochs=num_epochs,
            transform_spec=transform,
            shuffle_row_groups=False,
        )
        return InMemBatchedDataLoader(reader, 30, rows_capacity=None)

    assert ids_of(load(1)) == list(range(1, N_ROWS, 2))
    for num_epochs in (2, None):
        with pytest.raises(ConfigError, match="num_epochs=1"):
            load(num_epochs)


# ------------------------------------------------------------------ several readers


@pytest.mark.parametrize(
    ("loader_class", "batched", "capacity"), [(DataLoader, False, 30), (BatchedDataLoader, True, 0)]
)
def test_rows_of_several_readers_are_batched(
    table: Path, loader_class: Any, batched: bool, capacity: int
) -> None:
    readers = [
        make_test_reader(table, predicate=predicate, batched=batched)
        for predicate in (col("id") < 100, col("id") >= 100)
    ]
    mixed = WeightedSamplingReader(readers, [1, 2], 3)

    with loader_class(mixed, 32, shuffling_queue_capacity=capacity) as loader:
        first = list(loader)
        second = list(loader)

        assert {len(batch["id"]) for batch in first[:-1]} == {32}
        assert len(ids_of(first)) >= 100
        assert len(set(ids_of(first))) == len(ids_of(first))
        assert ids_of(first) != ids_of(second)
        assert all(torch.equal(batch["vector"][:, 0], batch["id"].float()) for batch in first)
        with pytest.raises(TypeError, match="no length"):
            len(loader)
        with pytest.raises(ConfigError, match="no state"):
            loader.state_dict()
