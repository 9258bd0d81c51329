"""A reader's rows as tf.data, and one by one. Without TensorFlow the tests are skipped: `make test-all` has it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip(
    "tensorflow", reason="tensorflow is not installed: `make test-all` brings it"
)
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: `make test-all` brings it")

import pyarrow.parquet as pq  # noqa: E402  # behind the lines that may skip this module
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


def reader(table: Path, *fields: str, batched: bool = False, **options: Any) -> Any:
    given = {
        "schema_fields": list(fields),
        "reader_pool_type": "dummy",
        "shuffle_row_groups": False,
        **options,
    }
    return (make_batch_reader if batched else make_reader)(table, **given)


def test_rows_are_named_tuples_with_a_static_signature(table: Path) -> None:
    dataset = make_petastorm_dataset(reader(table, "id", "small", "name", "price", "day", "vector"))

    rows = list(dataset)

    spec = dataset.element_spec
    assert spec._fields == ("id", "small", "vector", "name", "price", "day")
    assert [each.dtype for each in spec] == [
        tf.int64,
        tf.int32,
        tf.float32,
        tf.string,
        tf.string,
        tf.int64,
    ]
    assert (spec.id.shape.as_list(), len(rows), int(dataset.cardinality())) == ([], N_ROWS, N_ROWS)
    assert [int(row.id) for row in rows] == list(range(N_ROWS))
    row = rows[10]
    assert (
        int(row.small),
        row.name.numpy().decode(),
        row.price.numpy(),
        row.vector.numpy().tolist(),
    ) == (
        10,
        "né 10",
        b"2.5",
        [10, 10],
    )
    assert int(row.day) == int(
        (np.datetime64("2024-01-11", "ns") - np.datetime64(0, "ns")).astype(np.int64)
    )


def test_each_iteration_is_another_pass_in_another_order(table: Path) -> None:
    dataset = make_petastorm_dataset(reader(table, "id", shuffle_row_groups=True, seed=1))

    first, second = [[int(row.id) for row in dataset] for _ in range(2)]

    assert sorted(first) == sorted(second) == list(range(N_ROWS))
    assert first != second
    assert len(list(make_petastorm_dataset(reader(table, "id")).repeat(2))) == 2 * N_ROWS


def test_row_groups_are_tuples_of_columns(table: Path) -> None:
    dataset = make_petastorm_dataset(reader(table, "id", "name", "vector", "price", batched=True))

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
    rows, sequences = (
        reader(table, "id", "vector", "day"),
        make_reader(table, schema_fields=NGram({1: ["id"], 0: ["id"]}, 1, "id"), num_epochs=None),
    )

    @tf.function  # type: ignore[untyped-decorator]  # no types in TensorFlow
    def step() -> Any:
        row = tf_tensors(rows)
        assert (row.vector.shape.as_list(), row.day.dtype) == ([2], tf.int64)
        return row.id, tf_tensors(sequences)

    for number in range(3):
        found, pair = step()
        assert int(found) == number
        assert int(pair[1].id) == int(pair[0].id) + 1
    assert int(tf_tensors(rows).id) == 3
    for _ in range(4, N_ROWS):
        step()
    with pytest.raises(tf.errors.OutOfRangeError):
        step()


def test_sessions_of_tensorflow_1_run(table: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        row = tf_tensors(reader(table, "id", "name", seed=3), 20)
        found = [session.run(row) for _ in range(N_ROWS)]
        assert (
            sorted(int(each.id) for each in found)
            == list(range(N_ROWS))
            != [int(each.id) for each in found]
        )
        assert all(each.name.decode() == f"né {each.id}" for each in found)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(row)
        batch = (
            make_petastorm_dataset(reader(table, "id", batched=True))
            .make_one_shot_iterator()
            .get_next()
        )
        assert session.run(batch).id.tolist() == list(range(10))


def test_missing_floats_are_nan_of_row_groups_or_on_request(
    tmp_path: Path,
) -> None:
    halves = [0.5, None, 1.5, 2.5]
    pq.write_table(
        pa.table({"half": pa.array(halves, pa.float32())}),
        tmp_path / "halves.parquet",
        row_group_size=2,
    )
    expected = [0.5, np.nan, 1.5, 2.5]

    groups = [
        group.half.numpy() for group in make_petastorm_dataset(reader(tmp_path, batched=True))
    ]
    assert np.array_equal(np.concatenate(groups), expected, equal_nan=True)
    rows = [row.half.numpy() for row in make_petastorm_dataset(reader(tmp_path, nulls="nan"))]
    assert np.array_equal(rows, expected, equal_nan=True)
    first = tf_tensors(reader(tmp_path, batched=True, nulls="nan"))
    assert np.array_equal(first.half, expected[:2], equal_nan=True)
    for refusing in (reader(tmp_path), reader(tmp_path, batched=True, nulls="none")):
        with pytest.raises(tf.errors.OpError, match="nulls='nan'"):
            list(make_petastorm_dataset(refusing))
