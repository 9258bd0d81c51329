"""Writes schemas as pickles that Petastorm reads."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, ListCodec, ScalarCodec, Schema
from data_stack.formats.parquet.types import (
    arrow_for_spark,
    arrow_type_named,
    arrow_type_of_dtype,
    dtype_name,
    name_of_arrow,
)
from data_stack_petastorm import codecs
from data_stack_petastorm.pickles import pieces
from data_stack_petastorm.pickles.known_globals import KNOWN_GLOBALS
from data_stack_petastorm.user_codec import UserCodec

#: The protocol that Python 2 reads as well, and with it old versions of Petastorm.
_PROTOCOL: Final = 2

#: The public attributes of Petastorm's class Unischema. A field that has none of these names is
#: also an attribute of its schema.
_ATTRIBUTES_OF_UNISCHEMA: Final = frozenset(
    (
        "as_spark_schema",
        "create_schema_view",
        "fields",
        "from_arrow_schema",
        "make_namedtuple",
        "make_namedtuple_tf",
    )
)

#: Kinds of dtypes that Petastorm knows: bools, integers, floats, complex numbers, text, bytes,
#: times.
_KINDS_OF_PETASTORM: Final = "biufcUSM"

#: The names of types of numpy that differ from those of their dtypes, by kind.
_TYPE_NAMES: Final = {"U": "str_", "S": "bytes_", "b": "bool_", "M": "datetime64"}

#: By kind, Python's types for text and bytes. See :func:`_type_name`.
_PYTHON_TYPES: Final = {"U": "builtins.str", "S": "builtins.bytes"}

#: A type of Spark, as :func:`name_of_arrow` names it.
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")

#: The quality of images for codecs that have none, such as PNG: the default of Petastorm.
_DEFAULT_QUALITY: Final = 80


def _classes_of_spark_types() -> dict[str, str]:
    """Return the class of each Spark type, with its module, by Spark's name of the type."""
    classes: dict[str, str] = {}
    for class_name, known in KNOWN_GLOBALS.items():
        if known.role == "spark type":
            # Of several classes with one name, such as StringType and CharType, the first counts.
            classes.setdefault(known.name, class_name)
    return classes


#: By Spark's name of a type, such as ``"bigint"``, its class with its module.
_SPARK_CLASSES: Final = _classes_of_spark_types()


def write_pickled_schema(schema: Schema) -> bytes:
    """Write a schema for ``dataset-toolkit.unischema.v1``, as a pickle of protocol 2.

    The pickle names only what Petastorm's unpickler allows: classes of Petastorm, types of pyspark
    and numpy, and Decimal.

    Raises:
        ConfigError: Petastorm does not support a field; the message names it.
    """
    # Each field occurs twice in a schema: as an item of ``_fields``, and as an attribute. It is
    # made once and stored in the memo, from where the attribute loads it.
    items = b""
    attributes = b""
    for number, field in enumerate(schema):
        name = pieces.text(field.name)
        items += name + _field_piece(field) + pieces.store(number)
        if field.name not in _ATTRIBUTES_OF_UNISCHEMA:
            attributes += name + pieces.load(number)
    new_ordered_dict = pieces.named("collections.OrderedDict") + pieces.EMPTY_TUPLE + pieces.REDUCE
    fields = new_ordered_dict + pieces.MARK + items + pieces.SETITEMS
    state = (
        pieces.text("_name")
        + pieces.text(schema.name)
        + pieces.text("_fields")
        + fields
        + attributes
    )
    unischema = pieces.new_object("petastorm.unischema.Unischema", state)
    return pieces.PROTO + bytes([_PROTOCOL]) + unischema + pieces.STOP


def _field_piece(field: Field) -> bytes:
    """Return the piece that makes a UnischemaField.

    Raises:
        ConfigError: Petastorm does not support the field.
    """
    if not field.name.isidentifier() or field.name.startswith("_"):
        raise ConfigError(
            f"Petastorm makes named tuples of rows, which have no field {field.name!r}: a name "
            "must be a Python identifier without a leading underscore"
        )
    codec = _codec_piece(field)
    type_name = _type_name(field, has_codec=codec != pieces.NONE)
    values = (
        pieces.text(field.name)
        + pieces.named(type_name)
        + _shape_piece(field.shape)
        + codec
        + pieces.boolean(field.nullable)
    )
    field_class = pieces.named("petastorm.unischema.UnischemaField")
    return field_class + pieces.MARK + values + pieces.TUPLE + pieces.NEWOBJ


