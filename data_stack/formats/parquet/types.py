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

#: The dtype of a field: a dtype of numpy (``object`` for any values), or Decimal.
FieldDtype: TypeAlias = "np.dtype[Any] | type[Decimal]"


@dataclass(frozen=True, init=False)
class FieldLike:
    """What codecs need to know of a field.

    :class:`~data_stack.formats.parquet.schema.Field` documents each attribute.
    """

    name: str
    dtype: FieldDtype
    shape: tuple[int | None, ...]
    nullable: bool


#: Scalar types by their names: Spark's names, and those of further types of Parquet. A timestamp is
#: an instant (UTC), a timestamp_ntz is local time.
_TYPE_BY_NAME: Final[dict[str, pa.DataType]] = {
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
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "timestamp[ms]": pa.timestamp("ms", "UTC"),
    "timestamp[ns]": pa.timestamp("ns", "UTC"),
    "timestamp_ntz[ms]": pa.timestamp("ms"),
    "timestamp_ntz[ns]": pa.timestamp("ns"),
    "time[ms]": pa.time32("ms"),
    "time[us]": pa.time64("us"),
    "time[ns]": pa.time64("ns"),
    "duration[s]": pa.duration("s"),
    "duration[ms]": pa.duration("ms"),
    "duration[us]": pa.duration("us"),
    "duration[ns]": pa.duration("ns"),
    "void": pa.null(),
}

_NAME_BY_TYPE: Final = {type_: name for name, type_ in _TYPE_BY_NAME.items()}

#: The name of a type of decimals.
_DECIMAL_NAME: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")

#: The maximum number of digits of a decimal in 128 and in 256 bits.
_MAX_DIGITS_OF_DECIMAL128: Final = 38
_MAX_DIGITS_OF_DECIMAL256: Final = 76

#: The types with the same values for scalar types that Spark lacks.
_TYPE_FOR_SPARK: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}

#: The maximum number of levels of a nested type, below Python's recursion limit.
_MAX_DEPTH: Final = 100

#: The types that hold points in time of numpy exactly, by their units.
_TYPE_OF_TIMES: Final = {
    "Y": pa.date32(),
    "M": pa.date32(),
    "W": pa.date32(),
    "D": pa.date32(),
    "h": pa.timestamp("ms"),
    "m": pa.timestamp("ms"),
    "s": pa.timestamp("ms"),
    "ms": pa.timestamp("ms"),
    "us": pa.timestamp("us"),
    "ns": pa.timestamp("ns"),
}

#: The units of Arrow that hold durations of numpy exactly, by their units.
_UNIT_OF_DURATIONS: Final = {
    "W": "s",
    "D": "s",
    "h": "s",
    "m": "s",
    "s": "s",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
}


# ---------------------------------------------------------------------- names


def arrow_type_named(name: Any) -> pa.DataType:
    """Return Arrow's type for a name such as ``"bigint"`` or ``"decimal(10,3)"``.

    Raises:
        ConfigError: the type is unknown.
    """
    text = str(name)
    decimal_type = _decimal_named(text)
    if decimal_type is not None:
        return decimal_type
    if text not in _TYPE_BY_NAME:
        suggestion = did_you_mean(text, _TYPE_BY_NAME)
        known = ", ".join(_TYPE_BY_NAME)
        raise ConfigError(
            f"unknown scalar type {name!r:.60}{suggestion}; "
            f"known: {known}, decimal(precision,scale)"
        )
    return _TYPE_BY_NAME[text]


def _decimal_named(name: str) -> pa.DataType | None:
    """Return the type for a name such as ``"decimal(10,3)"``; None if it is no such name."""
    match = _DECIMAL_NAME.fullmatch(name)
    if match is None:
        return None
    precision = int(match[1])
    scale = int(match[2])
    if not 1 <= precision <= _MAX_DIGITS_OF_DECIMAL256 or scale > precision:
        return None
    if precision <= _MAX_DIGITS_OF_DECIMAL128:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale)


