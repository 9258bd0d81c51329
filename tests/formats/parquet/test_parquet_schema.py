"""A schema survives its JSON, shows itself to every tool, and is inferred for any Parquet."""

from __future__ import annotations

import json
import pickle
import re
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_strategies import ALL, cells, compared, exact_rows

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.codecs import (
    CompressedNdarrayCodec,
    JpegCodec,
    ListCodec,
    NdarrayCodec,
    NestedCodec,
    PngCodec,
    ScalarCodec,
)
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.schema import SCHEMA_KEY, Field, Schema

SCALARS = [
    "bool",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
]


@pytest.fixture
def schema() -> Schema:
    """Fields of every codec."""
    return Schema(
        "everything",
        [
            *(Field(f"scalar_{dtype}", dtype, (), None, dtype == "int64") for dtype in SCALARS),
            Field("text", str),
            Field("data", bytes, nullable=True),
            Field("price", Decimal, (), ScalarCodec("decimal(10,3)")),
            Field("day", "datetime64[D]"),
            Field("time", "datetime64[ns]", nullable=True),
            Field("instant", "datetime64[us]", (), ScalarCodec("timestamp")),
            Field("clock", "timedelta64[us]", (), ScalarCodec("time[us]")),
            Field("list", "int32", (None,), nullable=True),
            Field("words", str, (None,)),
            Field("vector", "float32", (3,)),
            Field("packed", "complex64", (2, None), CompressedNdarrayCodec(), True),
            Field("names", str, (2,), NdarrayCodec()),
            Field("png", "uint8", (None, None, 3), PngCodec(), True),
            Field("jpeg", "uint8", (16, 16), JpegCodec(quality=90)),
            Field("json", object, (), "json"),
            Field(
                "nested",
                object,
                (),
                NestedCodec({"struct": {"a": "int", "b": {"list": {"list": "string"}}}}),
                True,
            ),
            Field("map", object, (), NestedCodec(pa.map_(pa.string(), pa.float64()))),
        ],
    )


def test_a_schema_survives_json_metadata_and_pickle(schema: Schema) -> None:
    through_json = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    through_metadata = Schema.from_metadata(schema.metadata())
    through_pickle = pickle.loads(pickle.dumps(schema))

    for again in (through_json, through_metadata, through_pickle):
        assert again == schema
        assert hash(again) == hash(schema)
        assert [field.arrow_type() for field in again] == [field.arrow_type() for field in schema]


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda content: content.update(version=99), DatasetFileCorruptError, "has format 99"),
        (lambda content: content.pop("fields"), DatasetFileCorruptError, "schema"),
        (
            lambda content: content["fields"][0].update(codec="unheard"),
            ConfigError,
            "codec 'unheard'",
        ),
        (lambda content: content["fields"][0].update(option=1), ConfigError, "option"),
        (lambda content: content["fields"][0].update(nullable=1), ConfigError, "nullable"),
        (lambda content: content["fields"][0].pop("name"), ConfigError, "name, dtype"),
        (lambda content: content["fields"].append(content["fields"][0]), ConfigError, "two fields"),
    ],
)
def test_an_invalid_stored_schema_is_refused_with_the_reason(
    change: Any, error: type[Exception], why: str
) -> None:
    content = Schema("s", [Field("x", "int32"), Field("y", str)]).to_json()
    change(content)

    with pytest.raises(error, match=why):
        Schema.from_json(content)


@pytest.mark.parametrize("stored", [b"{", b"[" * 100_000, b"null", b'{"fields": []}'])
def test_damaged_metadata_are_refused(stored: bytes) -> None:
    with pytest.raises(DatasetFileCorruptError):
        Schema.from_metadata({SCHEMA_KEY: stored})


