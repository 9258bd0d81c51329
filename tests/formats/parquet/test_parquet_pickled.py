"""Petastorm's pickled schemas and indexes: what is read from real ones, and what we write for Petastorm.

The pickles in ``fixtures/pickles`` were written by Petastorm 0.4.0 and 0.7.6 (Python 2), and by 0.13.1 on Python 3.11 with numpy
1.26 and pyspark 3.5; ``every_type`` has all types of fields and of indexed values, in each protocol of pickle.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.exception import ConfigError
from data_stack.formats.parquet.pickled import (
    PickledCodec,
    PickledField,
    PickledIndex,
    PickledSchema,
    read_pickled_indexes,
    read_pickled_schema,
    write_pickled_schema,
)

PICKLES = Path(__file__).parent / "fixtures" / "pickles"

NDARRAY = PickledCodec("ndarray")
COMPRESSED = PickledCodec("compressed_ndarray")
PNG = PickledCodec("image", image_format="png", quality=80)


def scalar(spark_type: str) -> PickledCodec:
    return PickledCodec("scalar", spark_type)


EVERY_TYPE = PickledSchema(
    "Every type",
    (
        PickledField("bool", "bool_", (), scalar("boolean"), False),
        PickledField("i8", "int8", (), scalar("tinyint"), False),
        PickledField("u8", "uint8", (), scalar("smallint"), True),
        PickledField("i16", "int16", (), scalar("smallint"), False),
        PickledField("u16", "uint16", (), scalar("int"), False),
        PickledField("i32", "int32", (), scalar("int"), False),
        PickledField("u32", "uint32", (), scalar("bigint"), False),
        PickledField("i64", "int64", (), scalar("bigint"), False),
        PickledField("u64", "uint64", (None, 4), NDARRAY, False),
        PickledField("f16", "float16", (2,), NDARRAY, False),
        PickledField("f32", "float32", (), scalar("float"), False),
        PickledField("f64", "float64", (), scalar("double"), True),
        PickledField("c64", "complex64", (3,), COMPRESSED, False),
        PickledField("c128", "complex128", (3,), NDARRAY, False),
        PickledField("text", "str_", (), scalar("string"), False),
        PickledField("text_ä€😀", "str_", (), None, True),
        PickledField("raw", "bytes_", (), scalar("binary"), False),
        PickledField("raw2", "bytes_", (None,), NDARRAY, False),
        PickledField("day", "datetime64", (), scalar("date"), False),
        PickledField("time", "datetime64", (), scalar("timestamp"), False),
        PickledField("time_ntz", "datetime64", (), scalar("timestamp_ntz"), False),
        PickledField("span", "timedelta64", (2,), NDARRAY, False),
        PickledField("anything", "object_", (), None, True),
        PickledField("price", "Decimal", (), scalar("decimal(10,3)"), False),
        PickledField("big", "Decimal", (), scalar("decimal(38,18)"), True),
        PickledField("char", "str_", (), scalar("string"), False),
        PickledField("varchar", "str_", (), scalar("string"), False),
        PickledField("png", "uint8", (None, None, 3), PNG, False),
        PickledField("jpg", "uint8", (28, 28), PickledCodec("image", image_format="jpeg", quality=95), True),
        PickledField("by_dtype", "float32", (2, 2), NDARRAY, False),
        PickledField("text_by_dtype", "str_", (), scalar("string"), False),
        PickledField("python_int", "int64", (), scalar("bigint"), False),
        PickledField("python_str", "str_", (), scalar("string"), False),
        PickledField("fields", "int32", (), None, False),
    ),
)

#: Index → its values: the first is in row groups 0 and 1, the next in 1 and 2, and so on.
EVERY_VALUE: dict[str, list[Any]] = {
    "int": [-5, 2**62, 2**63 + 1, 3],
    "float": [0.5, 1e300, 2.0],
    "bool": [True, False],
    "text": ["a", "ä€😀", "plain", ""],
    "bytes": [b"a\xff", b"plain\xfe", b""],
    "day": [date(2020, 2, 29)],
    "time": [
        datetime(2020, 2, 29, 12, 34, 56, 789012),
        datetime(1969, 1, 1),
        np.datetime64("2020-01-01T00:00:00.000000001"),
        np.datetime64("NaT", "us"),
    ],
    "decimal": [Decimal("1.250"), Decimal("-7E+2")],
    "big_endian": [258],
    "python_times": [
        date(2020, 2, 29),
        datetime(2020, 2, 29, 1, 2, 3, 4),
        datetime(2020, 2, 29, 1, 2, 3, 4, timezone.utc),
        time(1, 2, 3, 4),
        timedelta(-1, 5, 6),
    ],
}


@pytest.mark.parametrize("protocol", range(6))
def test_every_type_of_field_is_read_from_every_protocol_of_pickle(protocol: int) -> None:
    schema = read_pickled_schema((PICKLES / f"every_type.protocol{protocol}.schema.pickle").read_bytes())

    assert schema == EVERY_TYPE


@pytest.mark.parametrize("protocol", range(6))
def test_every_type_of_indexed_value_is_read_as_a_plain_value_from_every_protocol_of_pickle(protocol: int) -> None:
    indexes = read_pickled_indexes((PICKLES / f"every_type.protocol{protocol}.indexes.pickle").read_bytes())

    assert indexes.pop("present") == PickledIndex("present", "not_null", "events", ordinals=frozenset({0, 5, 300, 70000}))
    assert list(indexes) == list(EVERY_VALUE)
    for name, values in EVERY_VALUE.items():
        assert (indexes[name].name, indexes[name].kind, indexes[name].column) == (name, "single_field", f"{name}_field")
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
    assert all(type(value) is str and row_groups == {(int(value) - 1) // 10} for value, row_groups in strings.items())
    if version == "0.7.6":
        assert indexes["partition_key"].row_groups == {f"p_{number}": frozenset({number}) for number in range(10)}


@pytest.mark.parametrize("package", [b"av.experimental.deepdrive.dataset_toolkit", b"av.ml.dataset_toolkit"])
def test_a_schema_from_before_petastorm_had_its_name_is_read(package: bytes) -> None:
    data = (PICKLES / "legacy_0.4.0.schema.pickle").read_bytes().replace(b"cpetastorm.", b"c" + package + b".")

    assert package in data
    assert read_pickled_schema(data) == read_pickled_schema((PICKLES / "legacy_0.4.0.schema.pickle").read_bytes())


class Unischema:
    """Stands for Petastorm's."""


