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

#: Of 20 row groups in 2 files; `double` and `text` tell whether a row is whole.
N_ROWS, N_GROUPS = 200, 20


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    for file in range(2):
        ids = np.arange(N_ROWS // 2) + file * (N_ROWS // 2)
        columns = {
            "id": ids,
            "double": ids * 2,
            "text": [f"row {number}" for number in ids],
            "maybe": pa.array(
                [None if number % 3 == 0 else 2**53 + 1 + number for number in ids.tolist()],
                pa.int64(),
            ),
        }
        pq.write_table(
            pa.table(columns), folder / f"{file}.parquet", row_group_size=N_ROWS // N_GROUPS
        )
    return folder


def ids(reader: Any) -> list[int]:
    return [int(row.id) for row in reader]


def is_whole(row: Any) -> bool:
    number = int(row.id)
    return bool(
        row.double == 2 * number
        and row.text == f"row {number}"
        and row.maybe == (number + 2**53 + 1 if number % 3 else None)
    )


# ------------------------------------------------------------------ the arguments

PETASTORMS_ARGUMENTS = {
    "schema_fields": None, "reader_pool_type": "thread", "workers_count": 10,
    "results_queue_size": 50, "seed": None, "shuffle_rows": False, "shuffle_row_groups": True,
    "shuffle_row_drop_partitions": 1, "predicate": None,
    "rowgroup_selector": None, "num_epochs": 1, "cur_shard": None, "shard_count": None, "shard_seed": None, "cache_type": "null",
    "cache_location": None, "cache_size_limit": None, "cache_row_size_estimate": None, "cache_extra_settings": None,
    "hdfs_driver": "libhdfs3", "transform_spec": None, "filters": None, "storage_options": None, "zmq_copy_buffers": True,
    "filesystem": None, "convert_early_to_numpy": False,
}  # fmt: skip


def test_arguments_have_petastorms_order_and_defaults() -> None:
    parameters = list(inspect.signature(ReaderArguments).parameters.values())[1:]

    positional = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind != parameter.KEYWORD_ONLY
    }
    assert list(positional.items()) == list(PETASTORMS_ARGUMENTS.items())


# ------------------------------------------------------------------ the exact rows


def test_rows_stay_whole_in_any_combination(numbers: Path) -> None:
    predicates: list[tuple[Any, Callable[[int], bool]]] = [
        (None, lambda number: True),
        (in_set(range(0, 200, 7), "id"), lambda number: number % 7 == 0),
        (col("double") > 300, lambda number: number > 150),
        (in_lambda(["text"], lambda text: "1" in text), lambda number: "1" in str(number)),
    ]
    combinations = itertools.product(
        predicates, [False, True], [False, True], [1, 3], [None, [("id", "<", 160)]]
    )
    for (predicate, is_taken), shuffles, groups, parts, filters in itertools.islice(
        combinations, 0, None, sized(11, 1)
    ):
        options = {
            "predicate": predicate,
            "shuffle_rows": shuffles,
            "shuffle_row_groups": groups,
            "filters": filters,
        }
        wanted = [
            number for number in range(N_ROWS if filters is None else 160) if is_taken(number)
        ]

        with make_reader(
            numbers, reader_pool_type="dummy", shuffle_row_drop_partitions=parts, **options
        ) as reader:
            rows = list(reader)
        with make_batch_reader(
            numbers, reader_pool_type="dummy", shuffle_row_drop_partitions=parts, **options
        ) as reader:
            batched = [
                row for batch in reader for row in map(type(batch)._make, zip(*batch, strict=True))
            ]

        assert all(map(is_whole, rows))
        assert all(map(is_whole, batched))
        assert sorted(ids(rows)) == sorted(ids(batched)) == wanted


def test_several_threads_may_take_rows_of_one_reader(numbers: Path) -> None:
    with (
        make_reader(numbers, workers_count=3, num_epochs=3) as reader,
        ThreadPoolExecutor(8) as threads,
    ):
        rows = list(threads.map(lambda _: next(reader), range(3 * N_ROWS)))

        assert reader.last_row_consumed or next(reader, None) is None
    assert Counter(int(row.id) for row in rows) == dict.fromkeys(range(N_ROWS), 3)
    assert all(map(is_whole, rows))


# ------------------------------------------------------------------ the order


def order(numbers: Path, **options: Any) -> list[int]:
    with make_reader(numbers, schema_fields=["id"], reader_pool_type="dummy", **options) as reader:
        return ids(reader)


def test_zero_is_a_seed_and_none_is_random(numbers: Path) -> None:
    assert order(numbers, seed=0) == order(numbers, seed=0)
    assert order(numbers, seed=0) != order(numbers, seed=1)
    assert order(numbers) != order(numbers)


