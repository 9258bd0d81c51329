"""Petastorm's loaders for torch: whole rows as tensors, in the reader's order, again and again."""

from __future__ import annotations

import functools
import itertools
import json
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
from petastorm_fixtures import petastorm_folder

from data_stack.exception import ConfigError, LoaderStateError
from data_stack.formats.parquet.selecting import col

N_ROWS, N_GROUPS = 240, 12


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


NUMBERS = ["id", "u2", "u4", "flag", "vector"]


def reader(
    table: Path, fields: list[str] | None = None, *, batched: bool = False, **options: Any
) -> Any:
    given = {
        "schema_fields": NUMBERS if fields is None else fields,
        "reader_pool_type": "dummy",
        "seed": 1,
        **options,
    }
    return (make_batch_reader if batched else make_reader)(table, **given)


def ids(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["id"]]


@pytest.mark.parametrize(
    ("loader_class", "batched", "capacity"),
    [(DataLoader, False, 0), (DataLoader, True, 50), (BatchedDataLoader, False, 50)],
)
def test_batches_are_tensors_of_whole_rows(
    table: Path, loader_class: Any, batched: bool, capacity: int
) -> None:
    with loader_class(
        reader(table, batched=batched), 50, shuffling_queue_capacity=capacity
    ) as loader:
        batches = list(loader)

    assert [len(batch["id"]) for batch in batches] == [50, 50, 50, 50, 40]
    assert len(loader) == 5
    assert {key: value.dtype for key, value in batches[0].items()} == {
        "id": torch.int64, "u2": torch.int32, "u4": torch.int64, "flag": torch.uint8, "vector": torch.float32,
    }  # fmt: skip
    assert sorted(ids(batches)) == list(range(N_ROWS))
    for batch in batches:
        assert torch.equal(batch["vector"], torch.stack([batch["id"], -batch["id"]], dim=1).float())
        assert torch.equal(batch["u2"], batch["id"].int())
        assert torch.equal(batch["flag"], 1 - (batch["id"] % 2).byte())


def test_strings_and_decimals_are_lists(
    table: Path,
) -> None:
    fields = ["id", "name", "price"]

    (batch, *_), rows = (
        list(DataLoader(reader(table, fields), 4)),
        list(itertools.islice(reader(table, fields), 4)),
    )

    expected = decimal_friendly_collate([row._asdict() for row in rows])
    assert (batch["name"], batch["price"]) == (expected["name"], expected["price"])
    assert torch.equal(batch["id"], expected["id"])


@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader, InMemBatchedDataLoader])
@pytest.mark.parametrize(
    ("field", "message"), [("maybe", "None"), ("ragged", "different shapes"), ("day", "datetime64")]
)
def test_an_error_names_the_field_without_tensors(
    table: Path, loader_class: Any, field: str, message: str
) -> None:
    with pytest.raises(TypeError, match=f"field '{field}'.*{message}"):
        list(loader_class(reader(table, [field]), 60))


@pytest.mark.parametrize(
    "collate_fn",
    [decimal_friendly_collate, lambda rows: {key: [row[key] for row in rows] for key in rows[0]}],
)
def test_structs_are_omitted_with_a_warning(tmp_path: Path, collate_fn: Any) -> None:
    pq.write_table(pa.table({"id": [1, 2], "pair": [{"a": 1}, {"a": 2}]}), tmp_path / "a.parquet")

    with pytest.warns(UserWarning, match="'pair' are left out"):
        loader = DataLoader(make_batch_reader(tmp_path, reader_pool_type="dummy"), 2, collate_fn)

    assert [list(batch) for batch in loader] == [["id"]]


