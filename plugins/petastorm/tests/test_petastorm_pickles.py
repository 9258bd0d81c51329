"""Petastorm's pickled schemas and indexes: what is read from real ones, and what we write for Petastorm.

The pickles in ``fixtures/pickles`` were written by Petastorm 0.4.0 and 0.7.6 (Python 2), and by 0.13.1 on Python 3.11 with numpy
1.26 and pyspark 3.5; ``every_type`` has all types of fields and of indexed values, in each protocol of pickle.
"""

from __future__ import annotations

import io
import pickletools
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    ScalarCodec,
)
from data_stack_petastorm.etl.rowgroup_indexers import FieldNotNullIndexer, SingleFieldIndexer
from data_stack_petastorm.parquet_metadata import make_metadata, read_schema
from data_stack_petastorm.pickles.index_reader import read_pickled_indexes
from data_stack_petastorm.pickles.schema_reader import read_pickled_schema
from data_stack_petastorm.pickles.schema_writer import write_pickled_schema
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.unischema import Unischema, UnischemaField
from petastorm_fixtures import Unpickler

from data_stack.codecs import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, NestedCodec, PngCodec, Schema
from data_stack.formats.parquet import ScalarCodec as StoredScalarCodec

PICKLES = Path(__file__).parent / "fixtures" / "pickles"

NDARRAY, COMPRESSED, PNG, scalar = (
    NdarrayCodec(),
    CompressedNdarrayCodec(),
    CompressedImageCodec("png"),
    ScalarCodec,
)

EVERY_TYPE = (
    "Every type",
    [
        UnischemaField("bool", np.bool_, (), scalar("boolean"), False),
        UnischemaField("i8", np.int8, (), scalar("tinyint"), False),
        UnischemaField("u8", np.uint8, (), scalar("smallint"), True),
        UnischemaField("i16", np.int16, (), scalar("smallint"), False),
        UnischemaField("u16", np.uint16, (), scalar("int"), False),
        UnischemaField("i32", np.int32, (), scalar("int"), False),
        UnischemaField("u32", np.uint32, (), scalar("bigint"), False),
        UnischemaField("i64", np.int64, (), scalar("bigint"), False),
        UnischemaField("u64", np.uint64, (None, 4), NDARRAY, False),
        UnischemaField("f16", np.float16, (2,), NDARRAY, False),
        UnischemaField("f32", np.float32, (), scalar("float"), False),
        UnischemaField("f64", np.float64, (), scalar("double"), True),
        UnischemaField("c64", np.complex64, (3,), COMPRESSED, False),
        UnischemaField("c128", np.complex128, (3,), NDARRAY, False),
        UnischemaField("text", np.str_, (), scalar("string"), False),
        UnischemaField("text_ä€😀", np.str_, (), None, True),
        UnischemaField("raw", np.bytes_, (), scalar("binary"), False),
        UnischemaField("raw2", np.bytes_, (None,), NDARRAY, False),
        UnischemaField("day", np.datetime64, (), scalar("date"), False),
        UnischemaField("time", np.datetime64, (), scalar("timestamp"), False),
        UnischemaField("time_ntz", np.datetime64, (), scalar("timestamp_ntz"), False),
        UnischemaField("span", np.timedelta64, (2,), NDARRAY, False),
        UnischemaField("anything", np.object_, (), None, True),
        UnischemaField("price", Decimal, (), scalar("decimal(10,3)"), False),
        UnischemaField("big", Decimal, (), scalar("decimal(38,18)"), True),
        UnischemaField("char", np.str_, (), scalar("string"), False),
        UnischemaField("varchar", np.str_, (), scalar("string"), False),
        UnischemaField("png", np.uint8, (None, None, 3), PNG, False),
        UnischemaField("jpg", np.uint8, (28, 28), CompressedImageCodec("jpeg", 95), True),
        UnischemaField("by_dtype", np.float32, (2, 2), NDARRAY, False),
        UnischemaField("text_by_dtype", np.str_, (), scalar("string"), False),
        UnischemaField("python_int", np.int64, (), scalar("bigint"), False),
        UnischemaField("python_str", np.str_, (), scalar("string"), False),
        UnischemaField("fields", np.int32, (), None, False),
    ],
)

#: Index → its values: the first is in row groups 0 and 1, the next in 1 and 2, and so on.
EVERY_VALUE: dict[str, list[Any]] = {
    "int": [-5, 2**62, 2**63 + 1, 3],
    "float": [0.5, 1e300, 2.0],
    "bool": [True, False],
    "text": ["a", "ä€😀", "plain", ""],
    "bytes": [b"a\xff", b"plain\xfe", b""],
    "day": [datetime(2020, 2, 29)],
    "time": [
        datetime(2020, 2, 29, 12, 34, 56, 789012),
        datetime(1969, 1, 1),
        np.datetime64("2020-01-01T00:00:00.000000001"),
        np.datetime64("NaT", "us"),
    ],
    "decimal": [Decimal("1.250"), Decimal("-7E+2")],
    "big_endian": [258],
    "python_times": [
        datetime(2020, 2, 29),
        datetime(2020, 2, 29, 1, 2, 3, 4),
        datetime(2020, 2, 29, 1, 2, 3, 4, timezone.utc),
        time(1, 2, 3, 4),
        timedelta(-1, 5, 6),
    ],
}


