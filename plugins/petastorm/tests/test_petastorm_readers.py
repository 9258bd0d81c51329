"""``make_reader`` and ``make_batch_reader``: exact rows, in an order that the seed determines."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import (
    DataLoader,
    Reader,
    TransformSpec,
    WeightedSamplingReader,
    make_batch_reader,
    make_reader,
)
from data_stack_petastorm.predicates import in_lambda, in_set
from data_stack_petastorm.reader import ReaderArguments
from data_stack_petastorm.shards import Sharding, Shards
from sizes import sized

from data_stack.exception import ConfigError, DataStackError
from data_stack.formats.parquet.selecting import col
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.loader import BlockShuffled, Plan

N_ROWS = 200
N_GROUPS = 20
N_FILES = 2

#: Beyond this, floats no longer hold each integer.
LARGE_NUMBER = 2**53 + 1


def maybe_of(number: int) -> int | None:
    """Return the value of the column ``maybe``, which has nulls among large integers."""
    if number % 3 == 0:
        return None
    return LARGE_NUMBER + number


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset whose columns all tell the number of their row."""
    folder = tmp_path_factory.mktemp("numbers")
    rows_per_file = N_ROWS // N_FILES
    for file in range(N_FILES):
        ids = np.arange(rows_per_file) + file * rows_per_file
        columns = {
            "id": ids,
            "double": ids * 2,
            "text": [f"row {number}" for number in ids],
            "maybe": pa.array([maybe_of(number) for number in ids.tolist()], pa.int64()),
        }
        path = folder / f"{file}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=N_ROWS // N_GROUPS)
    return folder


def ids_of(rows: Any) -> list[int]:
    return [int(row.id) for row in rows]


def ids_of_groups(reader: Any) -> list[int]:
    """Return the ids of all rows of the row groups of a reader."""
    return [int(number) for group in reader for number in group.id]


def rows_of_groups(reader: Any) -> list[Any]:
    """Return the rows of the row groups of a reader as named tuples."""
    rows: list[Any] = []
    for group in reader:
        make_row = type(group)._make
        rows.extend(make_row(values) for values in zip(*group, strict=True))
    return rows


def is_whole(row: Any) -> bool:
    """Return whether all columns of a row are those of one row."""
    number = int(row.id)
    return bool(
        row.double == 2 * number and row.text == f"row {number}" and row.maybe == maybe_of(number)
    )


# ------------------------------------------------------------------ the arguments

PETASTORMS_ARGUMENTS = {
    "schema_fields": None,
    "reader_pool_type": "thread",
    "workers_count": 10,
    "results_queue_size": 50,
    "seed": None,
    "shuffle_rows": False,
    "shuffle_row_groups": True,
    "shuffle_row_drop_partitions": 1,
    "predicate": None,
    "rowgroup_selector": None,
    "num_epochs": 1,
    "cur_shard": None,
    "shard_count": None,
    "shard_seed": None,
    "cache_type": "null",
    "cache_location": None,
    "cache_size_limit": None,
    "cache_row_size_estimate": None,
    "cache_extra_settings": None,
    "hdfs_driver": "libhdfs3",
    "transform_spec": None,
    "filters": None,
    "storage_options": None,
    "zmq_copy_buffers": True,
    "filesystem": None,
    "convert_early_to_numpy": False,
}


def test_arguments_have_petastorms_order_and_defaults() -> None:
    _, *parameters = inspect.signature(ReaderArguments).parameters.values()

    positional = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind != parameter.KEYWORD_ONLY
    }

    assert list(positional.items()) == list(PETASTORMS_ARGUMENTS.items())


# ------------------------------------------------------------------ the exact rows

#: Predicates, each with whether it selects the row of a number.
PREDICATES: list[tuple[Any, Callable[[int], bool]]] = [
    (None, lambda number: True),
    (in_set(range(0, 200, 7), "id"), lambda number: number % 7 == 0),
    (col("double") > 300, lambda number: number > 150),
    (in_lambda(["text"], lambda text: "1" in text), lambda number: "1" in str(number)),
]

#: All combinations: predicate, shuffle_rows, shuffle_row_groups, partitions, filters.
COMBINATIONS = list(
    itertools.product(PREDICATES, [False, True], [False, True], [1, 3], [None, [("id", "<", 160)]])
)


