"""Petastorm's codecs: ``encode(field, value)`` and ``decode(field, cell)``."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from data_stack.codecs import Codec, ColumnType, JpgCodec, NpyCodec, NpzCodec, PngCodec
from data_stack.codecs.fitting import fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet import codecs as stored
from data_stack.formats.parquet.types import arrow_type_named
from data_stack_petastorm.column_codec import DataframeColumnCodec, UserCodec, spark_type_named
from data_stack_petastorm.scalars import LenientScalarCodec, fit_number

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = [
    "BinaryCodec",
    "CompressedImageCodec",
    "CompressedNdarrayCodec",
    "DataframeColumnCodec",
    "NdarrayCodec",
    "ScalarCodec",
    "as_column_codec",
    "as_field_codec",
]

#: Dtypes that the numbers of a column must fit if the field has another kind of type.
_NUMBERS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), np.dtype(np.int64)),
    **dict.fromkeys(("float", "double"), np.dtype(np.float64)),
    "boolean": np.dtype(np.bool_),
}


class _BytesCodec(DataframeColumnCodec):
    """A codec of data_stack with cells of bytes."""

    _codec: Codec

    @property
    def stored(self) -> Codec:
        """The codec of data_stack that encodes the same cells."""
        return self._codec

    def encode(self, unischema_field: Any, value: Any) -> bytearray:
        """Encode an array of the field's type and shape.

        Raises:
            ValueError: the value is not such an array.
        """
        name, type_, shape = (
            unischema_field.name,
            np.dtype(unischema_field.numpy_dtype).type,
            unischema_field.shape,
        )
        if type_ is not np.object_:
            if not isinstance(value, np.ndarray) or value.dtype.type is not type_:
                found = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
                raise ValueError(
                    f"Unexpected type of field {name!r}: expected an array of {type_.__name__}, got {found}"
                )
            if not fits_shape(value.shape, shape):
                raise ValueError(
                    f"Unexpected dimensions of field {name!r}: expected {shape}, got {value.shape}"
                )
        return bytearray(self._adapted(unischema_field).encode(value))

    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Decode the array."""
        return self._adapted(unischema_field).decode(bytes(value))

    def spark_dtype(self) -> DataType:
        """Return the type of bytes."""
        return spark_type_named("binary")

    def _adapted(self, field: Any) -> Codec:
        codec, dtype = self.stored, np.dtype(field.numpy_dtype)
        return (
            codec
            if dtype.hasobject
            else codec.adapt(ColumnType(codec.type_name, dtype, field.shape))
        )