def test_a_type_nested_without_end_is_refused() -> None:
    content: Any = "int"
    for _ in range(500):
        content = {"list": content}

    with pytest.raises(ConfigError, match="deep"):
        NestedCodec(content)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("", "int32"), "name of a field.*''"),
        ((np.array(["x", "y"]), "int32"), "name of a field"),
        (("x", None), "dtype of a field"),
        (("x", "datetime64[s/4]"), "'x'.*divided unit"),
        (("x", "timedelta64[Y/0]"), "'x'.*divided unit"),  # numpy ends the process at it
        (("x", "datetime64[0s]"), "'x'.*no length"),
        (("x", "int32", (), 5), "codec of field 'x'.* 5"),
        (("x", "int32", (), "nope"), "column type 'nope'"),
        (("x", object), "needs a codec"),
        (("x", "datetime64[ps]"), "no scalars of dtype"),
        (("x", "int64", (2,), ScalarCodec()), "field 'x'"),
        (("x", "int64", (), ScalarCodec("string")), "field 'x'"),
        (("x", str, (), ScalarCodec("bigint")), "field 'x'"),
        (("x", object, (2,), NdarrayCodec()), "field 'x'"),
        (("x", "float32", (None, None), PngCodec()), "field 'x'"),
        (("x", "uint16", (4, 4), JpegCodec()), "field 'x'"),
        (("x", "complex64", (), ScalarCodec()), "field 'x'"),
        (("x", "int64", (), NestedCodec({"list": "int"})), "field 'x'"),
    ],
)
def test_a_field_invalid_or_unfit_for_its_codec_is_refused(
    arguments: tuple[Any, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        Field(*arguments)


@pytest.mark.parametrize("name", ["decimal(5,7)", "decimal(0,0)", "decimal(77,7)"])
def test_decimals_without_a_type_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(name)}.*1 to 76 digits.*scale"):
        ScalarCodec(name)


def test_a_dtype_is_taken_by_any_name_that_it_has() -> None:
    kinds = [
        Field("x", dtype).dtype for dtype in (int, "int64", np.int64, ">i8", np.dtype("int64"))
    ]
    texts = [Field("x", dtype).dtype for dtype in (str, np.str_, "U7", "<U3")]

    assert set(kinds) == {np.dtype("int64")}
    assert set(texts) == {np.dtype("U")}
    assert Field("x", np.datetime64).dtype == np.dtype("datetime64[ns]")


@pytest.mark.parametrize("name", ["x/y", "y", 5, None, ["text"]])
def test_a_field_that_does_not_exist_is_named(schema: Schema, name: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"no field {name!r}")):
        schema[name]
    assert name not in schema


# ---------------------------------------------------------------------- views