@pytest.mark.parametrize("combination", COMBINATIONS[:: sized(11, 1)])
def test_rows_stay_whole_in_any_combination(numbers: Path, combination: Any) -> None:
    (predicate, selects), shuffles_rows, shuffles_groups, n_partitions, filters = combination
    arguments = {
        "reader_pool_type": "dummy",
        "predicate": predicate,
        "shuffle_rows": shuffles_rows,
        "shuffle_row_groups": shuffles_groups,
        "shuffle_row_drop_partitions": n_partitions,
        "filters": filters,
    }
    n_filtered = N_ROWS if filters is None else 160
    expected = [number for number in range(n_filtered) if selects(number)]

    with make_reader(numbers, **arguments) as reader:
        rows = list(reader)
    with make_batch_reader(numbers, **arguments) as reader:
        batched_rows = rows_of_groups(reader)

    assert all(is_whole(row) for row in rows)
    assert all(is_whole(row) for row in batched_rows)
    assert sorted(ids_of(rows)) == expected
    assert sorted(ids_of(batched_rows)) == expected


def test_several_threads_may_take_rows_of_one_reader(numbers: Path) -> None:
    with (
        make_reader(numbers, workers_count=3, num_epochs=3) as reader,
        ThreadPoolExecutor(8) as threads,
    ):
        rows = list(threads.map(lambda _: next(reader), range(3 * N_ROWS)))

        assert next(reader, None) is None
        assert reader.last_row_consumed
    assert Counter(ids_of(rows)) == dict.fromkeys(range(N_ROWS), 3)
    assert all(is_whole(row) for row in rows)


# ------------------------------------------------------------------ the order


def order(numbers: Path, **arguments: Any) -> list[int]:
    """Return the ids in the order of a reader with these arguments."""
    with make_reader(
        numbers, schema_fields=["id"], reader_pool_type="dummy", **arguments
    ) as reader:
        return ids_of(reader)


def test_zero_is_a_seed_and_none_is_random(numbers: Path) -> None:
    assert order(numbers, seed=0) == order(numbers, seed=0)
    assert order(numbers, seed=0) != order(numbers, seed=1)
    assert order(numbers) != order(numbers)


def test_rows_are_shuffled_within_row_groups_that_stay_in_order(numbers: Path) -> None:
    rows = order(numbers, shuffle_row_groups=False, shuffle_rows=True, seed=3)

    groups = np.array(rows).reshape(N_GROUPS, -1)
    assert np.array_equal(np.sort(groups, axis=1).ravel(), np.arange(N_ROWS))
    orders_in_groups = {tuple(group - group.min()) for group in groups}
    assert len(orders_in_groups) > N_GROUPS // 2


# ------------------------------------------------------------------ shards


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"predicate": col("maybe").is_valid()},
        {"shuffle_rows": True, "shuffle_row_drop_partitions": 3},
        {"shuffle_row_groups": False},
    ],
)
def test_shards_with_different_seeds_have_each_row_once(
    numbers: Path, make: Any, arguments: dict[str, Any]
) -> None:
    n_shards = sized(3, 7)
    n_epochs = 2
    expected = sorted(order(numbers, predicate=arguments.get("predicate")) * n_epochs)

    rows: list[int] = []
    for rank in range(n_shards):
        with make(
            numbers,
            cur_shard=rank,
            shard_count=n_shards,
            seed=rank,
            num_epochs=n_epochs,
            **arguments,
        ) as reader:
            for row in reader:
                rows.extend(np.atleast_1d(row.id).tolist())

    assert sorted(rows) == expected


def make_shards(n_rows: int, n_shards: int, batch_size: int, uneven: Any) -> Shards:
    """Return the order of shards of rows in blocks of about five rows."""
    lengths = np.diff([0, *range(1, n_rows, 5), n_rows])
    return Shards(
        lengths[lengths > 0],
        Sharding(n_shards, batch_size, uneven),
        lambda lengths: BlockShuffled(block_lengths=lengths, window=2),
        reshuffles=True,
    )


@pytest.mark.parametrize("n_shards", [2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 16])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("n_rows", [1, 7, 40, 97])
def test_the_order_of_shards_has_each_row_once(
    n_shards: int, batch_size: int, uneven: Any, n_rows: int
) -> None:
    shards = make_shards(n_rows, n_shards, batch_size, uneven)

    rows = shards.indices(np.arange(n_rows), n_rows, seed=5, epoch=1)

    assert sorted(rows.tolist()) == list(range(n_rows))


