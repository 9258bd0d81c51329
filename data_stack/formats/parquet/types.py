"""Maps between types of Spark (by ``simpleString``), Arrow and numpy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

FieldDtype: TypeAlias = "np.dtype[Any] | type[Decimal]"
"""The dtype of a field: a dtype of numpy (``object`` for any values), or Decimal."""


@dataclass(frozen=True, init=False)
class FieldLike:
    """What codecs need to know of a field; :class:`~data_stack.formats.parquet.schema.Field` documents each."""

    name: str
    dtype: FieldDtype
    shape: tuple[int | None, ...]
    nullable: bool


#: Spark's names, and further types of Parquet. A timestamp is an instant (UTC), a timestamp_ntz is local time.
_BY_NAME: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    **{f"uint{bits}": pa.type_for_alias(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "float16": pa.float16(),
    **{f"timestamp[{unit}]": pa.timestamp(unit, "UTC") for unit in ("ms", "ns")},
    **{f"timestamp_ntz[{unit}]": pa.timestamp(unit) for unit in ("ms", "ns")},
    **{
        f"time[{unit}]": (pa.time32 if unit == "ms" else pa.time64)(unit)
        for unit in ("ms", "us", "ns")
    },
    **{f"duration[{unit}]": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
    "void": pa.null(),
}
_NAMES: Final = {type_: name for name, type_ in _BY_NAME.items()}
#: Types that Spark lacks.
_FOR_SPARK: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
#: Levels of nested types, below Python's recursion limit.
_MAX_DEPTH: Final = 100
#: For units of numpy, the type or the unit of Arrow that holds them exactly.
_TIMES: Final = {
    **dict.fromkeys(("Y", "M", "W", "D"), pa.date32()),
    **dict.fromkeys(("h", "m", "s", "ms"), pa.timestamp("ms")),
    **{unit: pa.timestamp(unit) for unit in ("us", "ns")},
}
_DURATION_UNITS: Final = {
    "W": "s",
    "D": "s",
    "h": "s",
    "m": "s",
    "s": "s",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
}


def arrow_type_named(name: Any) -> pa.DataType:
    """Arrow's type for a name such as ``"bigint"`` or ``"decimal(10,3)"``.

    Raises:
        ConfigError: the type is unknown.
    """
    decimal = re.fullmatch(r"decimal\((\d{1,2}),(\d{1,2})\)", str(name))
    if decimal is not None and 1 <= int(decimal[1]) <= 76 and int(decimal[2]) <= int(decimal[1]):
        precision, scale = int(decimal[1]), int(decimal[2])
        return (
            pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        )
    if str(name) not in _BY_NAME:
        near, known = did_you_mean(str(name), _BY_NAME), ", ".join(_BY_NAME)
        raise ConfigError(
            f"unknown scalar type {name!r:.60}{near}; known: {known}, decimal(precision,scale)"
        )
    return _BY_NAME[str(name)]


def name_of_arrow(type_: pa.DataType) -> str | None:
    """The name of an Arrow scalar type, or of a type with the same values; None without a name."""
    type_ = plain_type(type_)
    if pa.types.is_decimal(type_):
        return (
            f"decimal({type_.precision},{type_.scale})"
            if 0 <= type_.scale <= type_.precision
            else None
        )
    if is_text(type_) or is_bytes(type_):
        return "string" if is_text(type_) else "binary"
    if pa.types.is_timestamp(type_):
        unit = "ms" if type_.unit == "s" else type_.unit  # Parquet has no seconds
        return _NAMES[
            pa.timestamp(unit, None if type_.tz is None else "UTC")
        ]  # an instant is the same one in every zone
    if pa.types.is_date64(type_) or pa.types.is_time32(type_):
        return "date" if pa.types.is_date64(type_) else "time[ms]"
    return _NAMES.get(type_)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values, without dictionary encoding and extension types."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    return plain_type(type_.value_type) if pa.types.is_dictionary(type_) else type_


def is_text(type_: pa.DataType) -> bool:
    """Whether ``type_`` is a text type."""
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(type_: pa.DataType) -> bool:
    """Whether ``type_`` is a bytes type."""
    return type_ in (pa.binary(), pa.large_binary(), pa.binary_view()) or bool(
        pa.types.is_fixed_size_binary(type_)
    )


def is_list(type_: pa.DataType) -> bool:
    """Whether ``type_`` is a list type."""
    return isinstance(type_, (pa.ListType, pa.LargeListType, pa.FixedSizeListType))


def arrow_for_spark(type_: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark reads and that holds the same values.

    Spark has no unsigned numbers, float16, times of day or durations (they become their number of units), and no times finer than
    microseconds.
    """
    type_ = plain_type(type_)
    if type_ in _FOR_SPARK:
        return _FOR_SPARK[type_]
    types = pa.types
    if is_text(type_) or is_bytes(type_):
        return pa.string() if is_text(type_) else pa.binary()
    if types.is_time(type_) or types.is_duration(type_):
        return pa.int64()
    if types.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if is_list(type_):
        return pa.list_(pa.field("element", arrow_for_spark(type_.value_type)))
    if types.is_struct(type_):
        return pa.struct(
            [pa.field(each.name, arrow_for_spark(each.type), each.nullable) for each in type_]
        )
    if types.is_map(type_):
        return pa.map_(arrow_for_spark(type_.key_type), arrow_for_spark(type_.item_type))
    return type_


