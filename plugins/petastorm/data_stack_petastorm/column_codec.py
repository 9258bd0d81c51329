"""Petastorm's fields, with codecs of users, which are stored by name and attributes and never pickled."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: Imported codec classes of users, by module and name.
user_codecs: dict[str, type[DataframeColumnCodec]] = {}


class UnischemaField(NamedTuple):
    """The type of a column. Fields that only differ in their codec are equal.

    Attributes:
        name: name of the column.
        numpy_dtype: type of the values, or of the elements of arrays: NumPy's (``np.int64``, ``np.str_``), or ``Decimal``.
        shape: shape of each value: ``()`` for scalars, None for a size that differs from value to value.
        codec: encodes the values, see :mod:`data_stack_petastorm.codecs`, or a codec of data_stack; None for Parquet's own
            types.
        nullable: whether a value may be None.
    """

    name: str
    numpy_dtype: Any
    shape: tuple[int | None, ...] = ()
    codec: Any = None
    nullable: bool | None = False

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, tuple)
            and len(other) == 5
            and self[:3] == other[:3]
            and self[4] == other[4]
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self[:3], self[4]))


UnischemaField.__module__ = f"{__package__}.unischema"


class DataframeColumnCodec(ABC):
    """Encodes the values of a field as cells of a column, and decodes them. Derive from it for a codec of your own.

    Define your class at the top of a module, with attributes that are plain data (numbers, text, lists, dicts, arrays, types of
    numpy and Spark). A dataset stores its name and attributes. Import the class before you read the dataset: nothing that is
    stored is ever run.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name = f"{cls.__module__}.{cls.__qualname__}"
        if cls.__module__.rpartition(".")[0] != __package__:
            user_codecs[name] = cls

    @abstractmethod
    def encode(self, unischema_field: Any, value: Any) -> Any:
        """Return the cell for ``value``, of the type :meth:`spark_dtype`."""

    @abstractmethod
    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Return the value of a cell."""

    @abstractmethod
    def spark_dtype(self) -> DataType:
        """Return the type of the column, of :mod:`pyspark.sql.types`."""

    def __str__(self) -> str:
        return f"{type(self).__name__}()"


@register_arrow_codec
class UserCodec(ArrowCodec):
    """Adapts a codec of a user's class to data_stack.

    Args:
        codec: an instance of the class; None: the one that ``codec_class`` and ``state`` describe.
        codec_class: module and name of the class.
        state: its attributes as plain data.
        type: type of the column, as plain data; None: the type of the codec.

    Raises:
        ConfigError: the class was not imported, or has attributes that are not plain data.
    """

    kind = "petastorm"

    def __init__(
        self,
        codec: Any = None,
        *,
        codec_class: str = "",
        state: Any = None,
        type: Any = None,  # noqa: A002
    ) -> None:
        self.codec: DataframeColumnCodec = (
            restore_codec(codec_class, from_plain(state, _OF_PLAIN)) if codec is None else codec
        )
        self._type = type

    def to_json(self) -> dict[str, Any]:
        """Return the codec as plain data."""
        cls = type(self.codec)
        name = f"{cls.__module__}.{cls.__qualname__}"
        if user_codecs.get(name) is not cls or "<locals>" in name:
            raise ConfigError(
                f"the codec {name} cannot be found by its name: define its class at the top of a module"
            )
        return {
            "codec": self.kind,
            "codec_class": name,
            "state": to_plain(vars(self.codec), first=_plain_type),
            "type": describe_type(self._arrow_type()),
        }

    def arrow_type(self, field: FieldLike) -> pa.DataType:
        return self._arrow_type()

    def encode(self, field: FieldLike, value: Any) -> Any:
        return self.codec.encode(self._field(field), value)

    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        decode = functools.partial(self.codec.decode, self._field(field))
        return CellColumn(cells.to_pylist(), decode, cells.nbytes, as_objects=has_nulls)

    def _arrow_type(self) -> pa.DataType:
        if self._type is None:
            type_ = self.codec.spark_dtype()
            if isinstance(type_, str):
                self._type = describe_type(arrow_type_named(type_))
            else:
                from pyspark.sql.pandas.types import to_arrow_type

                self._type = describe_type(to_arrow_type(type_))
        return type_described(self._type)

    def _field(self, field: FieldLike) -> UnischemaField:
        numpy_dtype = field.dtype.type if isinstance(field.dtype, np.dtype) else Decimal
        return UnischemaField(field.name, numpy_dtype, field.shape, self.codec, field.nullable)


def spark_type_named(name: str) -> DataType:
    """Return the type of :mod:`pyspark.sql.types` of this name, such as ``"bigint"``; no session is needed."""
    from pyspark.sql.pandas.types import from_arrow_type

    found: DataType = from_arrow_type(
        arrow_for_spark(arrow_type_named(name)), prefer_timestamp_ntz=True
    )
    return found


def restore_codec(name: str, state: Mapping[str, Any]) -> DataframeColumnCodec:
    """Return a codec with these attributes; its constructor is not called."""
    cls = user_codecs.get(name)
    if cls is None:
        raise ConfigError(
            f"the class of the codec {name!r:.200} was not imported: import its module before you read"
        )
    codec = object.__new__(cls)
    codec.__dict__.update(state)
    return codec


def _plain_type(value: Any) -> dict[str, Any] | None:
    """Return types of numpy and Spark as plain data."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {"dtype" if isinstance(value, np.dtype) else "numpy": np.dtype(value).str}
    name = getattr(value, "simpleString", None)
    return None if name is None else {"spark": name()}


_OF_PLAIN: dict[str, Callable[[Any], Any]] = {
    "dtype": np.dtype,
    "numpy": lambda text: np.dtype(text).type,
    "spark": spark_type_named,
}