@pytest.mark.parametrize("n_shards", [2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 16])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("n_rows", [1, 7, 40, 97])
def test_ranks_with_other_seeds_share_no_row(
    n_shards: int, batch_size: int, uneven: Any, n_rows: int
) -> None:
    shards = make_shards(n_rows, n_shards, batch_size, uneven)

    rows: list[int] = []
    for rank in range(n_shards):
        plan = Plan(n_rows, batch_size, rank=rank, world=n_shards, uneven=uneven)
        positions: list[int] = []
        for step in range(plan.n_steps()):
            # "pad" repeats rows at positions after the last one.
            positions.extend(position for position in plan.part(step) if position < n_rows)
        indices = shards.indices(
            np.array(positions, dtype=np.int64), n_rows, seed=100 + rank, epoch=1
        )
        rows.extend(indices.tolist())

    n_dropped = n_rows % n_shards if uneven == "drop" else 0
    assert len(set(rows)) == len(rows)
    assert len(rows) == n_rows - n_dropped


@pytest.mark.parametrize("arguments", [{}, {"predicate": col("id") < 191}])
def test_shards_repeat_rows_only_in_loaders(numbers: Path, arguments: dict[str, Any]) -> None:
    expected = order(numbers, shuffle_row_groups=False, **arguments)
    readers = [
        make_batch_reader(numbers, ["id"], cur_shard=rank, shard_count=3, seed=rank, **arguments)
        for rank in range(3)
    ]

    rows = list(itertools.chain(*[ids_of_groups(reader) for reader in readers]))
    assert sorted(rows) == expected

    batches_of_ranks = [
        [batch["id"].tolist() for batch in DataLoader(reader, 8)] for reader in readers
    ]
    n_batches = {len(batches) for batches in batches_of_ranks}
    assert len(n_batches) == 1
    n_times = Counter(
        number for batches in batches_of_ranks for batch in batches for number in batch
    )
    assert sorted(n_times) == expected
    n_padded = -len(expected) % 3
    assert sum(n_times.values()) == len(expected) + n_padded


def test_fewer_rows_than_shards_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": np.arange(5)}), tmp_path / "one.parquet")

    with pytest.raises(ConfigError, match=r"fewer rows \(5\) than shards \(6\)"):
        make_reader(tmp_path, cur_shard=0, shard_count=6)

    n_rows = [
        len(order(tmp_path, cur_shard=rank, shard_count=6, uneven="keep")) for rank in range(6)
    ]
    assert n_rows == [1, 1, 1, 1, 1, 0]


def test_batch_readers_refuse_more_shards_than_row_groups(numbers: Path) -> None:
    n_shards = N_GROUPS + 1

    def make_shard(rank: int, **arguments: Any) -> Reader:
        return make_batch_reader(numbers, ["id"], cur_shard=rank, shard_count=n_shards, **arguments)

    message = r"fewer row groups \(20\) than shards \(21\)"
    with make_shard(0) as first, pytest.raises(ConfigError, match=message):
        next(first)

    assert len(list(make_shard(0, uneven="keep"))) == 1
    assert len(list(make_shard(N_GROUPS, uneven="keep"))) == 0
    # A loader divides the rows: 200 on 21 shards, of which 10 are repeated.
    loaders = [DataLoader(make_shard(rank), batch_size=10) for rank in range(n_shards)]
    n_rows = sum(len(batch["id"]) for loader in loaders for batch in loader)
    assert n_rows == N_ROWS + 10


# ------------------------------------------------------------------ iterating


def test_a_reader_restarts_at_its_end_or_when_stopped(numbers: Path) -> None:
    with make_reader(numbers, seed=1) as reader:
        next(reader)
        with pytest.raises(NotImplementedError, match="in the middle"):
            reader.reset()
    with pytest.raises(RuntimeError, match="stopped reader"):
        next(reader)

    with reader:
        assert len(ids_of(reader)) == N_ROWS

    reader.reset()
    assert sorted(ids_of(reader)) == list(range(N_ROWS))
    assert reader.last_row_consumed
    reader.stop()
    reader.join()
    reader.cleanup_cache()