class BinaryCodec(_BytesCodec):
    """Any codec of data_stack with cells of bytes.

    Args:
        codec: a codec of data_stack.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec


class NdarrayCodec(_BytesCodec):
    """Arrays as ``.npy`` files."""

    _codec = NpyCodec()


class CompressedNdarrayCodec(_BytesCodec):
    """Arrays as compressed ``.npz`` files."""

    _codec = NpzCodec()


class CompressedImageCodec(_BytesCodec):
    """Images as files; shape ``(height, width)``, or ``(height, width, 3)`` in RGB.

    Args:
        image_codec: "png" for uint8 and uint16, "jpeg" or "jpg" for uint8.
        quality: quality of JPEG, 0 to 100.

    Raises:
        ConfigError: the codec or quality is invalid.
    """

    def __init__(self, image_codec: str = "png", quality: int = 80) -> None:
        if image_codec not in ("png", "jpeg", "jpg"):
            raise ConfigError(f"image_codec must be 'png' or 'jpeg', got {image_codec!r:.60}")
        self._image_codec = f".{image_codec}"
        self._quality = quality
        _ = self.stored  # checks the quality

    @property
    def image_codec(self) -> str:
        """The format: png, jpeg or jpg."""
        return self._image_codec[1:]

    @property
    def stored(self) -> Codec:
        """PNG or JPEG."""
        return PngCodec() if self.image_codec == "png" else JpgCodec(self._quality)

    def encode(self, unischema_field: Any, value: Any) -> bytearray:
        """Encode an image as a file.

        Raises:
            ValueError: the value has another dtype or shape than the field, or is not an image.
        """
        if isinstance(value, np.ndarray) and value.ndim != 2 and value.shape[2:] != (3,):
            raise ValueError(
                f"Unexpected dimensions of field {unischema_field.name!r}: images have shape (H, W) or (H, W, 3), "
                f"got {value.shape}"
            )
        return super().encode(unischema_field, value)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.image_codec!r}, {self._quality})"


class ScalarCodec(DataframeColumnCodec):
    """Numbers, text, bytes, decimals, dates and times in Parquet's own types.

    Args:
        spark_type: a type of :mod:`pyspark.sql.types`; or, without pyspark, its name (``"int"``, ``"bigint"``,
            ``"decimal(10,3)"``).

    Raises:
        ConfigError: the type is unknown.
    """

    def __init__(self, spark_type: Any) -> None:
        self._spark_type = spark_type
        arrow_type_named(self.type_name)

    @property
    def type_name(self) -> str:
        """Spark's name of the type, such as ``"bigint"``."""
        name: str = (
            self._spark_type
            if isinstance(self._spark_type, str)
            else self._spark_type.simpleString()
        )
        return "string" if name.startswith(("char(", "varchar(")) else name

    def encode(self, unischema_field: Any, value: Any) -> Any:
        """Convert a value to a number, text or bytes of Python.

        Raises:
            TypeError: the value is not a scalar.
            ValueError: the field has a shape, or the value does not fit: text for a number, 1.5 for an integer, 300 for uint8,
                1e300 for float32.
        """
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
            raise TypeError(
                f"Expected a scalar as a value of field {unischema_field.name!r}, got {type(value).__name__}"
            )
        if unischema_field.shape:
            raise ValueError(
                f"The shape of field {unischema_field.name!r} must be an empty tuple for a ScalarCodec, "
                f"got {unischema_field.shape}"
            )
        name, field = self.type_name, unischema_field
        if name == "string":
            if not isinstance(value, str):
                raise ValueError(
                    f"Expected a string value for field {field.name!r}, got {type(value).__name__}"
                )
            return str(value)
        try:
            if name in _NUMBERS:
                wanted, own = (
                    _NUMBERS[name],
                    np.dtype(object if field.numpy_dtype is Decimal else field.numpy_dtype),
                )
                is_same = own.kind == wanted.kind or (own.kind, wanted.kind) == ("u", "i")
                return fit_number(own if is_same else wanted, value)
        except ValueError as error:
            raise ValueError(f"Field {field.name!r}: {error}") from error
        is_integer = name.startswith("decimal") and isinstance(value, (int, np.integer))
        return Decimal(int(value)) if is_integer else value

    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Convert the cell to a scalar of the field's type."""
        return unischema_field.numpy_dtype(value)

    def spark_dtype(self) -> DataType:
        """Return the type as an object of pyspark."""
        found: DataType = (
            spark_type_named(self._spark_type)
            if isinstance(self._spark_type, str)
            else self._spark_type
        )
        return found

    def __str__(self) -> str:
        shown = (
            repr(self._spark_type)
            if isinstance(self._spark_type, str)
            else f"{type(self._spark_type).__name__}()"
        )
        return f"{type(self).__name__}({shown})"


def as_field_codec(codec: Any) -> Any:
    """Return the codec of data_stack that stores the same cells; None for None."""
    if type(codec) is ScalarCodec:
        return LenientScalarCodec(codec.type_name)
    if type(codec) in (BinaryCodec, NdarrayCodec, CompressedNdarrayCodec, CompressedImageCodec):
        return codec.stored
    return UserCodec(codec) if isinstance(codec, DataframeColumnCodec) else codec


def as_column_codec(codec: Any) -> Any:
    """Return the codec of a field as one of Petastorm's; None if Parquet itself has the type."""
    if isinstance(codec, UserCodec):
        return codec.codec
    if isinstance(codec, (stored.ScalarCodec, stored.ListCodec)):
        return (
            None
            if codec.type is None or isinstance(codec, stored.ListCodec)
            else ScalarCodec(codec.type)
        )
    if isinstance(codec, JpgCodec):
        return CompressedImageCodec("jpeg", codec.quality)
    if isinstance(codec, Codec) and type(codec) in _SPELLINGS:
        return _SPELLINGS[type(codec)]()
    return BinaryCodec(codec) if isinstance(codec, Codec) else codec


_SPELLINGS: dict[type[Codec], type[_BytesCodec]] = {
    NpyCodec: NdarrayCodec,
    NpzCodec: CompressedNdarrayCodec,
    PngCodec: CompressedImageCodec,
}
