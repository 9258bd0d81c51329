"""Petastorm's codecs, which encode the values of a field as cells of a column and decode them."""

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

#: By Spark's name of a type of numbers, the widest dtype of its kind. Numbers of a field of another
#: kind must fit into it; Spark or Parquet checks the size of the column itself. See `_fit_number`.
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

    #: The codec of data_stack.
    _codec: Codec

    @property
    def stored(self) -> Codec:
        """The codec of data_stack that encodes the same cells."""
        return self._codec

    def encode(self, unischema_field: Any, value: Any) -> bytearray:
        """Encode an array as the bytes of a cell.

        Args:
            unischema_field: the field.
            value: an array of the field's dtype and shape; any array for a field of objects.

        Raises:
            ValueError: the value is not such an array.
        """
        _check_array(unischema_field, value)
        codec = self._codec_for(unischema_field)
        return bytearray(codec.encode(value))

    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Decode the bytes of a cell to an array of the field's dtype and shape."""
        codec = self._codec_for(unischema_field)
        return codec.decode(bytes(value))

    def spark_dtype(self) -> DataType:
        """Return pyspark's type of bytes."""
        return spark_type_named("binary")

    def _codec_for(self, field: Any) -> Codec:
        """Return the codec of data_stack for arrays of a field's dtype and shape."""
        codec = self.stored
        dtype = np.dtype(field.numpy_dtype)
        if dtype.hasobject:
            return codec
        return codec.adapt(ColumnType(codec.type_name, dtype, field.shape))


def _check_array(field: Any, value: Any) -> None:
    """Check that a value is an array of a field's type and shape.

    A field of objects takes any value.

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
    """Makes one of Petastorm's codecs of any codec of data_stack that encodes to bytes.

    Args:
        codec: the codec of data_stack.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec


class NdarrayCodec(_BytesCodec):
    """Encodes arrays as ``.npy`` files."""

    _codec = NpyCodec()


class CompressedNdarrayCodec(_BytesCodec):
    """Encodes arrays as compressed ``.npz`` files."""

    _codec = NpzCodec()


class CompressedImageCodec(_BytesCodec):
    """Encodes images of shape ``(height, width)``, or ``(height, width, 3)`` in RGB, as files.

    Args:
        image_codec: "png" for uint8 and uint16, "jpeg" or "jpg" for uint8.
        quality: quality of JPEG, 0 to 100; PNG, which loses nothing, ignores it.

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
    """Stores numbers, text, bytes, decimals, dates and times in Parquet's own types.

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
        """Convert a scalar of Python or numpy to the cell of a column, a value of Python.

        Text becomes a ``str``, and an int in a column of decimals a ``Decimal``.

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
    """Return a text, which may be a ``numpy.str_``, as a ``str`` of Python.

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
        column_dtype: the dtype that the number must fit if the field has another kind, such as a
            field of floats in a column of integers.

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
    """Return the codec of data_stack that stores the same cells as one of Petastorm.

    None and codecs of data_stack are returned unchanged.
    """
    # A class that a user derived from one of ours may encode in another way, hence type().
    if type(codec) is ScalarCodec:
        return LenientScalarCodec(codec.type_name)
    if type(codec) in (BinaryCodec, NdarrayCodec, CompressedNdarrayCodec, CompressedImageCodec):
        return codec.stored
    if isinstance(codec, DataframeColumnCodec):
        return UserCodec(codec)
    return codec


def as_column_codec(codec: Any) -> Any:
    """Return the codec of Petastorm that stores the same cells as one of data_stack.

    Codecs of Petastorm are returned unchanged. None stands for the default of Parquet: for lists,
    and for scalars without a type of their own.
    """
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
