"""Transforms: which fields come out, in which form the function gets them, and what it may not give."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.transform import BatchTransform, TransformSpec, edit_field
from kept_samples import exact

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
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


def transformed(*arguments: Any, seed: int | None = None, below: Any = None, **options: Any) -> Any:
    spec = TransformSpec(*arguments, **options)
    below = below or SequenceDatasetIterator(values()).as_dict(*SCHEMA.fields)
    return below.map(BatchTransform(spec, spec.schema_of(SCHEMA)), batched=True, seed=seed)


def test_edited_fields_stand_behind_others_removed_ones_are_gone() -> None:
    spec = TransformSpec(
        lambda row: row,
        [("vector", np.float64, (3,), False), edit_field("new", np.int32, ())],
        ["image", "day"],
    )

    schema = spec.schema_of(SCHEMA)

    assert list(schema.fields) == ["id", "name", "count", "price", "vector", "new"]
    assert (schema.name, schema["vector"].dtype) == ("rows_transformed", np.float64)


@pytest.mark.parametrize(
    "options",
    [
        *({"func": 3}, {"on": "dicts"}, {"edit_fields": ["id"]}, {"removed_fields": [3]}),
        *({"removed_fields": ["id"], "selected_fields": ["name"]}, {"selected_fields": ["idd"]}),
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
    expected = [dict(zip(SCHEMA.fields, row, strict=True)) for row in zip(*values(), strict=True)]

    samples, batch = list(iterator), iterator.read_batch([5, 0, 5])

    assert_same(samples, [{**row, "sum": row["vector"].sum()} for row in expected])
    for name in [*SCHEMA.fields, "sum"]:
        assert exact(list(batch[name])) == exact([samples[index][name] for index in (5, 0, 5)]), (
            name
        )
    assert batch["sum"].dtype == np.float32
    assert exact(pickle.loads(pickle.dumps(iterator))[3]["sum"]) == exact(samples[3]["sum"])


@pytest.mark.parametrize("on", FORMS)
def test_a_function_may_change_what_it_is_given(on: str) -> None:
    below = SequenceDatasetIterator(values()).as_dict(*SCHEMA.fields)

    def destroyed(given: Any) -> Any:
        if on == "pandas":
            given["id"] *= 0
            for vector in given["vector"]:
                vector[:] = 0
        else:
            given["vector"][:] = 0
            given["id"] = given["id"] * 0
        return given

    transformed(destroyed, on=on, below=below).read_batch(range(N_ROWS))

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
    iterator = transformed(lambda row: {**row, "x": value if row["id"] == 4 else good}, [field])

    assert len(iterator.read_batch([0, 1, 2, 3])["x"]) == 4
    with pytest.raises(ConfigError, match="'x' for row 1 of"):
        iterator.read_batch([1, 4])


@pytest.mark.parametrize("on", FORMS)
def test_a_function_that_returns_something_else_is_an_error(on: Any) -> None:
    def cut(given: Any) -> Any:
        return {name: column[:1] for name, column in given.items()} if on == "numpy" else given[:1]

    with pytest.raises(ConfigError):
        transformed(lambda given: 3, on=on).read_batch([0])
    if on == "rows":
        with pytest.raises(ConfigError, match="'vector' is missing"):
            transformed(lambda row: {"id": row["id"]})[3]
    else:
        with pytest.raises(ConfigError, match="1 values of field 'id' for 2 rows"):
            transformed(cut, on=on).read_batch([0, 1])


def test_a_random_function_depends_on_seed_and_row_alone() -> None:
    def noisy(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**row, "noise": rng.random()}

    one, other = [
        transformed(noisy, [("noise", np.float64, (), False)], seed=seed) for seed in (1, 2)
    ]

    drawn = one.read_column("noise").tolist()

    assert [one[place]["noise"] for place in range(N_ROWS)] == drawn
    assert one.read_batch([3, 1])["noise"].tolist() == [drawn[3], drawn[1]]
    assert len({*drawn, *other.read_column("noise")}) == 2 * N_ROWS
