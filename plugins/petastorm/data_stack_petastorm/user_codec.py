"""Adapts the codecs that users derive from Petastorm's to the Parquet columns of data_stack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from data_stack.codecs.plain_data import from_plain, to_plain
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import ArrowCodec, register_arrow_codec
from data_stack.formats.parquet.columns import CellColumn, GroupColumn
from data_stack.formats.parquet.types import (
    FieldLike,
    arrow_for_spark,
    arrow_type_named,
    describe_type,
    type_described,
)
from data_stack.values.dtype_texts import parse_dtype
from data_stack_petastorm.dataframe_column_codec import (
    DataframeColumnCodec,
    class_name,
    restore_codec,
    user_codecs,
)
from data_stack_petastorm.unischema_field import UnischemaField

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


@register_arrow_codec
class UserCodec(ArrowCodec):
    """Adapts a codec of a user's class to data_stack.

    A dataset stores the name of the class, and the attributes of the codec as plain data. It stores
    no pickle.

    Args:
        codec: the codec of the user; None: the one that ``codec_class`` and ``state`` describe.
        codec_class: module and name of the class.
        state: the attributes of the codec as plain data.
        type: the type of the column as plain data; None: the ``spark_dtype`` of the codec.

    Raises:
        ConfigError: the class was not imported, or has attributes that are not plain data.

    Attributes:
        codec: the codec of the user.
    """

    kind = "petastorm"

    codec: DataframeColumnCodec
    #: The type of the column as plain data; None until it is needed, as it may require pyspark.
    _type: Any

    def __init__(
        self,
        codec: Any = None,
        *,
        codec_class: str = "",
        state: Any = None,
        type: Any = None,  # noqa: A002  # the name in stored schemas
    ) -> None:
        if codec is None:
            codec = restore_codec(codec_class, from_plain(state, _TYPES_FROM_PLAIN))
        self.codec = codec
        self._type = type

    def to_json(self) -> dict[str, Any]:
        """Return the codec as plain data.

        Raises:
            ConfigError: the class of the codec cannot be found by its name, or the codec has
                attributes that are not plain data.
        """
        codec_class = type(self.codec)
        name = class_name(codec_class)
        is_registered = user_codecs.get(name) is codec_class
        if not is_registered or "<locals>" in name:
            raise ConfigError(
                f"the codec {name} cannot be found by its name: define its class at the top of a "
                "module"
            )
        return {
            "codec": self.kind,
            "codec_class": name,
            "state": to_plain(vars(self.codec), first=_type_to_plain),
            "type": describe_type(self._column_type()),
        }

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        return self._column_type()

    def encode(self, field: FieldLike, value: Any) -> Any:
        return self.codec.encode(self._unischema_field(field), value)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        decode = functools.partial(self.codec.decode, self._unischema_field(field))
        return CellColumn(cells.to_pylist(), decode, cells.nbytes, as_objects=has_nulls)

    def _column_type(self) -> pa.DataType:
        """Return the type of the column, which the codec is asked for once."""
        if self._type is None:
            self._type = describe_type(_arrow_type_of(self.codec))
        return type_described(self._type)

    def _unischema_field(self, field: FieldLike) -> UnischemaField:
        """Return a field of data_stack as the methods of the user's codec expect it."""
        numpy_dtype: Any = Decimal
        if isinstance(field.dtype, np.dtype):
            numpy_dtype = field.dtype.type
        return UnischemaField(field.name, numpy_dtype, field.shape, self.codec, field.nullable)


def _arrow_type_of(codec: DataframeColumnCodec) -> pa.DataType:
    """Return the type of the column of a codec, whose ``spark_dtype`` may be a type or a name."""
    spark_type: Any = codec.spark_dtype()
    if isinstance(spark_type, str):
        return arrow_type_named(spark_type)
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark_type)


def spark_type_named(name: str) -> DataType:
    """Return the type of :mod:`pyspark.sql.types` that has a name such as ``"bigint"``.

    It requires pyspark, but no session of Spark.
    """
    from pyspark.sql.pandas.types import from_arrow_type

    arrow_type = arrow_for_spark(arrow_type_named(name))
    spark_type: DataType = from_arrow_type(arrow_type, prefer_timestamp_ntz=True)
    return spark_type


# ------------------------------------------------- types of numpy and Spark among the attributes


def _type_to_plain(value: Any) -> dict[str, Any] | None:
    """Return a type of numpy or Spark as plain data; None for another value."""
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"numpy": np.dtype(value).str}
    spark_name = getattr(value, "simpleString", None)
    if spark_name is None:
        return None
    return {"spark": spark_name()}


def _numpy_type(text: str) -> type:
    """Return the type of numpy of a dtype's text, such as ``"<i8"``."""
    return parse_dtype(text).type


#: What makes a type of its text, by the key that :func:`_type_to_plain` gives it.
_TYPES_FROM_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "dtype": parse_dtype,
    "numpy": _numpy_type,
    "spark": spark_type_named,
}
