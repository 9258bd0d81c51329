"""Writes schemas and row-group indexes as pickles for Petastorm, opcode by opcode.

The pickles name only what Petastorm's unpickler allows: its classes, pyspark's types, numpy, Decimal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.parquet.pickled.known_globals import KNOWN_GLOBALS, SPARK_CLASSES
from data_stack.formats.parquet.pickled.values import PickledCodec, PickledField, PickledIndex, PickledSchema

#: Attributes of a Unischema; Petastorm adds an attribute for each field with another name.
_OWN_ATTRIBUTES = frozenset(
    ("as_spark_schema", "create_schema_view", "fields", "from_arrow_schema", "make_namedtuple", "make_namedtuple_tf")
)
_CODEC_CLASSES = {
    "scalar": "ScalarCodec",
    "ndarray": "NdarrayCodec",
    "compressed_ndarray": "CompressedNdarrayCodec",
    "image": "CompressedImageCodec",
}
#: Petastorm converts cells without a codec to numpy scalars, except for Python types: so lists of text stay lists.
_LISTS_OF_TEXT = {"str_": "builtins.str", "bytes_": "builtins.bytes"}
_SPARK_CLASS_OF = {simple: name for name, simple in reversed(SPARK_CLASSES.items())}  # string is StringType, the first
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")


def write_pickled_schema(schema: PickledSchema) -> bytes:
    """Write a schema for ``dataset-toolkit.unischema.v1``, as a pickle of protocol 2.

    Raises:
        ConfigError: Petastorm lacks a type of the schema.
    """
    # each field is memoized by its number, because it is also an attribute
    fields = b"".join(
        _text(field.name) + _field(field) + b"r" + struct.pack("<I", number) for number, field in enumerate(schema.fields)
    )
    attributes = b"".join(
        _text(field.name) + b"j" + struct.pack("<I", number)
        for number, field in enumerate(schema.fields)
        if field.name not in _OWN_ATTRIBUTES and not (field.name.startswith("__") and field.name.endswith("__"))
    )
    ordered = _name_of("collections.OrderedDict") + b")R(" + fields + b"u"
    state = _text("_name") + _text(schema.name) + _text("_fields") + ordered + attributes
    return b"\x80\x02" + _object("petastorm.unischema.Unischema", state) + b"."


def write_pickled_indexes(indexes: Mapping[str, PickledIndex]) -> bytes:
    """Write indexes, by name, for ``dataset-toolkit.rowgroups_index.v1``, as a pickle of protocol 3.

    Raises:
        ConfigError: an index has values that Petastorm does not unpickle, such as times.
    """
    items = b"".join(_text(name) + _index(index) for name, index in indexes.items())
    return b"\x80\x03}(" + items + b"u."


def _index(index: PickledIndex) -> bytes:
    names = _text("_index_name") + _text(index.name) + _text("_column_name") + _text(index.column) + _text("_index_data")
    if index.kind == "not_null":
        return _object("petastorm.etl.rowgroup_indexers.FieldNotNullIndexer", names + _set(index.ordinals))
    values = b"".join(_value(index.name, value) + _set(groups) for value, groups in index.row_groups.items())
    data = _name_of("collections.defaultdict") + _name_of("builtins.set") + b"\x85R(" + values + b"u"
    return _object("petastorm.etl.rowgroup_indexers.SingleFieldIndexer", names + data)


def _set(numbers: Iterable[int]) -> bytes:
    return _name_of("builtins.set") + b"](" + b"".join(map(_integer, sorted(numbers))) + b"e\x85R"


def _value(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return _integer(value)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return b"B" + struct.pack("<I", len(value)) + value
    if isinstance(value, Decimal):
        return _name_of("decimal.Decimal") + _text(str(value)) + b"\x85R"
    raise ConfigError(f"the row-group index {name!r} has {type(value).__name__}s, which Petastorm does not unpickle")


def _field(field: PickledField) -> bytes:
    type_name = "decimal.Decimal" if field.numpy_type == "Decimal" else f"numpy.{field.numpy_type}"
    if field.shape and field.codec is None:
        type_name = _LISTS_OF_TEXT.get(field.numpy_type, type_name)
    known = KNOWN_GLOBALS.get(type_name)
    if known is None or known.numpy_type != field.numpy_type:
        raise ConfigError(f"Petastorm does not have the type {field.numpy_type!r} of the field {field.name!r}")
    shape = b"(" + b"".join(b"N" if size is None else _integer(size) for size in field.shape) + b"t"
    codec = b"N" if field.codec is None else _codec(field.codec)
    values = _text(field.name) + _name_of(type_name) + shape + codec + (b"\x88" if field.nullable else b"\x89")
    return _name_of("petastorm.unischema.UnischemaField") + b"(" + values + b"t\x81"


def _codec(codec: PickledCodec) -> bytes:
    state = b""
    if codec.kind == "scalar":
        state = _text("_spark_type") + _spark_type(codec.spark_type or "")
    elif codec.kind == "image":
        quality = _integer(80 if codec.quality is None else codec.quality)
        state = _text("_image_codec") + _text(f".{codec.image_format}") + _text("_quality") + quality
    return _object(f"petastorm.codecs.{_CODEC_CLASSES[codec.kind]}", state)


def _spark_type(spark_type: str) -> bytes:
    if (decimal := _DECIMAL.fullmatch(spark_type)) is not None:
        digits = _text("precision") + _integer(int(decimal[1])) + _text("scale") + _integer(int(decimal[2]))
        return _object("pyspark.sql.types.DecimalType", digits + _text("hasPrecisionInfo") + b"\x88")
    return _object(f"pyspark.sql.types.{_SPARK_CLASS_OF[spark_type]}")


# Opcodes, see pickletools


def _object(name: str, state: bytes = b"") -> bytes:
    """An object without arguments; ``state`` has pairs of names and values."""
    return _name_of(name) + b")\x81" + (b"}(" + state + b"ub" if state else b"")


def _name_of(name: str) -> bytes:
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode("ascii")


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _integer(number: int) -> bytes:
    return b"\x8a\x09" + number.to_bytes(9, "little", signed=True)