def test_a_view_keeps_the_order_of_the_schema(schema: Schema) -> None:
    view = schema.view(["png", re.compile("scalar_u.*"), schema["text"], "dat."])

    assert list(view.fields) == [
        "scalar_uint8",
        "scalar_uint16",
        "scalar_uint32",
        "scalar_uint64",
        "text",
        "data",
        "png",
    ]
    assert schema.view("text") == schema.view([schema["text"]])


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ("txet", "'txet'.*'text'"),
        ("(", "regular expression"),
        ("a{99999999999999999999}", "regular expression"),
        ("(" * 100_000, "regular expression"),
        (re.compile(b"text"), "regular expression"),
        (np.array(["text", "data"]), "regular expression"),
        (5, "regular expression or Field"),
        (None, "regular expression or Field"),
        (Field("text", bytes), "no such field"),
    ],
)
def test_a_choice_that_matches_nothing_is_refused(schema: Schema, choice: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        schema.view([choice])


@pytest.mark.parametrize("choices", [5, None])
def test_a_view_takes_a_list_or_one_choice(schema: Schema, choices: Any) -> None:
    with pytest.raises(ConfigError, match="by a list of names"):
        schema.view(choices)


# ---------------------------------------------------------------------- inferred

INFERRED = [
    (pa.int64(), "int64", (), ScalarCodec("bigint")),
    (pa.string(), str, (), ScalarCodec("string")),
    (pa.string_view(), str, (), ScalarCodec("string")),
    (pa.binary(), bytes, (), ScalarCodec("binary")),
    (pa.dictionary(pa.int8(), pa.string()), str, (), ScalarCodec("string")),
    (pa.decimal128(38, 2), Decimal, (), ScalarCodec("decimal(38,2)")),
    (pa.date32(), "datetime64[D]", (), ScalarCodec("date")),
    (pa.timestamp("ns"), "datetime64[ns]", (), ScalarCodec("timestamp_ntz[ns]")),
    (pa.timestamp("us", "UTC"), "datetime64[us]", (), ScalarCodec("timestamp")),
    (pa.timestamp("ms", "Asia/Tokyo"), "datetime64[ms]", (), ScalarCodec("timestamp[ms]")),
    (pa.time64("ns"), "timedelta64[ns]", (), ScalarCodec("time[ns]")),
    (pa.list_(pa.int32()), "int32", (None,), ListCodec("int")),
    (pa.large_list(pa.string()), str, (None,), ListCodec("string")),
    (pa.list_(pa.float32(), 2), "float32", (2,), ListCodec("float")),
    (pa.list_(pa.list_(pa.int32())), object, (), NestedCodec({"list": {"list": "int"}})),
    (pa.struct([("a", pa.int64())]), object, (), NestedCodec({"struct": {"a": "bigint"}})),
    (pa.map_(pa.string(), pa.int64()), object, (), NestedCodec({"map": ["string", "bigint"]})),
    (
        pa.list_(pa.struct([("a", pa.date32())])),
        object,
        (),
        NestedCodec({"list": {"struct": {"a": "date"}}}),
    ),
    (pa.null(), object, (), NestedCodec("void")),
]


@pytest.mark.parametrize(
    ("type_", "dtype", "shape", "codec"), INFERRED, ids=[str(each[0]) for each in INFERRED]
)
def test_every_type_of_arrow_is_inferred(
    type_: pa.DataType, dtype: Any, shape: Any, codec: Any
) -> None:
    assert list(infer_schema(pa.schema([("x", type_)]))) == [Field("x", dtype, shape, codec, True)]


_PYARROW_VERSION = int(pa.__version__.partition(".")[0])

#: Types that this pyarrow does not write, or does not read again.
UNKNOWN: tuple[str, ...] = ()
if _PYARROW_VERSION < 23:
    UNKNOWN += ("string_view", "binary_view")
if _PYARROW_VERSION < 26:
    # It fails at a missing list.
    UNKNOWN += ("fixed_size_list",)


@pytest.mark.parametrize(
    "type_", [each for each in ALL if not str(each).startswith(UNKNOWN)], ids=str
)
@compared
@given(data=st.data())
def test_values_of_every_type_of_arrow_come_back_exactly(
    type_: pa.DataType, data: st.DataObject
) -> None:
    stored = pa.table({"x": cells(data.draw(st.lists(st.none() | ALL[type_], max_size=5)), type_)})
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(stored, f"{folder}/a.parquet")
        stored, found = pq.read_table(f"{folder}/a.parquet"), ParquetDataset(folder)

        assert exact_rows(found.to_arrow()) == exact_rows(stored)
        assert [value is None for value in found.read_column("x")] == stored[
            "x"
        ].is_null().to_pylist()


def test_extension_types_are_what_they_hold() -> None:
    unique = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16))
    )

    (field,) = infer_schema(pa.schema([("unique", unique.type)]))

    assert field.cells.column(field, unique, has_nulls=True).take(np.arange(2)).tolist() == [
        b"0123456789abcdef",
        None,
    ]


def test_two_fields_of_one_name_in_a_struct_are_refused(tmp_path: Path) -> None:
    values = pa.StructArray.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    pq.write_table(pa.table({"n": [1], "s": values}), tmp_path / "a.parquet")

    with pytest.raises(ConfigError, match=r"two fields of a struct have the name 'a'.*schema="):
        ParquetDataset(tmp_path)
    rest = ParquetDataset(tmp_path, schema=Schema("rest", [Field("n", "int64")]))
    assert rest[0] == {"n": 1}