def _type_name(field: Field, *, has_codec: bool) -> str:
    """Return the module and name of the type of a field.

    Raises:
        ConfigError: Petastorm has no such type.
    """
    dtype = field.dtype
    if not isinstance(dtype, np.dtype):
        return "decimal.Decimal"
    type_name = f"numpy.{_TYPE_NAMES.get(dtype.kind, dtype.name)}"
    if dtype.kind not in _KINDS_OF_PETASTORM or type_name not in KNOWN_GLOBALS:
        raise _unknown_to_petastorm(field)
    if not has_codec and dtype.kind in _PYTHON_TYPES:
        # Petastorm calls the type of a field without a codec with the cell if it is a type of
        # numpy, which makes one text of a list of texts. It leaves the cell of a Python type as is.
        return _PYTHON_TYPES[dtype.kind]
    return type_name


def _shape_piece(shape: tuple[int | None, ...]) -> bytes:
    """Return the piece that makes the tuple of a shape."""
    sizes = [pieces.NONE if size is None else pieces.integer(size) for size in shape]
    return pieces.MARK + b"".join(sizes) + pieces.TUPLE


# ----------------------------------------------------------------------------------------- codecs


def _codec_piece(field: Field) -> bytes:
    """Return the piece that makes the codec of a field.

    Raises:
        ConfigError: Petastorm has no such codec, or its codec does not take the field.
    """
    if isinstance(field.codec, ListCodec):
        _spark_type_piece(field, field.codec.type)  # raises for types that Petastorm lacks
        return pieces.NONE
    if isinstance(field.codec, ScalarCodec):
        spark_type = _spark_type_piece(field, field.codec.type)
        attributes = pieces.text("_spark_type") + spark_type
        return pieces.new_object("petastorm.codecs.ScalarCodec", attributes)
    if isinstance(field.codec, UserCodec):  # Petastorm refuses the classes of users
        raise _unknown_to_petastorm(field)
    codec = codecs.as_column_codec(field.codec)
    if isinstance(codec, codecs.CompressedImageCodec):
        attributes = _image_attributes(field, codec.image_codec)
        return pieces.new_object("petastorm.codecs.CompressedImageCodec", attributes)
    if isinstance(codec, codecs.NdarrayCodec):
        return pieces.new_object("petastorm.codecs.NdarrayCodec")
    if isinstance(codec, codecs.CompressedNdarrayCodec):
        return pieces.new_object("petastorm.codecs.CompressedNdarrayCodec")
    raise _unknown_to_petastorm(field)


def _image_attributes(field: Field, image_format: str) -> bytes:
    """Return the attributes of a CompressedImageCodec.

    Raises:
        ConfigError: Petastorm's images do not have the shape of the field.
    """
    has_channels = len(field.shape) == 3
    if image_format == "png" and has_channels and field.shape[2] != 3:
        raise ConfigError(
            f"field {field.name!r}: Petastorm's images have shape (height, width) or "
            "(height, width, 3)"
        )
    quality = getattr(field.codec, "quality", _DEFAULT_QUALITY)
    return (
        pieces.text("_image_codec")
        + pieces.text(f".{image_format}")
        + pieces.text("_quality")
        + pieces.integer(quality)
    )


def _spark_type_piece(field: Field, type_name: str | None) -> bytes:
    """Return the piece that makes the Spark type which reads the cells of a field.

    Args:
        field: the field.
        type_name: the name of the type of its cells; None: the default type of its dtype.

    Raises:
        ConfigError: Spark or Petastorm has no such type.
    """
    if type_name is None:
        arrow_type = arrow_type_of_dtype(field.dtype)
    else:
        arrow_type = arrow_type_named(type_name)
    if arrow_type == pa.float16():
        raise ConfigError(
            f"field {field.name!r} is stored as float16, which neither Spark nor Petastorm reads: "
            "use ScalarCodec('float') or ListCodec('float'), which keep each value exactly, or "
            "NdarrayCodec()"
        )
    name_for_spark = name_of_arrow(arrow_for_spark(arrow_type))
    is_decimal256 = pa.types.is_decimal256(arrow_type)
    if name_for_spark is None or name_for_spark == "void" or is_decimal256:
        raise _unknown_to_petastorm(field)
    decimal = _DECIMAL.fullmatch(name_for_spark)
    if decimal is None:
        return pieces.new_object(_SPARK_CLASSES[name_for_spark])
    # Only decimals have attributes, of which ``hasPrecisionInfo`` is a constant.
    attributes = (
        pieces.text("precision")
        + pieces.integer(int(decimal[1]))
        + pieces.text("scale")
        + pieces.integer(int(decimal[2]))
        + pieces.text("hasPrecisionInfo")
        + pieces.boolean(True)
    )
    return pieces.new_object(_SPARK_CLASSES["decimal"], attributes)


def _unknown_to_petastorm(field: Field) -> ConfigError:
    """Return the error for a field that Petastorm does not support."""
    return ConfigError(
        f"Petastorm cannot read field {field.name!r} of dtype {dtype_name(field.dtype)}, shape "
        f"{field.shape}, codec {field.codec!r:.80}"
    )
