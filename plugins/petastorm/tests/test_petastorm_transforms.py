"""Transforms: the fields of the result, the forms of a function's argument, and its mistakes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import make_batch_reader
from data_stack_petastorm.transform import BatchTransform, TransformSpec, edit_field
from kept_samples import exact

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, LoadingError
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.testing.comparing import assert_same

SCHEMA = Schema(
    "rows",
    [
        Field("id", "int64"),
        Field("vector", "float32", (3,)),
        Field("image", "uint8", (2, 2)),
        Field("name", str),
        Field("count", "int64", nullable=True),
        Field("price", Decimal, (), None),
        Field("day", "datetime64[D]"),
    ],
)
N_ROWS = 7


def values() -> list[Any]:
    return [
        np.arange(N_ROWS),
        np.arange(3 * N_ROWS, dtype="f4").reshape(-1, 3),
        np.arange(4 * N_ROWS, dtype="u1").reshape(-1, 2, 2),
        [f"né{i}" for i in range(N_ROWS)],
        [None if i % 3 == 1 else 2**53 + i for i in range(N_ROWS)],
        [Decimal(i) / 4 for i in range(N_ROWS)],
        np.datetime64("2024-02-27") + np.arange(N_ROWS),
    ]


def dataset() -> Any:
    return SequenceDatasetIterator(values()).as_dict(*SCHEMA.fields)


def transformed(
    function: Callable[..., Any],
    edit_fields: list[Any] | None = None,
    *,
    on: Any = None,
    seed: int | None = None,
    below: Any = None,
) -> Any:
    """The transformed rows of ``below``, or of :func:`dataset`."""
    spec = TransformSpec(function, edit_fields, on=on)
    rows = dataset() if below is None else below
    return rows.map(BatchTransform(spec, spec.schema_of(SCHEMA)), batched=True, seed=seed)


def test_edited_fields_stand_behind_others_removed_ones_are_gone() -> None:
    spec = TransformSpec(
        lambda row: row,
        [("vector", np.float64, (3,), False), edit_field("new", np.int32, ())],
        ["image", "day"],
    )

    schema = spec.schema_of(SCHEMA)

    assert list(schema.fields) == ["id", "name", "count", "price", "vector", "new"]
    assert (schema.name, schema["vector"].dtype) == ("rows_transformed", np.float64)


def test_selected_fields_stand_in_their_order() -> None:
    spec = TransformSpec(selected_fields=["name", "id"])

    assert list(spec.schema_of(SCHEMA).fields) == ["name", "id"]


def test_unknown_names_warn_and_are_left_out() -> None:
    spec = TransformSpec(removed_fields=["id", "idd"])

    with pytest.warns(UserWarning, match=r'removed_fields specified .* "idd"'):
        known = spec.known(SCHEMA.fields)

    assert known.removed_fields == ["id"]


@pytest.mark.parametrize(
    "options",
    [
        {"func": 3},
        {"on": "dicts"},
        {"edit_fields": ["id"]},
        {"removed_fields": [3]},
        {"removed_fields": ["id"], "selected_fields": ["name"]},
        {"selected_fields": ["idd"]},
        {"edit_fields": [("idd", np.int64, (), False)]},
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TransformSpec(**options).schema_of(SCHEMA)


def of_rows(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "sum": row["vector"].sum()}


def of_arrays(columns: dict[str, Any]) -> dict[str, Any]:
    return {**columns, "sum": columns["vector"].sum(axis=1)}


def of_frames(frame: Any) -> Any:
    return frame.assign(sum=[np.float32(vector.sum()) for vector in frame["vector"]]).set_index(
        "id", drop=False
    )


FORMS: dict[str, Callable[[Any], Any]] = {"rows": of_rows, "numpy": of_arrays, "pandas": of_frames}


@pytest.mark.parametrize("on", FORMS)
def test_every_form_gives_the_same_values_and_dtypes(on: str) -> None:
    iterator = transformed(FORMS[on], [("sum", np.float32, (), False)], on=on)
    expected = []
    for row_values in zip(*values(), strict=True):
        row = dict(zip(SCHEMA.fields, row_values, strict=True))
        expected.append({**row, "sum": row["vector"].sum()})

    samples = list(iterator)
    batch = iterator.read_batch([5, 0, 5])

    assert_same(samples, expected)
    for name in [*SCHEMA.fields, "sum"]:
        of_samples = [samples[position][name] for position in (5, 0, 5)]
        assert exact(list(batch[name])) == exact(of_samples), name
    assert batch["sum"].dtype == np.float32


@pytest.mark.parametrize("on", FORMS)
def test_a_transform_can_be_pickled(on: str) -> None:
    iterator = transformed(FORMS[on], [("sum", np.float32, (), False)], on=on)

    again = pickle.loads(pickle.dumps(iterator))

    assert exact(again[3]["sum"]) == exact(iterator[3]["sum"])


def overwrite_arrays(given: Any) -> Any:
    given["vector"][:] = 0
    given["id"] = given["id"] * 0
    return given


def overwrite_frame(frame: Any) -> Any:
    frame["id"] *= 0
    for vector in frame["vector"]:
        vector[:] = 0
    return frame


@pytest.mark.parametrize(
    ("on", "overwrite"),
    [("rows", overwrite_arrays), ("numpy", overwrite_arrays), ("pandas", overwrite_frame)],
)
def test_a_function_may_change_what_it_is_given(on: str, overwrite: Any) -> None:
    below = dataset()

    transformed(overwrite, on=on, below=below).read_batch(range(N_ROWS))

    assert [int(number) for number in below.read_column("id")] == list(range(N_ROWS))
    assert below.read_column("vector").sum() == values()[1].sum()


@pytest.mark.parametrize(
    ("field", "good", "value"),
    [
        (("x", np.int64, (), False), 1, 1.5),
        (("x", np.int64, (), False), 1, None),
        (("x", np.uint8, (), False), 1, 300),
        (("x", np.float32, (2,), False), np.zeros(2, "f4"), np.zeros(3, "f4")),
        (("x", np.float32, (None, 2), False), np.zeros((2, 2), "f4"), np.zeros(2, "f4")),
        (("x", str, (), False), "a", 3),
        (("x", Decimal, (), False), Decimal(1), 0.5),
        (("x", str, (None,), False), ["a", None], [b"x"]),
    ],
)
def test_the_error_for_a_misfit_names_row_and_field(field: Any, good: Any, value: Any) -> None:
    def add(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "x": value if row["id"] == 4 else good}

    iterator = transformed(add, [field])

    assert len(iterator.read_batch([0, 1, 2, 3])["x"]) == 4
    with pytest.raises(ConfigError, match="'x' for row 1 of"):
        iterator.read_batch([1, 4])


@pytest.mark.parametrize("on", FORMS)
def test_a_function_must_return_fields(on: Any) -> None:
    with pytest.raises(ConfigError):
        transformed(lambda given: 3, on=on).read_batch([0])


def test_a_row_without_a_field_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'vector' is missing"):
        transformed(lambda row: {"id": row["id"]})[3]


def first_of_arrays(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: column[:1] for name, column in columns.items()}


def first_of_frame(frame: Any) -> Any:
    return frame[:1]


@pytest.mark.parametrize(
    ("on", "take_first"), [("numpy", first_of_arrays), ("pandas", first_of_frame)]
)
def test_a_function_must_return_all_rows(on: str, take_first: Any) -> None:
    with pytest.raises(ConfigError, match="1 values of field 'id' for 2 rows"):
        transformed(take_first, on=on).read_batch([0, 1])


def add_noise(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "noise": rng.random()}


NOISE = [("noise", np.float64, (), False)]


def test_a_random_function_depends_on_the_row() -> None:
    iterator = transformed(add_noise, NOISE, seed=1)

    drawn = iterator.read_column("noise").tolist()

    assert [iterator[position]["noise"] for position in range(N_ROWS)] == drawn
    assert iterator.read_batch([3, 1])["noise"].tolist() == [drawn[3], drawn[1]]


def test_a_random_function_depends_on_the_seed() -> None:
    first = transformed(add_noise, NOISE, seed=1).read_column("noise")
    second = transformed(add_noise, NOISE, seed=2).read_column("noise")

    assert len({*first, *second}) == 2 * N_ROWS


@pytest.mark.parametrize("result", [None, [1], {"a": 3}, {"a": np.array(3)}, {"a": None}])
def test_a_result_without_columns_is_an_error_of_reading(result: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "a.parquet")
    spec = TransformSpec(lambda batch: result, on="numpy")

    with (
        make_batch_reader(str(tmp_path), transform_spec=spec) as reader,
        pytest.raises(LoadingError, match="'a'"),
    ):
        next(reader)
