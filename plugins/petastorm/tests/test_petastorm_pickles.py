"""Petastorm's pickled schemas and indexes, read from real ones, and written for Petastorm.

The pickles in ``fixtures/pickles`` were written by Petastorm 0.4.0 and 0.7.6 (Python 2), and by
0.13.1 on Python 3.11 with numpy 1.26 and pyspark 3.5. ``every_type`` has all types of fields and of
indexed values, in each protocol of pickle.
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
from data_stack_petastorm.user_codec import UserCodec
from petastorm_fixtures import Unpickler

from data_stack.codecs import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, NestedCodec, PngCodec, Schema
from data_stack.formats.parquet import ScalarCodec as StoredScalarCodec

PICKLES = Path(__file__).parent / "fixtures" / "pickles"

NDARRAY = NdarrayCodec()
COMPRESSED = CompressedNdarrayCodec()
PNG = CompressedImageCodec("png")

EVERY_TYPE = (
    "Every type",
    [
        UnischemaField("bool", np.bool_, (), ScalarCodec("boolean"), False),
        UnischemaField("i8", np.int8, (), ScalarCodec("tinyint"), False),
        UnischemaField("u8", np.uint8, (), ScalarCodec("smallint"), True),
        UnischemaField("i16", np.int16, (), ScalarCodec("smallint"), False),
        UnischemaField("u16", np.uint16, (), ScalarCodec("int"), False),
        UnischemaField("i32", np.int32, (), ScalarCodec("int"), False),
        UnischemaField("u32", np.uint32, (), ScalarCodec("bigint"), False),
        UnischemaField("i64", np.int64, (), ScalarCodec("bigint"), False),
        UnischemaField("u64", np.uint64, (None, 4), NDARRAY, False),
        UnischemaField("f16", np.float16, (2,), NDARRAY, False),
        UnischemaField("f32", np.float32, (), ScalarCodec("float"), False),
        UnischemaField("f64", np.float64, (), ScalarCodec("double"), True),
        UnischemaField("c64", np.complex64, (3,), COMPRESSED, False),
        UnischemaField("c128", np.complex128, (3,), NDARRAY, False),
        UnischemaField("text", np.str_, (), ScalarCodec("string"), False),
        UnischemaField("text_ä€😀", np.str_, (), None, True),
        UnischemaField("raw", np.bytes_, (), ScalarCodec("binary"), False),
        UnischemaField("raw2", np.bytes_, (None,), NDARRAY, False),
        UnischemaField("day", np.datetime64, (), ScalarCodec("date"), False),
        UnischemaField("time", np.datetime64, (), ScalarCodec("timestamp"), False),
        UnischemaField("time_ntz", np.datetime64, (), ScalarCodec("timestamp_ntz"), False),
        UnischemaField("span", np.timedelta64, (2,), NDARRAY, False),
        UnischemaField("anything", np.object_, (), None, True),
        UnischemaField("price", Decimal, (), ScalarCodec("decimal(10,3)"), False),
        UnischemaField("big", Decimal, (), ScalarCodec("decimal(38,18)"), True),
        UnischemaField("char", np.str_, (), ScalarCodec("string"), False),
        UnischemaField("varchar", np.str_, (), ScalarCodec("string"), False),
        UnischemaField("png", np.uint8, (None, None, 3), PNG, False),
        UnischemaField("jpg", np.uint8, (28, 28), CompressedImageCodec("jpeg", 95), True),
        UnischemaField("by_dtype", np.float32, (2, 2), NDARRAY, False),
        UnischemaField("text_by_dtype", np.str_, (), ScalarCodec("string"), False),
        UnischemaField("python_int", np.int64, (), ScalarCodec("bigint"), False),
        UnischemaField("python_str", np.str_, (), ScalarCodec("string"), False),
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
    """A schema with its codecs, which fields leave out when they are compared."""
    name, fields = schema
    values: list[Any] = [name]
    for field in fields:
        values.append(
            (field.name, field.numpy_dtype, field.shape, str(field.codec), field.nullable)
        )
    return values


def read_fixture(name: str) -> bytes:
    return (PICKLES / f"{name}.pickle").read_bytes()


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_reads_every_type_of_field(protocol: int) -> None:
    schema = read_pickled_schema(read_fixture(f"every_type.protocol{protocol}.schema"))

    assert shown(schema) == shown(EVERY_TYPE)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_reads_every_type_of_value(protocol: int) -> None:
    indexes = read_pickled_indexes(read_fixture(f"every_type.protocol{protocol}.indexes"))

    present = indexes.pop("present")
    assert isinstance(present, FieldNotNullIndexer)
    assert (present.index_name, present.field) == ("present", "events")
    assert present.get_row_group_indexes() == {0, 5, 300, 70000}

    assert list(indexes) == list(EVERY_VALUE)
    for name, values in EVERY_VALUE.items():
        index = indexes[name]
        assert isinstance(index, SingleFieldIndexer)
        assert (index.index_name, index.field) == (name, f"{name}_field")
        assert [repr(value) for value in index.row_groups] == [repr(value) for value in values]
        first_row_groups = next(iter(index.row_groups.values()))
        assert first_row_groups == {0, 1}
    assert indexes["int"].row_groups[3] == {3, 4}
    assert indexes["bytes"].row_groups[b""] == {2, 3, 4}


@pytest.mark.parametrize("version", ["0.4.0", "0.7.6"])
def test_the_indexes_of_a_dataset_of_python_2_are_read(version: str) -> None:
    indexes = read_pickled_indexes(read_fixture(f"legacy_{version}.indexes"))

    ids = indexes["id"].row_groups
    assert sorted(ids) == list(range(100))
    for number in range(100):
        assert ids[number] == {number // 10}
    assert indexes["sensor_name"].row_groups == {"test_sensor": frozenset(range(10))}
    texts = indexes["string_array_nullable"].row_groups
    assert len(texts) == 90
    for text, row_groups in texts.items():
        assert type(text) is str
        assert row_groups == {(int(text) - 1) // 10}


def test_an_index_of_partitions_of_python_2_is_read() -> None:
    indexes = read_pickled_indexes(read_fixture("legacy_0.7.6.indexes"))

    partitions = indexes["partition_key"].row_groups
    assert partitions == {f"p_{number}": frozenset({number}) for number in range(10)}


@pytest.mark.parametrize(
    "package", [b"av.experimental.deepdrive.dataset_toolkit", b"av.ml.dataset_toolkit"]
)
def test_a_schema_of_petastorms_earlier_packages_is_read(package: bytes) -> None:
    data = read_fixture("legacy_0.4.0.schema")
    of_earlier_package = data.replace(b"cpetastorm.", b"c" + package + b".")

    assert package in of_earlier_package
    assert read_pickled_schema(of_earlier_package) == read_pickled_schema(data)


#: Some names are those of methods of Petastorm's schemas, so that no attribute may have them.
OURS = Schema(
    "S",
    [
        Field("id", "int32"),
        Field("fields", Decimal),
        Field("make_namedtuple", str, (None,)),
        Field("x", "f4", (2, 3)),
    ],
)


def test_a_written_schema_has_opcodes_of_protocol_2_only() -> None:
    data = write_pickled_schema(OURS)

    pickletools.dis(data, out=io.StringIO())  # checks the stack as well
    protocols = [opcode.proto for opcode, _, _ in pickletools.genops(data)]
    assert data[:2] == b"\x80\x02"
    assert max(protocols) == 2


def test_a_written_schema_names_what_petastorm_allows() -> None:
    data = write_pickled_schema(OURS)

    packages = set()
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            package, _, _ = str(argument).partition(".")
            packages.add(package.split()[0])
    assert packages == {"petastorm", "collections", "numpy", "pyspark", "decimal", "builtins"}


def test_fields_of_a_written_schema_hide_no_method_of_petastorm() -> None:
    data = write_pickled_schema(OURS)

    schema: Any = Unpickler(io.BytesIO(data)).load()

    _, fields = read_pickled_schema(data)
    assert [field.name for field in fields] == list(OURS.fields)
    assert vars(schema) == {
        "_name": "S",
        "_fields": schema._fields,
        "id": schema._fields["id"],
        "x": schema._fields["x"],
    }


def test_a_schema_comes_back_from_petastorms_metadata() -> None:
    _, fields = EVERY_TYPE
    not_written = ("text_ä€😀", "span", "anything", "fields")
    written = [field for field in fields if field.name not in not_written]
    written.append(UnischemaField("list", np.int32, (None,)))
    written.append(UnischemaField("texts", np.str_, (None,)))
    written.append(UnischemaField("deep", np.uint16, (None, 4), PNG))
    schema = as_schema(Unischema("everything", written))

    assert read_schema(make_metadata(schema, (), {})) == schema


def test_types_of_ours_come_back_as_spark_stores_them() -> None:
    schema = Schema("s", [Field("day", "datetime64[D]"), Field("u2_", "uint16")])

    again = read_schema(make_metadata(schema, (), {}))

    assert again is not None
    assert again["day"].dtype == np.dtype("datetime64[D]")
    assert again["u2_"].codec == StoredScalarCodec("int")


class OwnNdarrayCodec(NdarrayCodec):
    """Of a user: Petastorm refuses its name."""


UNKNOWN = [
    Field("nested", object, (), NestedCodec({"struct": {"name": "string"}})),
    Field("span", "timedelta64[us]"),
    Field("webp", "uint8", (2, 2, 3), codec_of("webp")),
    Field("a b", "int8"),
    Field("_hidden", "int8"),
    Field("half", "float16"),
    Field("gray", "uint8", (2, 2, 1), PngCodec()),
    Field("own", "float32", (2,), UserCodec(OwnNdarrayCodec())),
]


@pytest.mark.parametrize("field", UNKNOWN, ids=lambda field: field.name)
def test_a_field_that_petastorm_cannot_have_is_refused_by_name(field: Field) -> None:
    with pytest.raises(ConfigError, match=field.name):
        make_metadata(Schema("s", [field]), (), {})
