"""Maps the types of columns between names (Spark's ``simpleString``), Arrow, numpy and JSON."""

from __future__ import annotations

import contextlib
import math
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
from data_stack.values.dtype_texts import parse_dtype

#: The dtype of a field: a dtype of numpy, or Decimal. Structs, maps and nested lists have the dtype
#: ``object``.
FieldDtype: TypeAlias = "np.dtype[Any] | type[Decimal]"


@dataclass(frozen=True, init=False)
class FieldLike:
    """The attributes of a field that codecs use.

    Codecs are imported by :class:`~data_stack.formats.parquet.schema.Field`, which documents the
    attributes. So they cannot import it, and name this base class instead.
    """

    name: str
    dtype: FieldDtype
    shape: tuple[int | None, ...]
    nullable: bool


#: Scalar types by name. The names are Spark's if Spark has the type. A ``timestamp`` is an instant
#: in UTC, a ``timestamp_ntz`` is a local time ("no time zone").
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

#: Matches the name of a type of decimals.
_DECIMAL_NAME: Final = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")

#: The maximum number of digits of a decimal in 128 and in 256 bits.
_MAX_DIGITS_OF_DECIMAL128: Final = 38
_MAX_DIGITS_OF_DECIMAL256: Final = 76

#: For scalar types that Spark does not have: a type of Spark that holds the same values.
_TYPE_FOR_SPARK: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}

#: The maximum number of levels of a nested type, as in pyarrow; below Python's recursion limit.
_MAX_DEPTH: Final = 100
#: The elements of a tensor are a list of fixed size, which Arrow counts in 32 bits.
_MAX_ELEMENTS: Final = 1 << 31

#: The types that hold numpy's ``datetime64`` exactly, by its unit.
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

#: The units of Arrow's durations that hold numpy's ``timedelta64`` exactly, by its unit.
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
    """Return Arrow's type for a name.

    Args:
        name: a name such as ``"bigint"`` or ``"decimal(10,3)"``, or an object whose text is a name.

    Raises:
        ConfigError: the type is unknown.
    """
    text = str(name)
    if _DECIMAL_NAME.fullmatch(text):
        return _decimal_named(text)
    if text not in _TYPE_BY_NAME:
        suggestion = did_you_mean(text, _TYPE_BY_NAME)
        known = ", ".join(_TYPE_BY_NAME)
        raise ConfigError(
            f"unknown scalar type {name!r:.60}{suggestion}; "
            f"known: {known}, decimal(precision,scale)"
        )
    return _TYPE_BY_NAME[text]


def _decimal_named(name: str) -> pa.DataType:
    """Return the type for a name that matches :data:`_DECIMAL_NAME`.

    Raises:
        ConfigError: there is no such type of decimals.
    """
    digits, digits_after_point = name.removeprefix("decimal(").removesuffix(")").split(",")
    precision = int(digits)
    scale = int(digits_after_point)
    if not 1 <= precision <= _MAX_DIGITS_OF_DECIMAL256 or scale > precision:
        raise ConfigError(
            f"unknown scalar type {name!r}: the precision must be 1 to "
            f"{_MAX_DIGITS_OF_DECIMAL256} digits, and the scale at most the precision"
        )
    if precision <= _MAX_DIGITS_OF_DECIMAL128:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale)


def name_of_arrow(type_: pa.DataType) -> str | None:
    """Return the name of a scalar type, see :func:`arrow_type_named`.

    If the type has no name of its own, it is the name of a type that holds the same values; without
    one, None.
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
        return _name_of_timestamp(type_)
    if pa.types.is_date64(type_):
        return "date"
    if pa.types.is_time32(type_):
        return "time[ms]"
    return _NAME_BY_TYPE.get(type_)


def _name_of_timestamp(type_: pa.DataType) -> str:
    unit = type_.unit
    if unit == "s":  # which Parquet does not have
        unit = "ms"
    if type_.tz is None:
        return _NAME_BY_TYPE[pa.timestamp(unit)]
    # An instant is the same one in every time zone.
    return _NAME_BY_TYPE[pa.timestamp(unit, "UTC")]


# ---------------------------------------------------------------------- types of Arrow


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values, without dictionary encoding and extension types.

    Types inside of lists, structs and maps are unchanged.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    return type_


def is_text(type_: pa.DataType) -> bool:
    """Return whether the values of a type are text."""
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether the values of a type are bytes."""
    if type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return True
    return bool(pa.types.is_fixed_size_binary(type_))


def is_list(type_: pa.DataType) -> bool:
    """Return whether the values of a type are lists."""
    return isinstance(type_, (pa.ListType, pa.LargeListType, pa.FixedSizeListType))


def is_tensor(type_: pa.DataType | None) -> bool:
    """Return whether a type is that of Arrow's tensors of one shape."""
    return isinstance(type_, pa.FixedShapeTensorType)


