"""Reads Petastorm's pickled schemas, of versions 0.4.0 to 0.13.1, without running them, and writes such pickles."""

from __future__ import annotations

import re
import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.codecs import codec_of
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import Field, ListCodec, ScalarCodec, Schema
from data_stack.formats.parquet.types import (
    arrow_for_spark,
    arrow_type_named,
    arrow_type_of_dtype,
    dtype_name,
    name_of_arrow,
)
from data_stack_petastorm import codecs
from data_stack_petastorm import pickled_stubs as stubs
from data_stack_petastorm.column_codec import UnischemaField, restore_codec, user_codecs
from data_stack_petastorm.pickled_globals import KNOWN_GLOBALS
from data_stack_petastorm.pickled_opcodes import integer, named, object_with, text

_MAX_DIMENSIONS = 64  # of numpy
_IMAGE_FORMAT = re.compile(r"\.[a-z0-9]{1,8}")
_MAX_DEPTH = 20


def read_pickled_schema(data: bytes) -> tuple[str, list[UnischemaField]]:
    """Read the name and fields of the schema that Petastorm keeps under ``dataset-toolkit.unischema.v1`` in ``_common_metadata``.

    Nothing in it is run or imported.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but a schema.
        ConfigError: the schema has images of an unsupported format.
    """
    try:
        attributes = stubs.attributes_of(stubs.object_of(stubs.decode_pickle(data), "schema"))
        declared = attributes.get("_fields")
        if not isinstance(declared, stubs.DictNode):
            raise stubs.Refusal(f"a schema whose fields are {stubs.describe(declared)}")
        fields = {
            stubs.text_of(name, "the name of a field"): _field(stubs.object_of(node, "field"))
            for name, node in declared.items
        }
        for name, field in fields.items():
            if name != field.name:
                raise stubs.Refusal(f"the field {field.name!r} under the name {name!r}")
        return stubs.text_of(attributes.get("_name", "Unischema"), "the name of the schema"), list(
            fields.values()
        )
    except stubs.Refusal as error:
        raise refusal("schema", error) from error


def refusal(what: str, error: stubs.Refusal) -> DatasetFileCorruptError:
    """The error for a pickle that is not decoded."""
    return DatasetFileCorruptError(
        f"Petastorm's pickled {what} contains {error}. It is damaged, or not a {what}: data_stack decodes only what Petastorm "
        f"writes, and never runs a pickle. If you trust the source, write the metadata again, e.g. with "
        f"petastorm-generate-metadata.py."
    )


def _field(node: stubs.ObjectNode) -> UnischemaField:
    name, type_, shape, codec, nullable = node.arguments
    name = stubs.text_of(name, "the name of a field")
    if not isinstance(nullable, (bool, int, type(None))) or nullable not in (False, True, None):
        raise stubs.Refusal(f"the field {name!r}, nullable: {stubs.describe(nullable)}")
    if (
        not isinstance(shape, (tuple, list))
        or len(shape) > _MAX_DIMENSIONS
        or not all(map(_is_size, shape))
    ):
        raise stubs.Refusal(f"the field {name!r} with {stubs.describe(shape)} as an invalid shape")
    numpy_type = _numpy_type(type_)
    if numpy_type is None:
        raise stubs.Refusal(f"the field {name!r} with the type {stubs.describe(type_)}")
    stored = None if codec is None else _codec(stubs.object_of(codec, "codec"), name)
    return UnischemaField(name, numpy_type, tuple(shape), stored, bool(nullable))


def _is_size(size: Any) -> bool:
    return size is None or (type(size) is int and 0 <= size < 2**63)


def _numpy_type(node: Any) -> Any:
    if isinstance(node, stubs.DtypeNode) and node.code not in (
        "f16",
        "c32",
    ):  # numpy compares a dtype and its type as equal
        return np.dtype(node.code).type
    return node.known.type if isinstance(node, stubs.GlobalNode) else None


