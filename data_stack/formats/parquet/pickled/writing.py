"""Petastorm's schema and row-group indexes as pickles that Petastorm can read, written opcode by opcode.

Petastorm's guard lets through only what its own pickles name, and so do these: its classes, pyspark's types, numpy, Decimal.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet.pickled.known_globals import KNOWN_GLOBALS, SPARK_CLASSES
from data_stack.formats.parquet.pickled.values import PickledCodec, PickledField, PickledIndex, PickledSchema

__all__ = ["write_pickled_indexes", "write_pickled_schema"]

#: What a Unischema has of its own; Petastorm makes an attribute of every other field.
_OWN_ATTRIBUTES = frozenset(
    {
        *("_fields", "_get_namedtuple", "_name", "as_spark_schema", "create_schema_view", "fields", "from_arrow_schema"),
        *("make_namedtuple", "make_namedtuple_tf"),
    }
)
_CODEC_CLASSES = {
    "scalar": "ScalarCodec",
    "ndarray": "NdarrayCodec",
    "compressed_ndarray": "CompressedNdarrayCodec",
    "image": "CompressedImageCodec",
}
_SPARK_CLASS_OF = {simple: name for name, simple in reversed(SPARK_CLASSES.items())}  # string is StringType, the first
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_MAX_SHORT = 256
#: Like Python's own pickles: a reader then never has more than a few thousand values on its stack.
_BATCH = 1000


def write_pickled_schema(schema: PickledSchema) -> bytes:
    """Write a schema for ``dataset-toolkit.unischema.v1``, as a pickle of protocol 2.

    Raises:
        ConfigError: the schema has a type or codec that Petastorm does not know, or a name twice.
    """
    names = [field.name for field in schema.fields]
    if len(set(names)) != len(names):
        raise ConfigError(f"the schema {schema.name!r} names a field twice: {names}")
    pickle = _PickleWriter(protocol=2)
    pickle.new_object("petastorm.unischema", "Unischema")
    pickle.begin_dict()
    pickle.text("_name")
    pickle.text(schema.name)
    pickle.text("_fields")
    pickle.named("collections", "OrderedDict")
    pickle.opcode(b")R(")
    stored = {}
    for field in schema.fields:
        pickle.text(field.name)
        _write_field(pickle, field)
        stored[field.name] = pickle.remember()
    pickle.opcode(b"u")
    for name in names:
        if name not in _OWN_ATTRIBUTES and not (name.startswith("__") and name.endswith("__")):
            pickle.text(name)
            pickle.recall(stored[name])
    pickle.opcode(b"ub")
    return pickle.finished()


def write_pickled_indexes(indexes: Iterable[PickledIndex] | Mapping[str, PickledIndex]) -> bytes:
    """Write row-group indexes for ``dataset-toolkit.rowgroups_index.v1``, as a pickle of protocol 3 (it has bytes).

    Dates and datetimes are written as numpy.datetime64, which is what Petastorm has for them.

    Raises:
        ConfigError: a value of an index is of a type that Petastorm cannot have there, or two indexes have one name.
    """
    all_indexes = list(indexes.values() if isinstance(indexes, Mapping) else indexes)
    names = [index.name for index in all_indexes]
    if len(set(names)) != len(names):
        raise ConfigError(f"two row-group indexes have the same name: {names}")
    pickle = _PickleWriter(protocol=3)
    pickle.begin_dict()
    for index in all_indexes:
        pickle.text(index.name)
        is_single = index.kind == "single_field"
        pickle.new_object("petastorm.etl.rowgroup_indexers", "SingleFieldIndexer" if is_single else "FieldNotNullIndexer")
        pickle.begin_dict()
        pickle.texts("_index_name", index.name, "_column_name", index.column, "_index_data")
        if is_single:
            pickle.named("collections", "defaultdict")
            pickle.named("builtins", "set")
            pickle.opcode(b"\x85R")
            _write_row_groups(pickle, index)
        else:
            _write_ordinals(pickle, index.ordinals)
        pickle.opcode(b"ub")
    pickle.opcode(b"u")
    return pickle.finished()


def _write_field(pickle: _PickleWriter, field: PickledField) -> None:
    pickle.named("petastorm.unischema", "UnischemaField")
    pickle.opcode(b"(")
    pickle.text(field.name)
    if field.numpy_type == "Decimal":
        pickle.named("decimal", "Decimal")
    else:
        known = KNOWN_GLOBALS.get(("numpy", field.numpy_type))
        if known is None or known.numpy_type != field.numpy_type:
            raise ConfigError(f"Petastorm has no type {field.numpy_type!r}, which the field {field.name!r} is to have")
        pickle.named("numpy", field.numpy_type)
    pickle.opcode(b"(")
    for size in field.shape:
        if size is None:
            pickle.opcode(b"N")
        else:
            pickle.integer(size)
    pickle.opcode(b"t")
    if field.codec is None:
        pickle.opcode(b"N")
    else:
        _write_codec(pickle, field.codec, field.name)
    pickle.opcode(b"\x88" if field.nullable else b"\x89")
    pickle.opcode(b"t\x81")


def _write_codec(pickle: _PickleWriter, codec: PickledCodec, field_name: str) -> None:
    if codec.kind not in _CODEC_CLASSES:
        raise ConfigError(f"Petastorm has no codec {codec.kind!r}, which the field {field_name!r} is to have")
    pickle.new_object("petastorm.codecs", _CODEC_CLASSES[codec.kind])
    if codec.kind == "scalar":
        pickle.begin_dict()
        pickle.text("_spark_type")
        _write_spark_type(pickle, codec.spark_type, field_name)
        pickle.opcode(b"ub")
    elif codec.kind == "image":
        if codec.image_format is None:
            raise ConfigError(f"the field {field_name!r} is to hold images of no format; give image_format, e.g. 'png'")
        pickle.begin_dict()
        pickle.texts("_image_codec", f".{codec.image_format}", "_quality")
        pickle.integer(80 if codec.quality is None else codec.quality)
        pickle.opcode(b"ub")


def _write_spark_type(pickle: _PickleWriter, spark_type: str | None, field_name: str) -> None:
    decimal = _DECIMAL.fullmatch(spark_type or "")
    if decimal is not None:
        pickle.new_object("pyspark.sql.types", "DecimalType")
        pickle.begin_dict()
        pickle.text("precision")
        pickle.integer(int(decimal[1]))
        pickle.text("scale")
        pickle.integer(int(decimal[2]))
        pickle.text("hasPrecisionInfo")
        pickle.opcode(b"\x88ub")
    elif spark_type in _SPARK_CLASS_OF and spark_type != "decimal":
        pickle.new_object("pyspark.sql.types", _SPARK_CLASS_OF[spark_type])
    else:
        known = ", ".join(sorted({*_SPARK_CLASS_OF, "decimal(p,s)"} - {"decimal"}))
        raise ConfigError(f"the field {field_name!r} is to have the Spark type {spark_type!r}, which is none of {known}")


def _write_row_groups(pickle: _PickleWriter, index: PickledIndex) -> None:
    pickle.opcode(b"(")
    for n_written, (value, ordinals) in enumerate(index.row_groups.items(), 1):
        try:
            _write_value(pickle, value)
        except ConfigError as error:
            raise ConfigError(f"the index {index.name!r} of the field {index.column!r}: {error}") from error
        _write_ordinals(pickle, ordinals)
        if n_written % _BATCH == 0:
            pickle.opcode(b"u(")
    pickle.opcode(b"u")


def _write_ordinals(pickle: _PickleWriter, ordinals: Iterable[int]) -> None:
    pickle.named("builtins", "set")
    pickle.opcode(b"](")
    for n_written, ordinal in enumerate(sorted(ordinals), 1):
        pickle.integer(ordinal)
        if n_written % _BATCH == 0:
            pickle.opcode(b"e(")
    pickle.opcode(b"e\x85R")


def _write_value(pickle: _PickleWriter, value: Any) -> None:
    # Plain numbers and strings hash and compare like numpy's, so Petastorm finds them by either.
    if isinstance(value, (bool, np.bool_)):
        pickle.opcode(b"\x88" if value else b"\x89")
    elif isinstance(value, (int, np.integer)):
        pickle.integer(int(value))
    elif isinstance(value, (float, np.floating)):
        pickle.opcode(b"G" + struct.pack(">d", float(value)))
    elif isinstance(value, str):
        pickle.new_text(str(value))
    elif isinstance(value, bytes):
        pickle.raw(bytes(value))
    elif isinstance(value, Decimal) and value.is_finite():
        pickle.named("decimal", "Decimal")
        pickle.new_text(str(value))
        pickle.opcode(b"\x85R")
    elif isinstance(value, np.datetime64):
        _write_datetime64(pickle, value)
    elif isinstance(value, datetime) and value.tzinfo is None:
        _write_datetime64(pickle, np.datetime64(value, "us"))
    elif isinstance(value, date) and not isinstance(value, datetime):
        _write_datetime64(pickle, np.datetime64(value, "D"))
    else:
        raise ConfigError(
            f"Petastorm cannot look up {value!r} ({type(value).__name__}); "
            f"it has str, bytes, bool, int, float, Decimal, date and datetime without time zone"
        )


def _write_datetime64(pickle: _PickleWriter, value: np.datetime64) -> None:
    unit, count = np.datetime_data(value.dtype)
    pickle.named("numpy.core.multiarray", "scalar")
    pickle.named("numpy", "dtype")
    pickle.text("M8")
    pickle.opcode(b"\x89\x88\x87R(K\x04")
    pickle.text("<")
    pickle.opcode(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00}(")
    pickle.raw(unit.encode("ascii"))
    pickle.integer(count)
    pickle.opcode(b"K\x01K\x01t\x86tb")
    pickle.raw(value.astype("<M8[" + (f"{count}{unit}" if count != 1 else unit) + "]").tobytes())
    pickle.opcode(b"\x86R")


class _PickleWriter:
    def __init__(self, *, protocol: int) -> None:
        self._parts = [b"\x80", bytes([protocol])]
        self._texts: dict[str, int] = {}
        self._globals: dict[tuple[str, str], int] = {}
        self._n_remembered = 0

    def opcode(self, code: bytes) -> None:
        self._parts.append(code)

    def finished(self) -> bytes:
        return b"".join(self._parts) + b"."

    def remember(self) -> int:
        number = self._n_remembered
        self._n_remembered += 1
        self._parts.append(b"q" + bytes([number]) if number < _MAX_SHORT else b"r" + struct.pack("<I", number))
        return number

    def recall(self, number: int) -> None:
        self._parts.append(b"h" + bytes([number]) if number < _MAX_SHORT else b"j" + struct.pack("<I", number))

    def named(self, module: str, name: str) -> None:
        if (module, name) in self._globals:
            self.recall(self._globals[module, name])
            return
        self._parts.append(f"c{module}\n{name}\n".encode("ascii"))
        self._globals[module, name] = self.remember()

    def new_object(self, module: str, name: str) -> None:
        self.named(module, name)
        self._parts.append(b")\x81")

    def begin_dict(self) -> None:
        self._parts.append(b"}(")

    def text(self, text: str) -> None:
        if text in self._texts:
            self.recall(self._texts[text])
            return
        self.new_text(text)
        self._texts[text] = self.remember()

    def new_text(self, text: str) -> None:
        try:
            encoded = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ConfigError(f"{text!r} is half a character and cannot be written as UTF-8") from error
        self._parts.append(b"X" + struct.pack("<I", len(encoded)) + encoded)

    def texts(self, *texts: str) -> None:
        for text in texts:
            self.text(text)

    def raw(self, data: bytes) -> None:
        self._parts.append(b"C" + bytes([len(data)]) if len(data) < _MAX_SHORT else b"B" + struct.pack("<I", len(data)))
        self._parts.append(data)

    def integer(self, number: int) -> None:
        if -(2**31) <= number < 2**31:
            self._parts.append(b"K" + bytes([number]) if 0 <= number < _MAX_SHORT else b"J" + struct.pack("<i", number))
            return
        n_bytes = math.ceil((number.bit_length() + 1) / 8)
        self._parts.append(b"\x8a" + bytes([n_bytes]) + number.to_bytes(n_bytes, "little", signed=True))