def tensor_shape(type_: pa.FixedShapeTensorType) -> tuple[int, ...]:
    """Return the shape of the values of Arrow's tensors, whose axes may be permuted."""
    stored_shape = tuple(type_.shape)
    if type_.permutation is None:
        return stored_shape
    return tuple(stored_shape[axis] for axis in type_.permutation)


def arrow_for_spark(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type that Spark reads and that holds the same values.

    Spark has no unsigned numbers and no float16: they become wider numbers. It has no times of day
    and no durations: they become the number of their units, int64. It has no times finer than
    microseconds: finer ones are not held exactly.
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
        if type_.tz is None:
            return pa.timestamp("us")
        return pa.timestamp("us", "UTC")
    if is_list(type_):
        return pa.list_(pa.field("element", arrow_for_spark(type_.value_type)))
    if pa.types.is_struct(type_):
        fields = []
        for field in type_:
            fields.append(pa.field(field.name, arrow_for_spark(field.type), field.nullable))
        return pa.struct(fields)
    if pa.types.is_map(type_):
        return pa.map_(arrow_for_spark(type_.key_type), arrow_for_spark(type_.item_type))
    return type_


# ---------------------------------------------------------------------- dtypes


def arrow_type_of_dtype(dtype: FieldDtype) -> pa.DataType:
    """Return the type in which scalars of a dtype are stored by default.

    Raises:
        ConfigError: Parquet has no such scalars.
    """
    if dtype is Decimal:
        return pa.decimal128(38, 18)
    dtype = numpy_dtype(dtype)
    type_ = None
    if dtype.kind == "U":
        type_ = pa.string()
    elif dtype.kind == "S":
        type_ = pa.binary()
    elif dtype.kind in "mM":
        type_ = _type_of_times(dtype)
    else:
        with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):
            type_ = pa.from_numpy_dtype(dtype)
    if type_ is None:
        raise ConfigError(
            f"Parquet has no scalars of dtype {dtype}; "
            "use another unit, or a codec such as NdarrayCodec()"
        )
    return type_


def _type_of_times(dtype: np.dtype[Any]) -> pa.DataType | None:
    """Return the type that holds ``datetime64`` or ``timedelta64`` exactly; None without one."""
    unit, n_units = np.datetime_data(dtype)
    if n_units != 1:
        return None
    if dtype.kind == "M":
        return _TYPE_OF_TIMES.get(unit)
    if unit not in _UNIT_OF_DURATIONS:
        return None
    return pa.duration(_UNIT_OF_DURATIONS[unit])


def kind_of(dtype: FieldDtype) -> str:
    """Return the kind of a dtype, by which dtypes with comparable values are told.

    It is ``"f"`` for numbers, bools and Decimals, and ``"U"`` for text and bytes. Other dtypes have
    numpy's kind.
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
    """Return the dtype of the values of a type; ``object`` if numpy has none.

    An instant has the dtype of a local time: numpy's times have no zone.
    """
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
    """Return the dtype of a type of numbers or bools.

    pyarrow's ``to_pandas_dtype`` would import pandas.
    """
    name = str(type_)
    if name == "halffloat":
        return np.dtype(np.float16)
    if name == "float":
        return np.dtype(np.float32)
    return np.dtype(name)


def check_dtype(dtype: npt.DTypeLike | type[Decimal]) -> FieldDtype:
    """Check and normalize a dtype.

    Text and bytes lose their length, numbers and times become of the machine's byte order, and
    ``datetime64`` and ``timedelta64`` without a unit get nanoseconds, as in Petastorm.

    Args:
        dtype: the dtype, or its name, which may be a stranger's.

    Raises:
        ConfigError: ``dtype`` is not a dtype of a field.
    """
    if dtype is Decimal or (isinstance(dtype, str) and dtype == "Decimal"):
        return Decimal
    checked = _parse_dtype(dtype)
    if checked.kind == "S":
        return np.dtype(np.bytes_)
    if checked.kind in "UT":
        return np.dtype(np.str_)
    if checked.kind == "V":
        raise ConfigError(
            f"a field cannot have the structured dtype {dtype!r:.80}; "
            "store each of its fields in its own field"
        )
    if checked.kind in "mM":
        unit, n_units = np.datetime_data(checked)
        if unit == "generic":
            return np.dtype(f"{checked.kind}8[ns]")
        if n_units == 0:
            raise ConfigError(f"the dtype {dtype!r:.80} has units of no length")
    return checked.newbyteorder("=")  # type: ignore[no-any-return]  # a dtype


def _parse_dtype(dtype: Any) -> np.dtype[Any]:
    """Return numpy's dtype for what numpy takes as one, except None.

    Raises:
        ConfigError: it is not a dtype.
    """
    if dtype is None:  # numpy would return float64
        raise _no_dtype_error(dtype, "None")
    try:
        return parse_dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # SyntaxError: for some texts
        raise _no_dtype_error(dtype, error) from error


def _no_dtype_error(dtype: Any, problem: object) -> ConfigError:
    return ConfigError(
        f"the dtype of a field must be a dtype of numpy or decimal.Decimal, got {dtype!r:.80}: "
        f"{problem}"
    )


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
    """Return numpy's dtype for arrays of the values: that of the field, ``object`` for Decimal."""
    if isinstance(dtype, np.dtype):
        return dtype
    return np.dtype(object)