@pytest.fixture(scope="module")
def with_nulls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two row groups; in the first one all floats have a value."""
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
    "options",
    [{"batched": True}, {"batched": True, "nulls": "nan"}, {"batched": False, "nulls": "nan"}],
)
def test_missing_floats_are_nan(
    with_nulls: Path, loader_class: Any, options: dict[str, Any]
) -> None:
    rows = reader(with_nulls, ["half", "pair"], shuffle_row_groups=False, **options)

    batches = list(loader_class(rows, 8))

    assert [batch["half"].dtype for batch in batches] == [torch.float32]
    assert np.array_equal(batches[0]["half"], [0, 1, 2, 3, np.nan, 5, np.nan, 7], equal_nan=True)
    assert np.array_equal(batches[0]["pair"][:, 1], [0, 1, 2, 3, *[np.nan] * 4], equal_nan=True)


@pytest.mark.parametrize("options", [{"batched": True, "nulls": "none"}, {"batched": False}])
@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader])
def test_missing_floats_are_refused_with_advice(
    with_nulls: Path, loader_class: Any, options: dict[str, Any]
) -> None:
    loader = loader_class(reader(with_nulls, ["half"], shuffle_row_groups=False, **options), 4)
    batches = iter(loader)
    next(batches)

    with pytest.raises(
        TypeError, match=r"field 'half' has rows without a value \(None\).*nulls='nan'"
    ):
        next(batches)


@pytest.mark.parametrize("kind", ["dummy", "thread"])
def test_a_collate_function_runs_in_the_worker(table: Path, kind: str) -> None:
    options: dict[str, Any] = {
        "reader_pool_type": kind,
        "workers_count": 1,
        "shuffle_row_groups": False,
    }

    def first_and_last(rows: Any) -> tuple[Any, ...]:
        return rows[0]["id"], rows[-1]["id"], type(rows[0]["flag"])

    with DataLoader(reader(table, ["id", "flag"], **options), 100, first_and_last) as loader:
        assert list(loader) == [(0, 99, np.uint8), (100, 199, np.uint8), (200, 239, np.uint8)]


@pytest.mark.parametrize("drops_rows", [False, True])
def test_a_stop_iteration_of_collate_ends_no_loader(table: Path, drops_rows: bool) -> None:
    def stops_at_second(rows: Any) -> Any:
        return next(iter(rows)) if rows[0]["id"] == 0 else next(iter(()))

    spec = TransformSpec(lambda frame: frame[frame["id"] != 1]) if drops_rows else None
    options: dict[str, Any] = {"reader_pool_type": "dummy", "shuffle_row_groups": False}
    rows = (
        make_batch_reader(str(table), schema_fields=["id"], transform_spec=spec, **options)
        if drops_rows
        else reader(table, ["id"], **options)
    )

    with DataLoader(rows, 100, stops_at_second) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(batches)


def test_tensors_of_a_transform_that_names_no_fields_are_batched(table: Path) -> None:
    spec = TransformSpec(
        lambda row: {"id": row["id"], "vector": torch.tensor(row["vector"]) / 2},
        removed_fields=["flag"],
    )

    with DataLoader(reader(table, ["id", "vector", "flag"], transform_spec=spec), 16) as loader:
        assert all(torch.equal(batch["vector"][:, 0], batch["id"].float() / 2) for batch in loader)


def test_a_broken_loop_restarts_with_another_epoch(table: Path) -> None:
    with DataLoader(reader(table), 16, shuffling_queue_capacity=100) as loader:
        for _ in loader:
            break
        first, second = ids(loader), ids(loader)

    assert sorted(first) == sorted(second) == list(range(N_ROWS))
    assert first != second


def test_a_loop_resumes_with_another_number_of_shards(table: Path) -> None:
    loaders = [
        DataLoader(reader(table, cur_shard=rank, shard_count=3), 8, shuffling_queue_capacity=40)
        for rank in range(3)
    ]
    given = []
    for loader in loaders:
        batches = iter(loader)
        given += ids([next(batches), next(batches)])
        state = json.loads(json.dumps(loader.state_dict()))

    rest = []
    for rank in range(2):
        loader = DataLoader(
            reader(table, cur_shard=rank, shard_count=2), 16, shuffling_queue_capacity=40
        )
        loader.load_state_dict(state)
        rest += ids(loader)

    assert sorted([*given, *rest]) == list(range(N_ROWS))


def test_shards_with_different_seeds_need_their_own_states(table: Path) -> None:
    given, states = [], []
    for rank in range(3):
        loader = DataLoader(
            reader(table, cur_shard=rank, shard_count=3, seed=rank), 8, shuffling_queue_capacity=40
        )
        given += ids(itertools.islice(loader, 2))
        states.append(loader.state_dict())

    for rank in range(3):
        loader = DataLoader(
            reader(table, cur_shard=rank, shard_count=3, seed=rank), 8, shuffling_queue_capacity=40
        )
        with pytest.raises(LoaderStateError, match="seed"):
            loader.load_state_dict(states[rank - 1])
        loader.load_state_dict(states[rank])
        given += ids(loader)

    assert sorted(given) == list(range(N_ROWS))


def test_sequences_are_nested_dicts_of_tensors() -> None:
    ngram = NGram({0: ["timestamp", "flag"], 1: ["accel"]}, 100, "timestamp")

    in_memory = functools.partial(InMemBatchedDataLoader, rows_capacity=None)
    for loader_class in (DataLoader, BatchedDataLoader, in_memory):
        loader: Any = loader_class(
            make_reader(
                petastorm_folder("timeseries"), schema_fields=ngram, reader_pool_type="dummy"
            ),
            32,
        )
        batch = next(iter(loader))
        assert list(batch) == [0, 1]
        assert (batch[0]["timestamp"].shape, batch[0]["flag"].dtype) == ((32,), torch.uint8)
        assert batch[1]["accel"].shape == (32, 3)


# ------------------------------------------------------------------ in memory


def test_rows_in_memory_have_torchs_order(table: Path) -> None:
    options: dict[str, Any] = {"num_epochs": 2, "seed": 5, "rows_capacity": None, "shuffle": True}

    loader = InMemBatchedDataLoader(reader(table, shuffle_row_groups=False), 100, **options)

    expected = []
    for epoch in range(2):
        expected += torch.randperm(
            N_ROWS, generator=torch.Generator().manual_seed(5 + epoch)
        ).tolist()
    assert ids(loader) == expected
    assert len(loader) == 6
    with pytest.raises(RuntimeError, match="num_epochs"):
        ids(loader)


# ------------------------------------------------------------------ several readers


@pytest.mark.parametrize(
    ("loader_class", "batched", "capacity"), [(DataLoader, False, 30), (BatchedDataLoader, True, 0)]
)
def test_rows_of_several_readers_are_batched(
    table: Path, loader_class: Any, batched: bool, capacity: int
) -> None:
    parts = [
        reader(table, predicate=predicate, batched=batched)
        for predicate in (col("id") < 100, col("id") >= 100)
    ]

    with loader_class(
        WeightedSamplingReader(parts, [1, 2], 3), 32, shuffling_queue_capacity=capacity
    ) as loader:
        first, second = list(loader), list(loader)

        assert {len(batch["id"]) for batch in first[:-1]} == {32}
        assert len(set(ids(first))) == len(ids(first)) >= 100
        assert ids(first) != ids(second)
        assert all(torch.equal(batch["vector"][:, 0], batch["id"].float()) for batch in first)
        with pytest.raises(TypeError, match="no length"):
            len(loader)
        with pytest.raises(ConfigError, match="no state"):
            loader.state_dict()