class UnischemaField(tuple[Any, ...]):
    """Likewise; a named tuple's ``__new__`` takes its five values."""

    def __new__(cls, *values: Any) -> UnischemaField:
        return super().__new__(cls, values)


class Unpickler(pickle.Unpickler):
    """Unpickles with classes of this module for Petastorm's."""

    def find_class(self, module: str, name: str) -> Any:
        return globals()[name] if module.startswith("petastorm") else super().find_class(module, name)


def test_a_written_schema_is_a_pickle_of_protocol_2_that_petastorm_lets_through() -> None:
    data = write_pickled_schema(EVERY_TYPE)

    pickletools.dis(data, out=io.StringIO())  # checks the stack as well
    steps = [(opcode, argument) for opcode, argument, _ in pickletools.genops(data)]
    names = {str(argument).split()[0].split(".")[0] for opcode, argument in steps if opcode.name == "GLOBAL"}
    assert data[:2] == b"\x80\x02"
    assert max(opcode.proto for opcode, _ in steps) == 2
    assert names == {"petastorm", "collections", "numpy", "pyspark", "decimal"}
    assert read_pickled_schema(data) == EVERY_TYPE


def test_a_written_schema_has_its_fields_as_attributes_but_hides_no_method_of_petastorm() -> None:
    fields = tuple(PickledField(name, "int32", (), None, False) for name in ("id", "fields", "make_namedtuple", "__len__"))

    schema: Any = Unpickler(io.BytesIO(write_pickled_schema(PickledSchema("S", fields)))).load()

    assert list(schema._fields) == ["id", "fields", "make_namedtuple", "__len__"]
    assert vars(schema) == {"_name": "S", "_fields": schema._fields, "id": schema._fields["id"]}
    assert schema.id is schema._fields["id"]


def test_a_type_that_petastorm_does_not_have_is_not_written() -> None:
    schema = PickledSchema("S", (PickledField("speed", "float8", (), None, False),))

    with pytest.raises(ConfigError, match=r"'float8'.*'speed'"):
        write_pickled_schema(schema)
