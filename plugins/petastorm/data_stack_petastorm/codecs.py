"""Codecs of cells in Petastorm's spelling: ``encode(field, value)`` and ``decode(field, cell)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from data_stack.codecs import Codec, JpgCodec, NpyCodec, NpzCodec, PngCodec
from data_stack.exception import ConfigError
from data_stack.formats.parquet.types import arrow_type_named

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from data_stack_petastorm.unischema import UnischemaField

__all__ = [
    "CompressedImageCodec",
    "CompressedNdarrayCodec",
    "DataframeColumnCodec",
    "NdarrayCodec",
    "ScalarCodec",
]

_INTEGERS = frozenset(("tinyint", "smallint", "int", "bigint"))
_FLOATS = frozenset(("float", "double"))


class DataframeColumnCodec(ABC):
    """How the values of a field become cells of a column, and back. Derive from it for a codec of your own.

    A class of your own has a name at module level, and attributes that are plain data (numbers, text, lists, dicts). A dataset
    keeps its name and attributes; reading one needs the class to be imported first, as nothing that is stored is ever run.
    """

    @abstractmethod
    def encode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """The cell that stores ``value``, of the type :meth:`spark_dtype`."""

    @abstractmethod
    def decode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """The value of a cell."""

    @abstractmethod
    def spark_dtype(self) -> DataType:
        """The type of the column, of :mod:`pyspark.sql.types`."""

    def __str__(self) -> str:
        return f"{type(self).__name__}()"


class _BinaryCodec(DataframeColumnCodec):
    """A codec of data_stack, whose cells are bytes."""

    _codec: Codec

    def encode(self, unischema_field: UnischemaField, value: Any) -> bytearray:
        """The bytes of an array of the field's dtype and shape.

        Raises:
            ValueError: it is none.
        """
        name, dtype, shape = unischema_field.name, np.dtype(unischema_field.numpy_dtype), unischema_field.shape
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            found = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"Unexpected type of field {name!r}: expected an array of {dtype}, got {found}")
        if not _fits(value.shape, shape):
            raise ValueError(f"Unexpected dimensions of field {name!r}: expected {shape}, got {value.shape}")
        return bytearray(self._codec.encode(value))

    def decode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """The array of the bytes."""
        return self._codec.decode(bytes(value))

    def spark_dtype(self) -> DataType:
        """Bytes."""
        from pyspark.sql.types import BinaryType

        return BinaryType()


class NdarrayCodec(_BinaryCodec):
    """Arrays as files of NumPy, ``.npy``."""

    _codec = NpyCodec()


class CompressedNdarrayCodec(_BinaryCodec):
    """Arrays as compressed files of NumPy, ``.npz``."""

    _codec = NpzCodec()


class CompressedImageCodec(_BinaryCodec):
    """Images as files: of shape ``(height, width)`` or ``(height, width, 3)``, in RGB.

    Args:
        image_codec: "png" for uint8 and uint16, "jpeg" or "jpg" for uint8.
        quality: 0 to 100, of JPEG.

    Raises:
        ConfigError: there is no such codec or quality.
    """

    def __init__(self, image_codec: str = "png", quality: int = 80) -> None:
        if image_codec not in ("png", "jpeg", "jpg"):
            raise ConfigError(f"image_codec is 'png' or 'jpeg', not {image_codec!r:.60}")
        self._image_codec = f".{image_codec}"
        self._quality = quality
        self._codec = PngCodec() if image_codec == "png" else JpgCodec(quality)

    @property
    def image_codec(self) -> str:
        """"png", "jpeg" or "jpg"."""
        return self._image_codec[1:]

    def encode(self, unischema_field: UnischemaField, value: Any) -> bytearray:
        """The file of an image.

        Raises:
            ValueError: it has another dtype or shape than the field, or is no image.
        """
        if isinstance(value, np.ndarray) and value.ndim != 2 and value.shape[2:] != (3,):
            raise ValueError(
                f"Unexpected dimensions of field {unischema_field.name!r}: images have shape (H, W) or (H, W, 3), "
                f"not {value.shape}"
            )
        return super().encode(unischema_field, value)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.image_codec!r}, {self._quality})"


class ScalarCodec(DataframeColumnCodec):
    """Numbers, text, bytes, decimals, dates and times as Parquet's own.

    Args:
        spark_type: a type of :mod:`pyspark.sql.types`, or its name in Spark (``"int"``, ``"bigint"``, ``"decimal(10,3)"``), which
            needs no pyspark.

    Raises:
        ConfigError: there is no type of this name.
    """

    def __init__(self, spark_type: Any) -> None:
        self._spark_type = spark_type
        self._name: str = spark_type if isinstance(spark_type, str) else spark_type.simpleString()
        if isinstance(spark_type, str):
            arrow_type_named(spark_type)

    @property
    def type_name(self) -> str:
        """Spark's name of the type, ``"bigint"``."""
        return self._name

    def encode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """A number, text or bytes of Python.

        Raises:
            TypeError: it is no scalar.
            ValueError: the field is none of scalars, or the value would change: text for a number, 1.5 for an integer.
        """
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
            raise TypeError(f"Expected a scalar as a value of field {unischema_field.name!r}, got {type(value).__name__}")
        if unischema_field.shape:
            raise ValueError(
                f"The shape of field {unischema_field.name!r} must be an empty tuple for a ScalarCodec, not {unischema_field.shape}"
            )
        if self._name in _INTEGERS:
            if int(value) != value:
                raise ValueError(f"Field {unischema_field.name!r} holds integers, not {value!r:.40}")
            return int(value)
        if self._name in _FLOATS:
            return float(value)
        if self._name == "boolean":
            return bool(value)
        if self._name == "string" and not isinstance(value, str):
            raise ValueError(f"Expected a string value for field {unischema_field.name!r}, got {type(value).__name__}")
        return str(value) if self._name == "string" else value

    def decode(self, unischema_field: UnischemaField, value: Any) -> Any:
        """The cell as a scalar of the field's type."""
        return unischema_field.numpy_dtype(value)

    def spark_dtype(self) -> DataType:
        """The type that was given."""
        if not isinstance(self._spark_type, str):
            return self._spark_type  # type: ignore[no-any-return]
        from pyspark.sql.types import _parse_datatype_string

        return _parse_datatype_string(self._spark_type)

    def __str__(self) -> str:
        shown = repr(self._spark_type) if isinstance(self._spark_type, str) else f"{type(self._spark_type).__name__}()"
        return f"{type(self).__name__}({shown})"


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(size is None or size == n for n, size in zip(shape, wanted, strict=True))