def shown(schema: tuple[str, list[UnischemaField]]) -> list[Any]:
    """A schema with its codecs."""
    return [schema[0], *((*field[:3], str(field.codec), field.nullable) for field in schema[1])]


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_reads_every_type_of_field_and_value(
    protocol: int,
) -> None:
    schema = read_pickled_schema(
        (PICKLES / f"every_type.protocol{protocol}.schema.pickle").read_bytes()
    )

    indexes = read_pickled_indexes(
        (PICKLES / f"every_type.protocol{protocol}.indexes.pickle").read_bytes()
    )

    assert shown(schema) == shown(EVERY_TYPE)  # with codecs
    present = indexes.pop("present")
    assert isinstance(present, FieldNotNullIndexer)
    assert (present.index_name, present.field) == ("present", "events")
    assert present.get_row_group_indexes() == {0, 5, 300, 70000}
    assert list(indexes) == list(EVERY_VALUE)
    for name, values in EVERY_VALUE.items():
        assert isinstance(indexes[name], SingleFieldIndexer)
        assert (indexes[name].index_name, indexes[name].field) == (name, f"{name}_field")
        assert list(map(repr, indexes[name].row_groups)) == list(map(repr, values))
        first = next(iter(indexes[name].row_groups.values()))
        assert first == {0, 1}
    assert indexes["int"].row_groups[3] == {3, 4}
    assert indexes["bytes"].row_groups[b""] == {2, 3, 4}


@pytest.mark.parametrize("version", ["0.4.0", "0.7.6"])
def test_the_indexes_of_a_dataset_of_python_2_are_read(version: str) -> None:
    indexes = read_pickled_indexes((PICKLES / f"legacy_{version}.indexes.pickle").read_bytes())

    ids = indexes["id"].row_groups
    assert sorted(ids) == list(range(100))
    assert all(ids[number] == {number // 10} for number in range(100))
    assert indexes["sensor_name"].row_groups == {"test_sensor": frozenset(range(10))}
    strings = indexes["string_array_nullable"].row_groups
    assert len(strings) == 90
    assert all(
        type(value) is str and row_groups == {(int(value) - 1) // 10}
        for value, row_groups in strings.items()
    )
    if version == "0.7.6":
        assert indexes["partition_key"].row_groups == {
            f"p_{number}": frozenset({number}) for number in range(10)
        }


@pytest.mark.parametrize(
    "package", [b"av.experimental.deepdrive.dataset_toolkit", b"av.ml.dataset_toolkit"]
)
def test_a_schema_from_before_petastorm_had_its_name_is_read(package: bytes) -> None:
    data = (
        (PICKLES / "legacy_0.4.0.schema.pickle")
        .read_bytes()
        .replace(b"cpetastorm.", b"c" + package + b".")
    )

    assert package in data
    assert read_pickled_schema(data) == read_pickled_schema(
        (PICKLES / "legacy_0.4.0.schema.pickle").read_bytes()
    )


def test_petastorms_unpickler_lets_a_written_schema_through() -> None:
    ours = Schema(
        "S",
        [
            Field("id", "int32"),
            Field("fields", Decimal),
            Field("make_namedtuple", str, (None,)),
            Field("x", "f4", (2, 3)),
        ],
    )

    data = write_pickled_schema(ours)

    pickletools.dis(data, out=io.StringIO())  # checks the stack as well
    steps = [(opcode, argument) for opcode, argument, _ in pickletools.genops(data)]
    names = {
        str(argument).split()[0].split(".")[0]
        for opcode, argument in steps
        if opcode.name == "GLOBAL"
    }
    assert data[:2] == b"\x80\x02"
    assert max(opcode.proto for opcode, _ in steps) == 2
    assert names == {"petastorm", "collections", "numpy", "pyspark", "decimal", "builtins"}
    assert [field.name for field in read_pickled_schema(data)[1]] == list(ours.fields)
    schema: Any = Unpickler(
        io.BytesIO(data)
    ).load()  # fields are attributes, but hide no method of Petastorm
    assert vars(schema) == {
        "_name": "S",
        "_fields": schema._fields,
        "id": schema._fields["id"],
        "x": schema._fields["x"],
    }


def test_a_schema_comes_back_from_petastorms_metadata() -> None:
    known = [
        field
        for field in EVERY_TYPE[1]
        if field.name not in ("text_ä€😀", "span", "anything", "fields")
    ]
    lists = [UnischemaField("list", np.int32, (None,)), UnischemaField("texts", np.str_, (None,))]
    ours = as_schema(
        Unischema("everything", [*known, *lists, UnischemaField("deep", np.uint16, (None, 4), PNG)])
    )

    assert read_schema(make_metadata(ours, (), {})) == ours
    again = read_schema(
        make_metadata(Schema("s", [Field("day", "datetime64[D]"), Field("u2_", "uint16")]), (), {})
    )
    assert again is not None
    assert (again["day"].dtype, again["u2_"].codec) == (
        np.dtype("datetime64[D]"),
        StoredScalarCodec("int"),
    )


UNKNOWN = [
    Field("nested", object, (), NestedCodec({"struct": {"name": "string"}})),
    *(Field("span", "timedelta64[us]"), Field("webp", "uint8", (2, 2, 3), codec_of("webp"))),
    *(
        Field("a b", "int8"),
        Field("_hidden", "int8"),
        Field("half", "float16"),
        Field("gray", "uint8", (2, 2, 1), PngCodec()),
    ),
]


@pytest.mark.parametrize("field", UNKNOWN, ids=lambda field: field.name)
def test_a_field_that_petastorm_cannot_have_is_refused_by_name(field: Field) -> None:
    with pytest.raises(ConfigError, match=field.name):
        make_metadata(Schema("s", [field]), (), {})