def _codec(node: stubs.ObjectNode, field: str) -> Any:
    attributes, kind = stubs.attributes_of(node), node.known.name
    if kind in user_codecs:
        made: dict[int, Any] = {}
        return restore_codec(
            kind, {name: _plain_attribute(value, made) for name, value in attributes.items()}
        )
    if kind == "ScalarCodec":
        return codecs.ScalarCodec(
            _spark_type(stubs.object_of(attributes.get("_spark_type"), "spark type"))
        )
    if kind != "CompressedImageCodec":
        return codecs.NdarrayCodec() if kind == "NdarrayCodec" else codecs.CompressedNdarrayCodec()
    image_format = stubs.text_of(attributes.get("_image_codec"), "the format of an image").lower()
    quality = attributes.get("_quality", 80)
    if (
        not _IMAGE_FORMAT.fullmatch(image_format)
        or type(quality) is not int
        or not 0 <= quality <= 100
    ):
        raise stubs.Refusal(
            f"images of format {stubs.describe(image_format)}, quality {stubs.describe(quality)}"
        )
    if image_format == ".webp":
        return codecs.BinaryCodec(codec_of("webp"))
    if image_format not in (".png", ".jpeg", ".jpg"):
        raise ConfigError(
            f"field {field!r} has images of the unsupported format {image_format}; supported: png, jpeg, webp"
        )
    return codecs.CompressedImageCodec(image_format[1:], max(quality, 1))


def _plain_attribute(value: Any, made: dict[int, Any], depth: int = 0) -> Any:
    """An attribute of a user's codec: plain data, a numpy type, or the name of a Spark type.

    Shared values are converted once: otherwise a small pickle could expand to unlimited data.
    """
    if depth > _MAX_DEPTH:
        raise stubs.Refusal(f"an attribute of a codec that is nested more than {_MAX_DEPTH} deep")
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, stubs.ObjectNode) and value.known.role == "spark type":
        return _spark_type(value)
    if isinstance(value, (list, tuple)):
        made[id(value)] = type(value)([_plain_attribute(each, made, depth + 1) for each in value])
    elif isinstance(value, stubs.DictNode):
        items = value.items
        made[id(value)] = {
            stubs.text_of(key, "a key"): _plain_attribute(each, made, depth + 1)
            for key, each in items
        }
    elif isinstance(value, stubs.DtypeNode):
        return np.dtype(value.byte_order + value.code + value.unit)
    else:
        numpy_type = _numpy_type(value)
        return (
            numpy_type
            if numpy_type is not None
            else None
            if value is None
            else stubs.plain_value(value)
        )
    return made[id(value)]


def _spark_type(node: stubs.ObjectNode) -> str:
    if node.known.name != "decimal":
        return node.known.name
    attributes = stubs.attributes_of(node)
    precision, scale = attributes.get("precision", 10), attributes.get("scale", 0)
    if (
        type(precision) is not int
        or type(scale) is not int
        or not 0 <= scale <= precision <= 38
        or precision < 1
    ):
        raise stubs.Refusal(
            f"a decimal type of precision {stubs.describe(precision)} and scale {stubs.describe(scale)}"
        )
    return f"decimal({precision},{scale})"


# ---------------------------------------------------------------------- writing

#: Attributes of a Unischema; Petastorm adds an attribute for each field with another name.
_OWN_ATTRIBUTES: Final = frozenset(
    (
        "as_spark_schema",
        "create_schema_view",
        "fields",
        "from_arrow_schema",
        "make_namedtuple",
        "make_namedtuple_tf",
    )
)
_TYPE_NAMES: Final = {"U": "str_", "S": "bytes_", "b": "bool_", "M": "datetime64"}
#: The class of a type; that of string is StringType, the first.
_SPARK_CLASS_OF: Final = {
    known.name: name
    for name, known in reversed(KNOWN_GLOBALS.items())
    if known.role == "spark type"
}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")


def write_pickled_schema(schema: Schema) -> bytes:
    """Write a schema for ``dataset-toolkit.unischema.v1``, as a pickle of protocol 2.

    It names only what Petastorm's unpickler allows: its classes, pyspark's types, numpy, Decimal.

    Raises:
        ConfigError: Petastorm does not support a field; the message names it.
    """
    # each field is memoized by its number, because it is also an attribute
    fields = b"".join(
        text(field.name) + _written_field(field) + b"r" + struct.pack("<I", number)
        for number, field in enumerate(schema)
    )
    attributes = b"".join(
        text(field.name) + b"j" + struct.pack("<I", number)
        for number, field in enumerate(schema)
        if field.name not in _OWN_ATTRIBUTES
    )
    ordered = named("collections.OrderedDict") + b")R(" + fields + b"u"
    state = text("_name") + text(schema.name) + text("_fields") + ordered + attributes
    return b"\x80\x02" + object_with("petastorm.unischema.Unischema", state) + b"."