# ---------------------------------------------------------------------- nested types as JSON


def describe_type(type_: pa.DataType) -> Any:
    """Return a type as plain data, for :func:`type_described`.

    It is the name of a scalar type, ``{"list": element}``, ``{"struct": {name: field}}``,
    ``{"map": [key, value]}`` or ``{"tensor": [element, shape]}``. If the axes of a tensor are
    permuted, a third item is the permutation.

    Raises:
        ConfigError: a type has no name, or two fields of a struct have one name.
    """
    if is_tensor(type_):
        return {"tensor": _describe_tensor(type_)}
    type_ = plain_type(type_)
    if is_list(type_):
        return {"list": describe_type(type_.value_type)}
    if pa.types.is_struct(type_):
        return {"struct": _describe_fields(type_)}
    if pa.types.is_map(type_):
        return {"map": [describe_type(type_.key_type), describe_type(type_.item_type)]}
    name = name_of_arrow(type_)
    if name is None:
        advice = "leave the column out with schema="
        if "list_view" in str(type_):
            advice = "cast it to a list, by column.cast(pyarrow.list_(…)), or " + advice
        raise ConfigError(f"the type {type_!s:.80} is not supported: {advice}")
    return name


def _describe_fields(type_: pa.StructType) -> dict[str, Any]:
    """Return the types of a struct's fields by name, as plain data."""
    fields: dict[str, Any] = {}
    for field in type_:
        if field.name in fields:
            raise ConfigError(
                f"two fields of a struct have the name {field.name!r:.80}, "
                "and a dict can hold only one of them: leave the column out with schema="
            )
        fields[field.name] = describe_type(field.type)
    return fields


def _describe_tensor(type_: pa.FixedShapeTensorType) -> list[Any]:
    """Return element, stored shape and permutation of tensors, as plain data."""
    content = [describe_type(type_.value_type), list(type_.shape)]
    if type_.permutation is not None:
        content.append(list(type_.permutation))
    return content


def type_described(content: Any, depth: int = 0) -> pa.DataType:
    """Return the type that :func:`describe_type` described.

    Args:
        content: the description, which may be a stranger's.
        depth: number of types that contain this one.

    Raises:
        ConfigError: the type is unknown.
    """
    if depth > _MAX_DEPTH:
        raise ConfigError(f"a type is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(content, str):
        return arrow_type_named(content)
    if not isinstance(content, Mapping) or len(content) != 1:
        raise _unknown_type_error(content)
    ((kind, inner),) = content.items()
    if kind == "list":
        return pa.list_(type_described(inner, depth + 1))
    if kind == "struct":
        return _struct_described(inner, depth)
    if kind == "map":
        return _map_described(inner, depth)
    if kind == "tensor":
        return _tensor_described(inner, depth)
    raise _unknown_type_error(content)


def _struct_described(content: Any, depth: int) -> pa.DataType:
    """Return the type of a struct whose fields are described by name."""
    if not isinstance(content, Mapping):
        raise _unknown_type_error({"struct": content})
    fields = []
    for name, content_of_field in content.items():
        if not isinstance(name, str):
            raise _unknown_type_error({"struct": content})
        fields.append(pa.field(name, type_described(content_of_field, depth + 1)))
    return pa.struct(fields)


def _map_described(content: Any, depth: int) -> pa.DataType:
    """Return the type of a map whose key and value are described in a list."""
    if not isinstance(content, (list, tuple)) or len(content) != 2:
        raise _unknown_type_error({"map": content})
    key, item = content
    return pa.map_(type_described(key, depth + 1), type_described(item, depth + 1))


def _tensor_described(content: Any, depth: int) -> pa.DataType:
    """Return the type of tensors whose element, shape and permutation are in a list."""
    error = _unknown_type_error({"tensor": content})
    if not isinstance(content, (list, tuple)) or len(content) not in (2, 3):
        raise error
    element, shape, *permutations = content
    for axes in (shape, *permutations):
        if not isinstance(axes, (list, tuple)) or len(axes) != len(shape):
            raise error
        if not all(type(size) is int and 0 <= size < _MAX_ELEMENTS for size in axes):
            raise error
    if math.prod(shape) >= _MAX_ELEMENTS:
        raise error
    permutation = permutations[0] if permutations else None
    if permutation is not None and sorted(permutation) != list(range(len(shape))):
        raise error
    return pa.fixed_shape_tensor(
        type_described(element, depth + 1), tuple(shape), permutation=permutation
    )


def _unknown_type_error(content: Any) -> ConfigError:
    return ConfigError(f"not a type of a column: {content!r:.80}")
