"""Petastorm's codecs: ``encode(field, value)`` and ``decode(field, cell)``."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from data_stack.codecs import Codec, ColumnType, JpgCodec, NpyCodec, NpzCodec, PngCodec
from data_stack.codecs.fitting import fits_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet import codecs as parquet_codecs
from data_stack.formats.parquet.types import arrow_type_named
from data_stack_petastorm.dataframe_column_codec import DataframeColumnCodec
from data_stack_petastorm.lenient_scalar_codec import LenientScalarCodec, fit_number, scalar_of
from data_stack_petastorm.user_codec import UserCodec, spark_type_named

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

#: The dtypes that numbers in a column of a type of Spark must fit.
_NUMBERS_OF_SPARK: Final = {
    "boolean": np.dtype(np.bool_),
    "tinyint": np.dtype(np.int64),
    "smallint": np.dtype(np.int64),
    "int": np.dtype(np.int64),
    "bigint": np.dtype(np.int64),
    "float": np.dtype(np.float64),
    "double": np.dtype(np.float64),
}


# --------------------------------------------------------------------------------- cells of bytes


class _BytesCodec(DataframeColumnCodec):
    """A codec with cells of bytes, which a codec of data_stack encodes and decodes."""

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
        _check_array(unischema_field, value)
        codec = self._codec_for(unischema_field)
        return bytearray(codec.encode(value))

    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Decode the array."""
        codec = self._codec_for(unischema_field)
        return codec.decode(bytes(value))

    def spark_dtype(self) -> DataType:
        """Return the type of bytes."""
        return spark_type_named("binary")

    def _codec_for(self, field: Any) -> Codec:
        """Return the codec of data_stack for arrays of a field's dtype and shape."""
        codec = self.stored
        dtype = np.dtype(field.numpy_dtype)
        if dtype.hasobject:
            return codec
        return codec.adapt(ColumnType(codec.type_name, dtype, field.shape))


def _check_array(field: Any, value: Any) -> None:
    """Check that a value is an array of a field's type and shape; a field of objects takes any.

    Raises:
        ValueError: the value is something else.
    """
    scalar_type = np.dtype(field.numpy_dtype).type
    if scalar_type is np.object_:
        return
    expected = f"expected an array of {scalar_type.__name__}"
    if not isinstance(value, np.ndarray):
        raise ValueError(
            f"Unexpected type of field {field.name!r}: {expected}, got {type(value).__name__}"
        )
    if value.dtype.type is not scalar_type:
        raise ValueError(f"Unexpected type of field {field.name!r}: {expected}, got {value.dtype}")
    if not fits_shape(value.shape, field.shape):
        raise ValueError(
            f"Unexpected dimensions of field {field.name!r}: expected {field.shape}, "
            f"got {value.shape}"
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

    #: The format with a dot, ``".png"``, under the name that Petastorm pickles.
    _image_codec: str
    #: The quality, under the name that Petastorm pickles.
    _quality: int

    def __init__(self, image_codec: str = "png", quality: int = 80) -> None:
        if image_codec not in ("png", "jpeg", "jpg"):
            raise ConfigError(f"image_codec must be 'png' or 'jpeg', got {image_codec!r:.60}")
        self._image_codec = f".{image_codec}"
        self._quality = quality
        _ = self.stored  # raises for an invalid quality

    @property
    def image_codec(self) -> str:
        """The format: png, jpeg or jpg."""
        return self._image_codec[1:]

    @property
    def stored(self) -> Codec:
        """The codec of data_stack for PNG or JPEG."""
        if self.image_codec == "png":
            return PngCodec()
        return JpgCodec(self._quality)

    def encode(self, unischema_field: Any, value: Any) -> bytearray:
        """Encode an image as a file.

        Raises:
            ValueError: the value has another dtype or shape than the field, or is not an image.
        """
        if isinstance(value, np.ndarray):
            is_gray = value.ndim == 2
            is_rgb = value.shape[2:] == (3,)
            if not is_gray and not is_rgb:
                raise ValueError(
                    f"Unexpected dimensions of field {unischema_field.name!r}: images have shape "
                    f"(H, W) or (H, W, 3), got {value.shape}"
                )
        return super().encode(unischema_field, value)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.image_codec!r}, {self._quality})"


# ---------------------------------------------------------------------------------------- scalars