def _written_field(field: Field) -> bytes:
    if not field.name.isidentifier() or field.name.startswith("_"):
        raise ConfigError(
            f"Petastorm needs names for named tuples; the field {field.name!r} has none"
        )
    dtype, codec = field.dtype, _written_codec(field)
    if isinstance(dtype, np.dtype):
        type_name = f"numpy.{_TYPE_NAMES.get(dtype.kind, dtype.name)}"
        if dtype.kind not in "USbMiufc" or type_name not in KNOWN_GLOBALS:
            raise _unknown_to_petastorm(field)
        if codec == b"N" and dtype.kind in "US":
            # Petastorm converts cells without a codec to numpy scalars, except for Python types: so lists of text stay lists
            type_name = "builtins.str" if dtype.kind == "U" else "builtins.bytes"
    else:
        type_name = "decimal.Decimal"
    shape = b"(" + b"".join(b"N" if size is None else integer(size) for size in field.shape) + b"t"
    values = (
        text(field.name)
        + named(type_name)
        + shape
        + codec
        + (b"\x88" if field.nullable else b"\x89")
    )
    return named("petastorm.unischema.UnischemaField") + b"(" + values + b"t\x81"


def _written_codec(field: Field) -> bytes:
    codec = codecs.as_column_codec(field.codec)
    if isinstance(field.codec, ListCodec):
        _spark_type_of(field, field.codec.type)  # raises for types that Petastorm lacks
        return b"N"
    state = b""
    if isinstance(field.codec, ScalarCodec):
        codec, state = (
            codecs.ScalarCodec,
            text("_spark_type") + _spark_type_of(field, field.codec.type),
        )
    elif isinstance(codec, codecs.CompressedImageCodec):
        if codec.image_codec == "png" and len(field.shape) == 3 and field.shape[2] != 3:
            raise ConfigError(
                f"field {field.name!r}: Petastorm's images have shape (height, width) or (height, width, 3)"
            )
        quality = integer(getattr(field.codec, "quality", 80))
        state = text("_image_codec") + text(f".{codec.image_codec}") + text("_quality") + quality
    elif not isinstance(codec, (codecs.NdarrayCodec, codecs.CompressedNdarrayCodec)):
        raise _unknown_to_petastorm(field)
    return object_with(
        f"petastorm.codecs.{getattr(codec, '__name__', type(codec).__name__)}", state
    )


def _spark_type_of(field: Field, name: str | None) -> bytes:
    """The Spark type that reads the cells of a field, as Petastorm would write them."""
    stored = arrow_type_of_dtype(field.dtype) if name is None else arrow_type_named(name)
    if stored == pa.float16():
        raise ConfigError(
            f"field {field.name!r} is stored as float16, which neither Spark nor Petastorm reads: use ScalarCodec('float') or "
            f"ListCodec('float'), which keep each value exactly, or NdarrayCodec()"
        )
    for_spark = name_of_arrow(arrow_for_spark(stored))
    if for_spark is None or for_spark == "void" or pa.types.is_decimal256(stored):
        raise _unknown_to_petastorm(field)
    if (decimal := _DECIMAL.fullmatch(for_spark)) is not None:
        digits = (
            text("precision") + integer(int(decimal[1])) + text("scale") + integer(int(decimal[2]))
        )
        return object_with(_SPARK_CLASS_OF["decimal"], digits + text("hasPrecisionInfo") + b"\x88")
    return object_with(_SPARK_CLASS_OF[for_spark])


def _unknown_to_petastorm(field: Field) -> ConfigError:
    return ConfigError(
        f"Petastorm cannot read field {field.name!r} of dtype {dtype_name(field.dtype)}, shape {field.shape}, codec "
        f"{field.codec!r:.80}"
    )