@pytest.mark.parametrize("pool_type", ["dummy", "thread"])
def test_after_an_error_the_reader_tries_the_row_again(numbers: Path, pool_type: str) -> None:
    failures = ["not yet", "not yet"]

    def fail_twice(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 50 and failures:
            raise OSError(failures.pop())
        return row

    with make_reader(
        numbers,
        transform_spec=TransformSpec(fail_twice),
        shuffle_row_groups=False,
        reader_pool_type=pool_type,
    ) as reader:
        with pytest.raises(DataStackError, match="not yet"):
            ids_of(reader)

        assert ids_of(reader) == list(range(N_ROWS))


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_reader_without_rows_warns(
    numbers: Path, tmp_path: Path, make: Any, is_empty: bool
) -> None:
    folder = numbers
    predicate = in_set([-1], "id")
    if is_empty:
        pq.write_table(pa.table({"id": np.arange(0)}), tmp_path / "empty.parquet")
        folder = tmp_path

    for rows_of_reader in (None, predicate) if is_empty else (predicate,):
        with pytest.warns(UserWarning, match="No matching data is available") as warned:
            reader = make(
                folder,
                predicate=rows_of_reader,
                shuffle_rows=True,
                shuffle_row_drop_partitions=2,
            )

        assert warned[0].filename == __file__
        with reader:
            assert list(reader) == []
            assert len(reader) == 0


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_a_warning_names_the_line_of_the_program(numbers: Path, make: Any) -> None:
    with pytest.warns(UserWarning, match="matches no field") as of_fields:
        make(numbers, ["id", "missing"])
    with pytest.warns(UserWarning, match="shard_seed was deprecated") as of_seed:
        make(numbers, ["id"], shard_seed=3)

    assert of_fields[0].filename == __file__
    assert of_seed[0].filename == __file__


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_a_missing_shard_warns_at_the_program(
    numbers: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.warns(UserWarning, match="no cur_shard and shard_count") as warned:
        make(numbers, ["id"])

    assert warned[0].filename == __file__


# ------------------------------------------------------------------ where the files are


def test_a_cache_keeps_remote_files_and_deletes_no_others(
    numbers: Path, mongodb_uri: str, tmp_path: Path
) -> None:
    for file in numbers.iterdir():
        storage_connector_from_url(mongodb_uri).set_resource(file.name, file.read_bytes())
    own_file = tmp_path / "mine.txt"
    own_file.write_text("keep me")

    def read(spec: TransformSpec | None) -> list[int]:
        with make_reader(
            mongodb_uri,
            transform_spec=spec,
            cache_type="local-disk",
            cache_location=tmp_path,
            cache_size_limit=10_000_000,
        ) as reader:
            return sorted(ids_of(reader))

    # The cache keeps bytes, so that it never returns rows of another transform.
    negate = TransformSpec(lambda row: {"id": -row["id"]}, selected_fields=["id"])
    assert read(None) == list(range(N_ROWS))
    assert read(TransformSpec(selected_fields=["id"])) == list(range(N_ROWS))
    assert read(negate) == sorted(-number for number in range(N_ROWS))

    assert own_file.read_text() == "keep me"
    n_files = sum(path.is_file() for path in tmp_path.rglob("*"))
    assert n_files > 1


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize(("unit", "dtype"), [(None, "M8[us]"), ("ns", "M8[ns]")])
def test_timestamps_have_the_requested_unit(
    tmp_path: Path, make: Any, unit: str | None, dtype: str
) -> None:
    times = np.datetime64("2024-01-01T00", "us") + np.arange(3)
    pq.write_table(pa.table({"time": times}), tmp_path / "times.parquet")

    with make(tmp_path, timestamp_unit=unit, shuffle_row_groups=False) as reader:
        assert next(reader).time.dtype == np.dtype(dtype)


# ------------------------------------------------------------------ several readers


def make_two_readers(numbers: Path, **arguments: Any) -> list[Any]:
    """Return a reader of the first half of the rows, and one of the second half."""
    return [
        make_reader(
            numbers,
            schema_fields=["id"],
            seed=0,
            predicate=predicate,
            reader_pool_type="dummy",
            **arguments,
        )
        for predicate in (col("id") < 100, col("id") >= 100)
    ]


def test_readers_are_drawn_by_their_weights(numbers: Path) -> None:
    readers = make_two_readers(numbers, num_epochs=None)

    with WeightedSamplingReader(readers, [0.2, 0.6], seed=3) as reader:
        is_of_first = [row.id < 100 for row in itertools.islice(reader, 4000)]

    assert abs(np.mean(is_of_first) - 0.25) < 0.03


@pytest.mark.parametrize("weights", [[1], [1, -1], [0, 0], [1, float("nan")], "ab"])
def test_invalid_probabilities_are_refused(numbers: Path, weights: Any) -> None:
    readers = make_two_readers(numbers)

    with pytest.raises((ConfigError, ValueError)):
        WeightedSamplingReader(readers, weights)
