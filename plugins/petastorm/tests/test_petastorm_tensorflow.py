"""A reader's rows as ``tf.data``, and one by one.

Without TensorFlow the tests are skipped: `make test-all` has it.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip(
    "tensorflow", reason="tensorflow is not installed: `make test-all` brings it"
)

import pyarrow as pa  # noqa: E402  # behind the line that may skip this module
import pyarrow.parquet as pq  # noqa: E402  # likewise
from data_stack_petastorm import (  # noqa: E402  # likewise
    NGram,
    make_batch_reader,
    make_petastorm_dataset,
    make_reader,
    tf_tensors,
)

from data_stack.exception import ConfigError  # noqa: E402  # likewise

N_ROWS = 60


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("table") / "table.parquet"
    ids = np.arange(N_ROWS)
    columns = {
        "id": ids,
        "small": ids.astype("u2"),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(ids, 2).astype("f4")), 2),
        "name": [f"né {number}" for number in ids],
        "price": pa.array([Decimal(int(number)) / 4 for number in ids], pa.decimal128(10, 2)),
        "day": np.datetime64("2024-01-01") + ids,
    }
    pq.write_table(pa.table(columns), file, row_group_size=10)
    return file


def make_test_reader(table: Path, *fields: str, batched: bool = False, **arguments: Any) -> Any:
    """Return a reader of rows, or of row groups, in the order of the table."""
    make = make_batch_reader if batched else make_reader
    defaults = {
        "schema_fields": list(fields),
        "reader_pool_type": "dummy",
        "shuffle_row_groups": False,
    }
    return make(table, **{**defaults, **arguments})


def test_rows_are_named_tuples_of_tensors(table: Path) -> None:
    fields = ["id", "small", "name", "price", "day", "vector"]
    dataset = make_petastorm_dataset(make_test_reader(table, *fields))

    rows = list(dataset)

    assert [int(row.id) for row in rows] == list(range(N_ROWS))
    row = rows[10]
    assert int(row.small) == 10
    assert row.name.numpy().decode() == "né 10"
    assert row.price.numpy() == b"2.5"
    assert row.vector.numpy().tolist() == [10, 10]
    assert np.datetime64(int(row.day), "ns") == np.datetime64("2024-01-11")


def test_a_dataset_has_a_static_signature(table: Path) -> None:
    fields = ["id", "small", "name", "price", "day", "vector"]
    dataset = make_petastorm_dataset(make_test_reader(table, *fields))

    spec = dataset.element_spec

    assert {name: tensor.dtype for name, tensor in spec._asdict().items()} == {
        "id": tf.int64,
        "small": tf.int32,
        "vector": tf.float32,
        "name": tf.string,
        "price": tf.string,
        "day": tf.int64,
    }
    assert spec._fields == ("id", "small", "vector", "name", "price", "day")
    assert spec.id.shape.as_list() == []
    assert int(dataset.cardinality()) == N_ROWS


def test_each_iteration_is_another_pass_in_another_order(table: Path) -> None:
    reader = make_test_reader(table, "id", shuffle_row_groups=True, seed=1)
    dataset = make_petastorm_dataset(reader)

    first = [int(row.id) for row in dataset]
    second = [int(row.id) for row in dataset]

    assert sorted(first) == list(range(N_ROWS))
    assert sorted(second) == list(range(N_ROWS))
    assert first != second


def test_a_dataset_repeats(table: Path) -> None:
    dataset = make_petastorm_dataset(make_test_reader(table, "id"))

    assert len(list(dataset.repeat(2))) == 2 * N_ROWS


def test_row_groups_are_tuples_of_columns(table: Path) -> None:
    reader = make_test_reader(table, "id", "name", "vector", "price", batched=True)
    dataset = make_petastorm_dataset(reader)

    batches = list(dataset)

    assert dataset.element_spec.vector.shape.as_list() in ([None, 2], [None, None])
    assert [batch.vector.shape.as_list() for batch in batches] == [[10, 2]] * 6
    assert batches[1].name.numpy()[0].decode() == "né 10"
    assert batches[1].price.numpy()[:2].tolist() == [b"2.5", b"2.75"]


def test_fields_without_tensors_are_refused_at_once(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pair": [{"a": 1}]}), tmp_path / "a.parquet")

    with pytest.raises(ConfigError, match="'pair'"):
        make_petastorm_dataset(make_reader(tmp_path))


def test_a_function_takes_the_next_row_in_each_run(table: Path) -> None:
    rows = make_test_reader(table, "id", "vector", "day")
    # Endless, as there are fewer sequences than rows.
    ngram = NGram({1: ["id"], 0: ["id"]}, 1, "id")
    sequences = make_reader(table, schema_fields=ngram, num_epochs=None)

    @tf.function  # type: ignore[untyped-decorator]  # no types in TensorFlow
    def step() -> Any:
        row = tf_tensors(rows)
        assert row.vector.shape.as_list() == [2]
        assert row.day.dtype == tf.int64
        return row.id, tf_tensors(sequences)

    for number in range(3):
        row_id, sequence = step()
        assert int(row_id) == number
        assert int(sequence[1].id) == int(sequence[0].id) + 1
    assert int(tf_tensors(rows).id) == 3
    for _ in range(4, N_ROWS):
        step()
    with pytest.raises(tf.errors.OutOfRangeError):
        step()


def test_sessions_of_tensorflow_1_take_rows(table: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        row = tf_tensors(make_test_reader(table, "id", "name", seed=3), 20)

        rows = [session.run(row) for _ in range(N_ROWS)]

        ids = [int(row.id) for row in rows]
        assert sorted(ids) == list(range(N_ROWS))
        assert ids != list(range(N_ROWS))
        assert all(row.name.decode() == f"né {row.id}" for row in rows)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(row)


def test_sessions_of_tensorflow_1_iterate_over_datasets(table: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = make_petastorm_dataset(make_test_reader(table, "id", batched=True))
        batch = dataset.make_one_shot_iterator().get_next()

        assert session.run(batch).id.tolist() == list(range(10))


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """The folder of a dataset of two row groups, the first of which has a null."""
    column = pa.array([0.5, None, 1.5, 2.5], pa.float32())
    pq.write_table(pa.table({"half": column}), tmp_path / "halves.parquet", row_group_size=2)
    return tmp_path


def test_missing_floats_are_nan_of_row_groups_or_on_request(halves: Path) -> None:
    expected = [0.5, np.nan, 1.5, 2.5]

    groups = make_petastorm_dataset(make_test_reader(halves, batched=True))
    rows = make_petastorm_dataset(make_test_reader(halves, nulls="nan"))
    first_group = tf_tensors(make_test_reader(halves, batched=True, nulls="nan"))

    values_of_groups = np.concatenate([group.half.numpy() for group in groups])
    assert np.array_equal(values_of_groups, expected, equal_nan=True)
    assert np.array_equal([row.half.numpy() for row in rows], expected, equal_nan=True)
    assert np.array_equal(first_group.half, expected[:2], equal_nan=True)


@pytest.mark.parametrize("arguments", [{}, {"batched": True, "nulls": "none"}])
def test_missing_floats_are_refused_with_advice(halves: Path, arguments: dict[str, Any]) -> None:
    dataset = make_petastorm_dataset(make_test_reader(halves, **arguments))

    with pytest.raises(tf.errors.OpError, match="nulls='nan'"):
        list(dataset)