def name_of_arrow(type_: pa.DataType) -> str | None:
    """Return the name of an Arrow scalar type, or of a type with the same values.

    Returns:
        None if the type has no name.
    """
    type_ = plain_type(type_)
    if pa.types.is_decimal(type_):
        if not 0 <= type_.scale <= type_.precision:
            return None
        return f"decimal({type_.precision},{type_.scale})"
    if is_text(type_):
        return "string"
    if is_bytes(type_):
        return "binary"
    if pa.types.is_timestamp(type_):
        # Parquet has no seconds, and an instant is the same one in every zone.
        unit = "ms" if type_.unit == "s" else type_.unit
        zone = None if type_.tz is None else "UTC"
        return _NAME_BY_TYPE[pa.timestamp(unit, zone)]
    if pa.types.is_date64(type_):
        return "date"
    if pa.types.is_time32(type_):
        return "time[ms]"
    return _NAME_BY_TYPE.get(type_)


# ---------------------------------------------------------------------- types of Arrow


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values, without dictionary encoding and extension types."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    return type_


def is_text(type_: pa.DataType) -> bool:
    """Return whether a type is one of text."""
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether a type is one of bytes."""
    if type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return True
    return bool(pa.types.is_fixed_size_binary(type_))


def is_list(type_: pa.DataType) -> bool:
    """Return whether a type is one of lists."""
    return isinstance(type_, (pa.ListType, pa.LargeListType, pa.FixedSizeListType))


def arrow_for_spark(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type that Spark reads and that holds the same values.

    Spark has no unsigned numbers, float16, times of day or durations (they become their number of
    units), and no times finer than microseconds.
    """
    type_ = plain_type(type_)
    if type_ in _TYPE_FOR_SPARK:
        return _TYPE_FOR_SPARK[type_]
    if is_text(type_):
        return pa.string()
    if is_bytes(type_):
        return pa.binary()
    if pa.types.is_time(type_) or pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else "UTC"
        return pa.timestamp("us", zone)
    if is_list(type_):
        return pa.list_(pa.field("element", arrow_for_spark(type_.value_type)))
    if pa.types.is_struct(type_):
        fields = [
            pa.field(field.name, arrow_for_spark(field.type), field.nullable) for field in type_
        ]
        return pa.struct(fields)
    if pa.types.is_map(type_):
        return pa.map_(arrow_for_spark(type_.key_type), arrow_for_spark(type_.item_type))
    return type_


# ---------------------------------------------------------------------- dtypes


def arrow_type_of_dtype(dtype: FieldDtype) -> pa.DataType:
    """Return the default type for scalars of a dtype.

    Raises:
        ConfigError: Parquet has no such scalars.
    """
    if dtype is Decimal:
        return pa.decimal128(38, 18)
    dtype = numpy_dtype(dtype)
    if dtype.kind == "U":
        return pa.string()
    if dtype.kind == "S":
        return pa.binary()
    with contextlib.suppress(KeyError, pa.ArrowNotImplementedError, pa.ArrowInvalid):
        if dtype.kind not in "mM":
            return pa.from_numpy_dtype(dtype)
        unit, n_units = np.datetime_data(dtype)
        if n_units == 1 and dtype.kind == "m":
            return pa.duration(_UNIT_OF_DURATIONS[unit])
        if n_units == 1:
            return _TYPE_OF_TIMES[unit]
    raise ConfigError(
        f"Parquet has no scalars of dtype {dtype}; "
        "use another unit, or a codec such as NdarrayCodec()"
    )


def kind_of(dtype: FieldDtype) -> str:
    """Return the kind of a dtype: ``"f"`` for all numbers, ``"U"`` for text and bytes.

    Other dtypes have numpy's kind.
    """
    if dtype is Decimal:
        return "f"
    kind = numpy_dtype(dtype).kind
    if kind in "biuf":
        return "f"
    if kind in "SU":
        return "U"
    return kind


def dtype_of_arrow(type_: pa.DataType) -> FieldDtype:
    """Return the dtype of values of a scalar type; object if numpy has none."""
    type_ = plain_type(type_)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return dtype_of_numbers(type_)
    if pa.types.is_decimal(type_):
        return Decimal
    if is_text(type_):
        return np.dtype(np.str_)
    if is_bytes(type_):
        return np.dtype(np.bytes_)
    if pa.types.is_date(type_):
        return np.dtype("datetime64[D]")
    if pa.types.is_timestamp(type_):
        return np.dtype(f"datetime64[{type_.unit}]")
    if pa.types.is_time(type_) or pa.types.is_duration(type_):
        return np.dtype(f"timedelta64[{type_.unit}]")
    return np.dtype(object)