def test_rows_are_shuffled_within_row_groups_that_stay_in_order(numbers: Path) -> None:
    rows = np.array(order(numbers, shuffle_row_groups=False, shuffle_rows=True, seed=3)).reshape(
        N_GROUPS, -1
    )

    assert np.array_equal(np.sort(rows, axis=1).reshape(-1), np.arange(N_ROWS))
    assert len({tuple(group - group.min()) for group in rows}) > N_GROUPS // 2


# ------------------------------------------------------------------ shards


SHUFFLED = {"shuffle_rows": True, "shuffle_row_drop_partitions": 3}


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize(
    "options", [{}, {"predicate": col("maybe").is_valid()}, SHUFFLED, {"shuffle_row_groups": False}]
)
def test_shards_with_different_seeds_have_each_row_once(
    numbers: Path, make: Any, options: dict[str, Any]
) -> None:
    expected, n_shards = sorted(order(numbers, predicate=options.get("predicate")) * 2), sized(3, 7)

    found: list[int] = []
    for rank in range(n_shards):
        with make(
            numbers, cur_shard=rank, shard_count=n_shards, seed=rank, num_epochs=2, **options
        ) as reader:
            found += [int(number) for row in reader for number in np.atleast_1d(row.id)]

    assert sorted(found) == expected


@pytest.mark.parametrize("batch_size", [1, 2, 3, 16])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("n_rows", [1, 7, 40, 97])
def test_the_order_of_shards_has_each_row_once(batch_size: int, uneven: Any, n_rows: int) -> None:
    lengths = np.diff([0, *range(1, n_rows, 5), n_rows])
    lengths = lengths[lengths > 0]

    for n_shards in (2, 3, 8):
        sharding = Sharding(n_shards, batch_size, uneven)
        shards = Shards(
            lengths,
            sharding,
            lambda lengths: BlockShuffled(block_lengths=lengths, window=2),
            reshuffles=True,
        )
        assert sorted(shards.indices(np.arange(n_rows), n_rows, 5, 1).tolist()) == list(
            range(n_rows)
        )
        given: list[int] = []
        for rank in range(n_shards):
            plan = Plan(n_rows, batch_size, rank=rank, world=n_shards, uneven=uneven)
            parts = [plan.part(step) for step in range(plan.n_steps())]
            positions = [position for part in parts for position in part if position < n_rows]
            given += shards.indices(
                np.array(positions, dtype=np.int64), n_rows, 100 + rank, 1
            ).tolist()
        assert (
            len(given)
            == len(set(given))
            == (n_rows - n_rows % n_shards if uneven == "drop" else n_rows)
        )


