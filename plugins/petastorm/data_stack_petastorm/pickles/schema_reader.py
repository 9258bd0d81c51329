"""Reads Petastorm's pickled schemas, of versions 0.4.0 to 0.13.1, without running them."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from data_stack.codecs import codec_of
from data_stack.exception import ConfigError
from data_stack_petastorm import codecs
from data_stack_petastorm.dataframe_column_codec import restore_codec, user_codecs
from data_stack_petastorm.pickles.decoding import decode_pickle, refused_pickle
from data_stack_petastorm.pickles.stub_values import (
    attributes_of,
    expect_object,
    expect_text,
    plain_value,
)
from data_stack_petastorm.pickles.stubs import (
    DictStub,
    DtypeStub,
    GlobalStub,
    ObjectStub,
    Refusal,
    describe,
)
from data_stack_petastorm.unischema_field import UnischemaField

#: The maximum number of dimensions of an array of numpy.
_MAX_DIMENSIONS: Final = 64

#: numpy keeps sizes in signed integers of 64 bits.
_MAX_SIZE: Final = 2**63 - 1

#: The format of an image as Petastorm writes it: an extension of files, such as ".png".
_IMAGE_FORMAT: Final = re.compile(r"\.[a-z0-9]{1,8}")

#: The quality of an image that Petastorm takes by default.
_DEFAULT_QUALITY: Final = 80

#: How deep lists and dicts may be nested in an attribute of a user's codec. They are converted by
#: recursion, which Python limits.
_MAX_DEPTH: Final = 20

#: The maximum precision of a decimal type of Spark.
_MAX_PRECISION: Final = 38

#: Codes of numpy's long double and its complex pair. Not all machines have these dtypes.
_DTYPES_OF_SOME_MACHINES: Final = ("f16", "c32")


def read_pickled_schema(data: bytes) -> tuple[str, list[UnischemaField]]:
    """Read the name and the fields of a schema; nothing in the pickle is run or imported.

    Args:
        data: what Petastorm keeps under ``dataset-toolkit.unischema.v1`` in ``_common_metadata``.

    Raises:
        DatasetFileCorruptError: the pickle is damaged, or contains anything but a schema.
        ConfigError: the schema has images of an unsupported format, or a codec of a user whose
            class was not imported.
    """
    try:
        schema = expect_object(decode_pickle(data), "schema")
        return _read_schema(schema)
    except Refusal as refusal:
        raise refused_pickle("schema", refusal) from refusal


def _read_schema(schema: ObjectStub) -> tuple[str, list[UnischemaField]]:
    """Return the name and the fields of a schema.

    Raises:
        Refusal, ConfigError: as for :func:`read_pickled_schema`.
    """
    # Petastorm also keeps each field as an attribute of the schema. These attributes only repeat
    # ``_fields`` and are ignored.
    attributes = attributes_of(schema)
    declared = attributes.get("_fields")
    if not isinstance(declared, DictStub):
        raise Refusal(f"a schema whose fields are {describe(declared)}")
    fields: dict[str, UnischemaField] = {}
    for name_value, field_value in declared.items:
        name = expect_text(name_value, "the name of a field")
        fields[name] = _read_field(expect_object(field_value, "field"))
    for name, field in fields.items():
        if name != field.name:
            raise Refusal(f"the field {field.name!r} under the name {name!r}")
    schema_name = expect_text(attributes.get("_name", "Unischema"), "the name of the schema")
    return schema_name, list(fields.values())


def _read_field(stub: ObjectStub) -> UnischemaField:
    """Return the field that a stub stands for.

    Raises:
        Refusal: a value of the field is invalid.
        ConfigError: as for :func:`read_pickled_schema`.
    """
    name_value, type_value, shape, codec_value, nullable = stub.arguments
    name = expect_text(name_value, "the name of a field")
    if not _is_nullable_flag(nullable):
        raise Refusal(f"the field {name!r}, nullable: {describe(nullable)}")
    if not _is_shape(shape):
        raise Refusal(f"the field {name!r} with {describe(shape)} as an invalid shape")
    numpy_type = _numpy_type(type_value)
    if numpy_type is None:
        raise Refusal(f"the field {name!r} with the type {describe(type_value)}")
    codec = None
    if codec_value is not None:
        codec = _read_codec(expect_object(codec_value, "codec"), name)
    return UnischemaField(name, numpy_type, tuple(shape), codec, bool(nullable))


def _is_nullable_flag(value: Any) -> bool:
    """Return whether a value is a bool, 0, 1 or None."""
    if value is None:
        return True
    return isinstance(value, int) and value in (0, 1)


def _is_shape(value: Any) -> bool:
    """Return whether a value is a tuple or list of sizes, in which None varies from row to row."""
    if not isinstance(value, (tuple, list)) or len(value) > _MAX_DIMENSIONS:
        return False
    return all(_is_size(size) for size in value)


def _is_size(value: Any) -> bool:
    if value is None:
        return True
    return type(value) is int and 0 <= value <= _MAX_SIZE  # a bool is no size


def _numpy_type(value: Any) -> Any:
    """Return the type of a field; None if the value does not stand for one.

    A program may declare a field by a dtype (``np.dtype("int64")``) instead of a type
    (``np.int64``). Both become the type.
    """
    if isinstance(value, DtypeStub) and value.code not in _DTYPES_OF_SOME_MACHINES:
        return np.dtype(value.code).type
    if isinstance(value, GlobalStub):
        return value.known.type
    return None


# ----------------------------------------------------------------------------------------- codecs


def _read_codec(stub: ObjectStub, field_name: str) -> Any:
    """Return the codec that a stub stands for.

    Args:
        stub: an object of the role "codec".
        field_name: the name of its field, for messages.

    Raises:
        Refusal: an attribute of the codec is invalid.
        ConfigError: the codec encodes images of an unsupported format.
    """
    attributes = attributes_of(stub)
    class_name = stub.known.name
    if class_name in user_codecs:
        return _read_user_codec(class_name, attributes)
    if class_name == "ScalarCodec":
        spark_type = expect_object(attributes.get("_spark_type"), "spark type")
        return codecs.ScalarCodec(_spark_type_name(spark_type))
    if class_name == "NdarrayCodec":
        return codecs.NdarrayCodec()
    if class_name == "CompressedImageCodec":
        return _read_image_codec(attributes, field_name)
    # The table of known globals has no other codec.
    return codecs.CompressedNdarrayCodec()


def _read_image_codec(attributes: dict[str, Any], field_name: str) -> Any:
    """Return the codec for images of a format.

    Raises:
        Refusal: the format or the quality is invalid.
        ConfigError: the format is not supported.
    """
    format_value = attributes.get("_image_codec")
    image_format = expect_text(format_value, "the format of an image").lower()
    quality = attributes.get("_quality", _DEFAULT_QUALITY)
    is_quality = type(quality) is int and 0 <= quality <= 100
    if not _IMAGE_FORMAT.fullmatch(image_format) or not is_quality:
        raise Refusal(f"images of format {describe(image_format)}, quality {describe(quality)}")
    if image_format == ".webp":
        return codecs.BinaryCodec(codec_of("webp"))
    if image_format not in (".png", ".jpeg", ".jpg"):
        raise ConfigError(
            f"field {field_name!r} has images of the unsupported format {image_format}; supported: "
            "png, jpeg, webp"
        )
    # Petastorm allows a quality of 0; data_stack's codec counts from 1.
    return codecs.CompressedImageCodec(image_format[1:], max(quality, 1))


def _spark_type_name(stub: ObjectStub) -> str:
    """Return Spark's name of a type, such as ``"decimal(10,3)"``.

    Raises:
        Refusal: the precision or scale of a decimal is invalid.
    """
    if stub.known.name != "decimal":
        return stub.known.name
    attributes = attributes_of(stub)
    precision = attributes.get("precision", 10)  # Spark's defaults
    scale = attributes.get("scale", 0)
    are_integers = type(precision) is int and type(scale) is int
    if not are_integers or not 1 <= precision <= _MAX_PRECISION or not 0 <= scale <= precision:
        raise Refusal(
            f"a decimal type of precision {describe(precision)} and scale {describe(scale)}"
        )
    return f"decimal({precision},{scale})"


def _read_user_codec(class_name: str, attributes: dict[str, Any]) -> Any:
    """Return a codec of a user's class, which this process has imported.

    Its constructor is not called.
    """
    conversion = _AttributeConversion()
    converted = {name: conversion.convert(value) for name, value in attributes.items()}
    return restore_codec(class_name, converted)


class _AttributeConversion:
    """Converts the attributes of a user's codec to values of Python.

    A list or dict that occurs several times is converted once. Otherwise a small pickle could
    expand to unlimited data: a list that holds ten times the same list, which again holds ten times
    the same list, and so on.
    """

    #: Converted lists, tuples and dicts, by the ``id`` of the list, tuple or stub in the pickle.
    _converted: dict[int, Any]

    def __init__(self) -> None:
        self._converted = {}

    def convert(self, value: Any, depth: int = 0) -> Any:
        """Return the plain data, type of numpy, or name of a type of Spark that a value stands for.

        Args:
            value: a value of a decoded pickle, which must live as long as this object.
            depth: the number of lists and dicts around the value.

        Raises:
            Refusal: the value is something else, or nested too deeply.
        """
        if depth > _MAX_DEPTH:
            raise Refusal(f"an attribute of a codec that is nested more than {_MAX_DEPTH} deep")
        if not isinstance(value, (list, tuple, DictStub)):
            return _plain_attribute(value)
        if id(value) not in self._converted:
            self._converted[id(value)] = self._convert_container(value, depth + 1)
        return self._converted[id(value)]

    def _convert_container(self, value: list[Any] | tuple[Any, ...] | DictStub, depth: int) -> Any:
        """Return a list, tuple or dict of converted items."""
        if isinstance(value, DictStub):
            return {
                expect_text(key, "a key"): self.convert(item, depth) for key, item in value.items
            }
        items = [self.convert(item, depth) for item in value]
        return tuple(items) if isinstance(value, tuple) else items


def _plain_attribute(value: Any) -> Any:
    """Return an attribute that is not a list, tuple or dict.

    Raises:
        Refusal: it is not plain data, a type of numpy or a type of Spark.
    """
    if value is None:
        return None
    if isinstance(value, ObjectStub) and value.known.role == "spark type":
        return _spark_type_name(value)
    if isinstance(value, DtypeStub):
        return np.dtype(value.byte_order + value.code + value.unit)
    numpy_type = _numpy_type(value)
    if numpy_type is not None:
        return numpy_type
    return plain_value(value)