class ScalarCodec(DataframeColumnCodec):
    """Numbers, text, bytes, decimals, dates and times in Parquet's own types.

    Args:
        spark_type: a type of :mod:`pyspark.sql.types`; or, without pyspark, its name (``"int"``,
            ``"bigint"``, ``"decimal(10,3)"``).

    Raises:
        ConfigError: the type is unknown.
    """

    #: The type or its name, under the name that Petastorm pickles.
    _spark_type: Any

    def __init__(self, spark_type: Any) -> None:
        self._spark_type = spark_type
        arrow_type_named(self.type_name)  # raises for an unknown type

    @property
    def type_name(self) -> str:
        """Spark's name of the type, such as ``"bigint"``."""
        name: str = self._spark_type
        if not isinstance(self._spark_type, str):
            name = self._spark_type.simpleString()
        is_limited_text = name.startswith(("char(", "varchar("))
        return "string" if is_limited_text else name

    def encode(self, unischema_field: Any, value: Any) -> Any:
        """Convert a value to a number, text or bytes of Python.

        Raises:
            TypeError: the value is not a scalar.
            ValueError: the field has a shape, or the value does not fit: text for a number, 1.5 for
                an integer, 300 for uint8, 1e300 for float32.
        """
        field = unischema_field
        scalar = scalar_of(value)
        if hasattr(scalar, "__len__") and not isinstance(scalar, (str, bytes)):
            raise TypeError(
                f"Expected a scalar as a value of field {field.name!r}, got {type(scalar).__name__}"
            )
        if field.shape:
            raise ValueError(
                f"The shape of field {field.name!r} must be an empty tuple for a ScalarCodec, "
                f"got {field.shape}"
            )
        name = self.type_name
        if name == "string":
            return _check_text(field, scalar)
        if name in _NUMBERS_OF_SPARK:
            return _fit_number(field, scalar, _NUMBERS_OF_SPARK[name])
        if name.startswith("decimal") and isinstance(scalar, (int, np.integer)):
            return Decimal(int(scalar))
        return scalar

    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Convert the cell to a scalar of the field's type."""
        return unischema_field.numpy_dtype(value)

    def spark_dtype(self) -> DataType:
        """Return the type as an object of pyspark."""
        if isinstance(self._spark_type, str):
            return spark_type_named(self._spark_type)
        spark_type: DataType = self._spark_type
        return spark_type

    def __str__(self) -> str:
        shown = repr(self._spark_type)
        if not isinstance(self._spark_type, str):
            shown = f"{type(self._spark_type).__name__}()"
        return f"{type(self).__name__}({shown})"


def _check_text(field: Any, value: Any) -> str:
    """Return a text as a ``str`` of Python.

    Raises:
        ValueError: the value is not text.
    """
    if not isinstance(value, str):
        raise ValueError(
            f"Expected a string value for field {field.name!r}, got {type(value).__name__}"
        )
    return str(value)


def _fit_number(field: Any, value: Any, column_dtype: np.dtype[Any]) -> bool | int | float:
    """Convert a number to one of Python that fits into a field.

    Args:
        field: the field of Petastorm.
        value: the number.
        column_dtype: the dtype that all numbers in the column fit, for a field of another kind.

    Raises:
        ValueError: the value is not a number, or does not fit.
    """
    # numpy has no dtype for decimals.
    numpy_dtype = object if field.numpy_dtype is Decimal else field.numpy_dtype
    field_dtype = np.dtype(numpy_dtype)
    is_same_kind = field_dtype.kind == column_dtype.kind
    is_unsigned = field_dtype.kind == "u" and column_dtype.kind == "i"
    dtype = field_dtype if is_same_kind or is_unsigned else column_dtype
    try:
        return fit_number(dtype, value)
    except ValueError as error:
        raise ValueError(f"Field {field.name!r}: {error}") from error


# ----------------------------------------------------- codecs of Petastorm and those of data_stack


def as_field_codec(codec: Any) -> Any:
    """Return the codec of data_stack that stores the same cells; None for None."""
    if type(codec) is ScalarCodec:
        return LenientScalarCodec(codec.type_name)
    if type(codec) in (BinaryCodec, NdarrayCodec, CompressedNdarrayCodec, CompressedImageCodec):
        return codec.stored
    if isinstance(codec, DataframeColumnCodec):  # of a user, perhaps derived from one of ours
        return UserCodec(codec)
    return codec


def as_column_codec(codec: Any) -> Any:
    """Return the codec of a field as one of Petastorm's; None if Parquet itself has the type."""
    if isinstance(codec, UserCodec):
        return codec.codec
    if isinstance(codec, parquet_codecs.ListCodec):
        return None
    if isinstance(codec, parquet_codecs.ScalarCodec):
        return None if codec.type is None else ScalarCodec(codec.type)
    if isinstance(codec, JpgCodec):
        return CompressedImageCodec("jpeg", codec.quality)
    codec_type = type(codec)
    if codec_type is PngCodec:
        return CompressedImageCodec("png")
    if codec_type is NpyCodec:
        return NdarrayCodec()
    if codec_type is NpzCodec:
        return CompressedNdarrayCodec()
    if isinstance(codec, Codec):
        return BinaryCodec(codec)
    return codec