def dtype_of_numbers(type_: pa.DataType) -> np.dtype[Any]:
    """Return the dtype of a type of numbers or booleans.

    ``to_pandas_dtype`` would import pandas.
    """
    name = str(type_)
    if name == "halffloat":
        return np.dtype(np.float16)
    if name == "float":
        return np.dtype(np.float32)
    return np.dtype(name)


def check_dtype(dtype: npt.DTypeLike | type[Decimal]) -> FieldDtype:
    """Check and normalize a dtype; lengths of text and bytes are dropped.

    Raises:
        ConfigError: ``dtype`` is not a dtype of a field.
    """
    if dtype is Decimal or (isinstance(dtype, str) and dtype == "Decimal"):
        return Decimal
    try:
        if dtype is None:
            # numpy would return float64.
            raise TypeError
        checked: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy raises these for invalid texts
        raise ConfigError(
            f"the dtype of a field must be a dtype of numpy or decimal.Decimal, got {dtype!r:.80}"
        ) from error
    if checked.kind == "S":
        return np.dtype(np.bytes_)
    if checked.kind in "UT":
        return np.dtype(np.str_)
    if checked.kind == "V":
        raise ConfigError(
            f"a field cannot have the structured dtype {dtype!r:.80}; "
            "store each of its fields in its own field"
        )
    if checked.kind in "mM" and np.datetime_data(checked)[0] == "generic":
        # The meaning of np.datetime64 in Petastorm.
        return np.dtype(f"{checked.kind}8[ns]")
    return checked.newbyteorder("=")  # type: ignore[no-any-return]  # a dtype


def dtype_name(dtype: FieldDtype) -> str:
    """Return the name of a dtype, from which :func:`check_dtype` makes it again."""
    if dtype is Decimal:
        return "Decimal"
    dtype = numpy_dtype(dtype)
    if dtype.kind == "U":
        return "str"
    if dtype.kind == "S":
        return "bytes"
    if dtype.kind == "O":
        return "object"
    return str(dtype.name)


def numpy_dtype(dtype: FieldDtype) -> np.dtype[Any]:
    """Return the dtype of arrays of the values: object for decimals."""
    if isinstance(dtype, np.dtype):
        return dtype
    return np.dtype(object)


# ---------------------------------------------------------------------- nested types as JSON


def describe_type(type_: pa.DataType) -> Any:
    """Return a type as plain data.

    It is the name of a scalar type, ``{"list": …}``, ``{"struct": {name: …}}`` or
    ``{"map": [key, value]}``.

    Raises:
        ConfigError: a type has no name.
    """
    type_ = plain_type(type_)
    if is_list(type_):
        return {"list": describe_type(type_.value_type)}
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return {"struct": {field.name: describe_type(field.type) for field in fields}}
    if pa.types.is_map(type_):
        return {"map": [describe_type(type_.key_type), describe_type(type_.item_type)]}
    name = name_of_arrow(type_)
    if name is None:
        raise ConfigError(f"Parquet does not support type {type_!s:.80}")
    return name


def type_described(content: Any, depth: int = 0) -> pa.DataType:
    """Return the type that :func:`describe_type` described.

    Args:
        content: the description, which may be a stranger's.
        depth: how many types this one is nested in.

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
        if kind == "struct" and _is_by_name(inner):
            fields = []
            for name, content_of_field in inner.items():
                fields.append(pa.field(name, type_described(content_of_field, depth + 1)))
            return pa.struct(fields)
        if kind == "map" and isinstance(inner, (list, tuple)) and len(inner) == 2:
            key, item = inner
            return pa.map_(type_described(key, depth + 1), type_described(item, depth + 1))
    raise ConfigError(f"not a type of a column: {content!r:.80}")


def _is_by_name(content: Any) -> bool:
    """Return whether content is a mapping by text."""
    return isinstance(content, Mapping) and all(isinstance(name, str) for name in content)