@pytest.mark.parametrize("options", [{}, {"predicate": col("id") < 191}])
def test_shards_repeat_rows_only_in_loaders(numbers: Path, options: dict[str, Any]) -> None:
    expected = order(numbers, shuffle_row_groups=False, **options)

    readers = [
        make_batch_reader(numbers, ["id"], cur_shard=rank, shard_count=3, seed=rank, **options)
        for rank in range(3)
    ]
    shards = [[int(number) for group in reader for number in group.id] for reader in readers]
    assert sorted(itertools.chain(*shards)) == expected

    batches = [[batch["id"].tolist() for batch in DataLoader(reader, 8)] for reader in readers]
    assert len({len(each) for each in batches}) == 1
    loaded = Counter(itertools.chain(*itertools.chain(*batches)))
    assert sorted(loaded) == expected
    assert sum(loaded.values()) == -(-len(expected) // 3) * 3


def test_fewer_rows_than_shards_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": np.arange(5)}), tmp_path / "one.parquet")
    with pytest.raises(ConfigError, match=r"fewer rows \(5\) than shards \(6\)"):
        make_reader(tmp_path, cur_shard=0, shard_count=6)

    assert [
        len(order(tmp_path, cur_shard=rank, shard_count=6, uneven="keep")) for rank in range(6)
    ] == [1, 1, 1, 1, 1, 0]


def test_fewer_row_groups_than_shards_are_an_error_of_batch_readers(
    numbers: Path,
) -> None:
    def reader(rank: int, **options: Any) -> Reader:
        return make_batch_reader(
            numbers, ["id"], cur_shard=rank, shard_count=N_GROUPS + 1, **options
        )

    with (
        reader(0) as first,
        pytest.raises(ConfigError, match=r"fewer row groups \(20\) than shards \(21\)"),
    ):
        next(first)

    assert [len(list(reader(rank, uneven="keep"))) for rank in (0, N_GROUPS)] == [1, 0]
    dealt = [DataLoader(reader(rank), batch_size=10) for rank in range(N_GROUPS + 1)]
    assert (
        sum(len(batch["id"]) for loader in dealt for batch in loader) == N_ROWS + 10
    )  # 200 rows on 21 shards


# ------------------------------------------------------------------ iterating


def test_a_reader_restarts_at_its_end_or_when_stopped(
    numbers: Path,
) -> None:
    with make_reader(numbers, seed=1) as reader:
        next(reader)
        with pytest.raises(NotImplementedError, match="in the middle"):
            reader.reset()
    with pytest.raises(RuntimeError, match="stopped reader"):
        next(reader)

    with reader:
        assert len(ids(reader)) == N_ROWS
    reader.reset()
    assert (sorted(ids(reader)), reader.last_row_consumed) == (list(range(N_ROWS)), True)
    reader.stop()
    reader.join()
    reader.cleanup_cache()


def test_after_an_error_the_reader_tries_the_row_again(numbers: Path) -> None:
    def fails_twice(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 50 and failures:
            raise OSError(failures.pop())
        return row

    for kind in ("dummy", "thread"):
        failures = ["not yet", "not yet"]
        spec = TransformSpec(fails_twice)
        with make_reader(
            numbers, transform_spec=spec, shuffle_row_groups=False, reader_pool_type=kind
        ) as reader:
            with pytest.raises(DataStackError, match="not yet"):
                ids(reader)

            assert ids(reader) == list(range(N_ROWS))


def test_a_reader_without_rows_warns(numbers: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": np.arange(0)}), tmp_path / "empty.parquet")

    for make, source, predicate in itertools.product(
        (make_reader, make_batch_reader), (numbers, tmp_path), (None, in_set([-1], "id"))
    ):
        if source is tmp_path or predicate is not None:
            with pytest.warns(UserWarning, match="No matching data is available") as told:
                reader = make(
                    source, predicate=predicate, shuffle_rows=True, shuffle_row_drop_partitions=2
                )

            assert told[0].filename == __file__
            with reader:
                assert (list(reader), len(reader)) == ([], 0)


# ------------------------------------------------------------------ where the files are


def test_a_cache_keeps_remote_files_and_deletes_no_others(
    numbers: Path, mongodb_uri: str, tmp_path: Path
) -> None:
    for file in numbers.iterdir():
        storage_connector_from_url(mongodb_uri).set_resource(file.name, file.read_bytes())
    (tmp_path / "mine.txt").write_text("keep me")
    options: dict[str, Any] = {
        "cache_type": "local-disk",
        "cache_location": tmp_path,
        "cache_size_limit": 10_000_000,
    }

    read = []
    for spec in (
        None,
        TransformSpec(selected_fields=["id"]),
        TransformSpec(lambda row: {"id": -row["id"]}, selected_fields=["id"]),
    ):
        with make_reader(mongodb_uri, transform_spec=spec, **options) as reader:
            read.append(sorted(ids(reader)))

    assert read[0] == read[1] == sorted(-number for number in read[2]) == list(range(N_ROWS))
    assert (tmp_path / "mine.txt").read_text() == "keep me"
    assert sum(path.is_file() for path in tmp_path.rglob("*")) > 1


# ------------------------------------------------------------------ several readers


def both(numbers: Path, **options: Any) -> list[Any]:
    return [
        make_reader(
            numbers,
            schema_fields=["id"],
            seed=0,
            predicate=predicate,
            reader_pool_type="dummy",
            **options,
        )
        for predicate in (col("id") < 100, col("id") >= 100)
    ]


def test_readers_are_drawn_by_their_weights(numbers: Path) -> None:
    with WeightedSamplingReader(both(numbers, num_epochs=None), [0.2, 0.6], seed=3) as reader:
        shares = [row.id < 100 for row in itertools.islice(reader, 4000)]

    assert abs(np.mean(shares) - 0.25) < 0.03


@pytest.mark.parametrize("weights", [[1], [1, -1], [0, 0], [1, float("nan")], "ab"])
def test_invalid_probabilities_are_refused(numbers: Path, weights: Any) -> None:
    with pytest.raises((ConfigError, ValueError)):
        WeightedSamplingReader(both(numbers), weights)


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_timestamps_have_the_requested_unit(tmp_path: Path, make: Any) -> None:
    times = np.datetime64("2024-01-01T00", "us") + np.arange(3)
    pq.write_table(pa.table({"time": times}), tmp_path / "times.parquet")

    found = {
        unit: next(make(tmp_path, timestamp_unit=unit, shuffle_row_groups=False)).time.dtype
        for unit in (None, "ns")
    }

    assert found == {None: np.dtype("M8[us]"), "ns": np.dtype("M8[ns]")}