def arrow_type_of_dtype(dtype: FieldDtype) -> pa.DataType:
    """The default type for scalars of a dtype.

    Raises:
        ConfigError: Parquet has no such scalars.
    """
    if dtype is Decimal:
        return pa.decimal128(38, 18)
    dtype = numpy_dtype(dtype)
    if dtype.kind in "US":
        return pa.string() if dtype.kind == "U" else pa.binary()
    with contextlib.suppress(KeyError, pa.ArrowNotImplementedError, pa.ArrowInvalid):
        if dtype.kind not in "mM":
            return pa.from_numpy_dtype(dtype)
        unit, number = np.datetime_data(dtype)
        if number == 1:
            return pa.duration(_DURATION_UNITS[unit]) if dtype.kind == "m" else _TIMES[unit]
    raise ConfigError(
        f"Parquet has no scalars of dtype {dtype}; use another unit, or a codec such as NdarrayCodec()"
    )


def kind_of(dtype: FieldDtype) -> str:
    """The kind of a dtype, in which all numbers, and text and bytes, are of one kind."""
    kind = "f" if dtype is Decimal else numpy_dtype(dtype).kind
    return {"b": "f", "i": "f", "u": "f", "S": "U"}.get(kind, kind)


def dtype_of_arrow(type_: pa.DataType) -> FieldDtype:
    """The dtype of values of a scalar type; object if numpy has none."""
    type_ = plain_type(type_)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return dtype_of_numbers(type_)
    if pa.types.is_decimal(type_):
        return Decimal
    if is_text(type_) or is_bytes(type_):
        return np.dtype(np.str_ if is_text(type_) else np.bytes_)
    if pa.types.is_date(type_):
        return np.dtype("datetime64[D]")
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_) or pa.types.is_duration(type_):
        return np.dtype(f"{'M' if pa.types.is_timestamp(type_) else 'm'}8[{type_.unit}]")
    return np.dtype(object)


def dtype_of_numbers(type_: pa.DataType) -> np.dtype[Any]:
    """The dtype of a type of numbers or booleans, without pandas, which ``to_pandas_dtype`` imports."""
    name = str(type_)
    return np.dtype({"halffloat": "float16", "float": "float32"}.get(name, name))


def check_dtype(dtype: npt.DTypeLike | type[Decimal]) -> FieldDtype:
    """Check and normalize a dtype; lengths of text and bytes are dropped.

    Raises:
        ConfigError: ``dtype`` is not a dtype of a field.
    """
    if dtype is Decimal or (isinstance(dtype, str) and dtype == "Decimal"):
        return Decimal
    try:
        if dtype is None:  # numpy would return float64
            raise TypeError
        checked: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy raises these for invalid texts
        raise ConfigError(
            f"the dtype of a field must be a dtype of numpy or decimal.Decimal, got {dtype!r:.80}"
        ) from error
    if checked.kind in "UST":
        return np.dtype("S" if checked.kind == "S" else "U")
    if checked.kind == "V":
        raise ConfigError(
            f"a field cannot have the structured dtype {dtype!r:.80}; store each of its fields in its own field"
        )
    if checked.kind in "mM" and np.datetime_data(checked)[0] == "generic":
        return np.dtype(f"{checked.kind}8[ns]")  # the meaning of np.datetime64 in Petastorm
    return checked.newbyteorder("=")  # type: ignore[no-any-return]  # a dtype


def dtype_name(dtype: FieldDtype) -> str:
    """The name of a dtype, for :func:`check_dtype`."""
    if dtype is Decimal:
        return "Decimal"
    dtype = numpy_dtype(dtype)
    return {"U": "str", "S": "bytes", "O": "object"}.get(dtype.kind) or dtype.name


def numpy_dtype(dtype: FieldDtype) -> np.dtype[Any]:
    """The dtype of arrays of the values: object for decimals."""
    return dtype if isinstance(dtype, np.dtype) else np.dtype(object)


# ---------------------------------------------------------------------- nested types as JSON


def describe_type(type_: pa.DataType) -> Any:
    """A type as plain data: its name, ``{"list": …}``, ``{"struct": {name: …}}`` or ``{"map": [key, value]}``."""
    type_ = plain_type(type_)
    if is_list(type_):
        return {"list": describe_type(type_.value_type)}
    if pa.types.is_struct(type_):
        inner = [type_.field(number) for number in range(type_.num_fields)]
        return {"struct": {each.name: describe_type(each.type) for each in inner}}
    if pa.types.is_map(type_):
        return {"map": [describe_type(type_.key_type), describe_type(type_.item_type)]}
    name = name_of_arrow(type_)
    if name is None:
        raise ConfigError(f"Parquet does not support type {type_!s:.80}")
    return name


def type_described(content: Any, depth: int = 0) -> pa.DataType:
    """The type that :func:`describe_type` described.

    Raises:
        ConfigError: the type is unknown.
    """
    if depth > _MAX_DEPTH:
        raise ConfigError(f"a type is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(content, str):
        return arrow_type_named(content)
    if isinstance(content, Mapping) and len(content) == 1:
        ((kind, inner),) = content.items()
        if kind == "list":
            return pa.list_(type_described(inner, depth + 1))
        if (
            kind == "struct"
            and isinstance(inner, Mapping)
            and all(isinstance(name, str) for name in inner)
        ):
            return pa.struct(
                [pa.field(name, type_described(each, depth + 1)) for name, each in inner.items()]
            )
        if kind == "map" and isinstance(inner, (list, tuple)) and len(inner) == 2:
            return pa.map_(type_described(inner[0], depth + 1), type_described(inner[1], depth + 1))
    raise ConfigError(f"not a type of a column: {content!r:.80}")
