"""What the calls in Petastorm's pickles would have made, made without calling them.

A pickle calls what it names. We have a rule of our own for each of the dozen functions and classes that Petastorm's pickles
call; each checks its arguments and gives an inert node or a plain value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.formats.parquet.pickled.known_globals import KnownGlobal
from data_stack.formats.parquet.pickled.nodes import (
    DictNode,
    DtypeNode,
    ListNode,
    ObjectNode,
    PythonTwoString,
    Refusal,
    SetNode,
    TupleNode,
    described,
)
from data_stack.formats.parquet.plain_times import plain_time

__all__ = ["build_dtype", "made_by_call", "new_object", "text_of"]

#: Parquet and Arrow keep at most 76 digits; without limits a short text could stand for a number of gigabytes.
_DECIMAL = re.compile(r"[+-]?[0-9]{0,100}\.?[0-9]{0,100}(?:[eE][+-]?[0-9]{1,2})?")
_DTYPE = re.compile(r"[<>|=]?([biufcSUMm])([0-9]{1,9})")
_NUMERIC_DTYPES = frozenset(
    {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "f16", "c8", "c16", "M8", "m8"}
)
_TIME_UNITS = frozenset({"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})
_FIELD_ATTRIBUTES = ("name", "numpy_dtype", "shape", "codec", "nullable")


def text_of(value: Any) -> str | None:
    """A str, or a Python 2 str that is text; None for anything else."""
    if isinstance(value, PythonTwoString):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def new_object(known: Any, arguments: tuple[Any, ...], offset: int) -> ObjectNode:
    """What ``known.__new__(known, *arguments)`` would be: only a field takes arguments, and it takes all five."""
    if not isinstance(known, KnownGlobal) or known.role not in ("schema", "field", "codec", "indexer", "spark_type"):
        raise Refusal(f"a new object of {described(known)}, which is no class that we know")
    expected = len(_FIELD_ATTRIBUTES) if known.role == "field" else 0
    if len(arguments) != expected:
        raise Refusal(f"a new {known.name} made from {len(arguments)} arguments instead of {expected}")
    return ObjectNode(offset, known, arguments)


def made_by_call(function: Any, arguments: tuple[Any, ...], offset: int) -> Any:
    """What ``function(*arguments)`` would be.

    Raises:
        Refusal: it is no function that we have a rule for, or its arguments are not those that Petastorm gives.
    """
    if not isinstance(function, KnownGlobal) or function.role != "function":
        raise Refusal(f"a call of {described(function)}, which is no function that we know")
    made = _RULES[function.name](arguments, offset)
    if made is _WRONG:
        given = ", ".join(described(argument) for argument in arguments[:8])
        raise Refusal(f"a call of {function.name} with arguments that Petastorm never gives it: ({given})")
    return made


_WRONG = object()


def _reconstructed(arguments: tuple[Any, ...], offset: int) -> Any:
    # How protocols 0 and 1 make an object: (its class, its base, what to make the base from).
    if len(arguments) != 3:
        return _WRONG
    known, base, state = arguments
    if not isinstance(known, KnownGlobal) or not isinstance(base, KnownGlobal) or base.role != "base":
        return _WRONG
    if base.name == "tuple" and known.role == "field" and isinstance(state, TupleNode):
        return new_object(known, state.items, offset)
    if base.name == "object" and known.role != "field" and state is None:
        return new_object(known, (), offset)
    return _WRONG


def _restored_named_tuple(arguments: tuple[Any, ...], offset: int) -> Any:
    # pyspark before 3.5 replaced the pickling of named tuples: (name, names of the attributes, their values).
    if len(arguments) != 3:
        return _WRONG
    name, attributes, values = arguments
    if text_of(name) != "UnischemaField" or not isinstance(attributes, TupleNode) or not isinstance(values, TupleNode):
        return _WRONG
    if tuple(map(text_of, attributes.items)) != _FIELD_ATTRIBUTES:
        return _WRONG
    return new_object(KnownGlobal("field", "UnischemaField"), values.items, offset)


def _ordered_dict(arguments: tuple[Any, ...], offset: int) -> Any:
    made = DictNode(offset)
    if not arguments:
        return made
    if len(arguments) != 1 or not isinstance(arguments[0], ListNode):
        return _WRONG
    for pair in arguments[0].give_away():  # Python 2: a list of lists of two
        if not isinstance(pair, (ListNode, TupleNode)) or len(pair.items) != 2:
            return _WRONG
        made.store(pair.items[0], pair.items[1])
    return made


def _default_dict(arguments: tuple[Any, ...], offset: int) -> Any:
    if len(arguments) != 1 or not isinstance(arguments[0], KnownGlobal) or arguments[0].name != "set":
        return _WRONG
    return DictNode(offset)


def _set(arguments: tuple[Any, ...], offset: int) -> Any:
    if not arguments:
        return SetNode(offset)
    if len(arguments) != 1 or not isinstance(arguments[0], ListNode):
        return _WRONG
    return SetNode(offset, arguments[0].give_away())


def _encoded(arguments: tuple[Any, ...], offset: int) -> Any:
    # How Python 3 writes bytes in protocols 0 to 2.
    if len(arguments) != 2 or not isinstance(arguments[0], str) or text_of(arguments[1]) != "latin1":
        return _WRONG
    try:
        return arguments[0].encode("latin-1")
    except UnicodeEncodeError:
        return _WRONG


def _bytes(arguments: tuple[Any, ...], offset: int) -> Any:
    return _WRONG if arguments else b""


def _decimal(arguments: tuple[Any, ...], offset: int) -> Any:
    text = text_of(arguments[0]) if len(arguments) == 1 else None
    if text is None or not _DECIMAL.fullmatch(text) or not any(character.isdigit() for character in text.lower().split("e")[0]):
        return _WRONG
    return Decimal(text)


def _dtype(arguments: tuple[Any, ...], offset: int) -> Any:
    text = text_of(arguments[0]) if len(arguments) == 3 else None
    match = _DTYPE.fullmatch(text) if text is not None else None
    if match is None:
        return _WRONG
    code, itemsize = match[1], int(match[2])
    if code == "U":
        itemsize *= 4  # its number counts characters
    elif code != "S" and f"{code}{itemsize}" not in _NUMERIC_DTYPES:
        return _WRONG
    return DtypeNode(offset, code, itemsize)


def build_dtype(dtype: DtypeNode, state: Any) -> None:
    """Give a dtype the rest of it: (version, byte order, no parts …, size, alignment, flags, the unit of a time)."""
    items = state.items if isinstance(state, TupleNode) else ()
    byte_order = text_of(items[1]) if 8 <= len(items) <= 9 else None
    if dtype.built or byte_order not in ("<", ">", "|", "=") or any(item is not None for item in items[2:5]):
        raise Refusal("a numpy dtype with parts, or described in a way we do not know")
    if dtype.code in "Mm":
        dtype.unit = _unit(items[8] if len(items) == 9 else None)
    dtype.byte_order, dtype.built = "<" if byte_order in ("|", "=") else byte_order, True


def _unit(metadata: Any) -> str:
    # ({}, (unit, count, numerator, denominator)); the unit is a str or bytes.
    parts = metadata.items[1] if isinstance(metadata, TupleNode) and len(metadata.items) == 2 else None
    if isinstance(parts, TupleNode) and len(parts.items) in (3, 4):
        unit, count = parts.items[:2]
        name = unit.decode("latin-1") if isinstance(unit, bytes) else unit
        if isinstance(name, str) and name in _TIME_UNITS and type(count) is int and 1 <= count < 2**31:
            return f"[{count}{name}]"
    raise Refusal("a numpy dtype of a time without a unit that we know")


def _numpy_scalar(arguments: tuple[Any, ...], offset: int) -> Any:
    if len(arguments) != 2 or not isinstance(arguments[0], DtypeNode) or not isinstance(arguments[1], bytes):
        return _WRONG
    dtype, raw = arguments
    if len(raw) != dtype.itemsize:
        return _WRONG
    if dtype.code == "S":
        return bytes(raw).rstrip(b"\0")  # also of a Python 2 str: here it is bytes for certain
    if dtype.code == "U":
        try:
            return raw.decode("utf-32-le" if dtype.byte_order == "<" else "utf-32-be").rstrip("\0")
        except UnicodeDecodeError:
            return _WRONG
    if dtype.code in "Mm" and not dtype.unit:
        return _WRONG
    if dtype.code == "f" and dtype.itemsize == 16:
        return _long_double(raw, dtype.byte_order)
    code = f"{dtype.byte_order}{dtype.code}{dtype.itemsize}{dtype.unit}"
    scalar = np.frombuffer(raw, np.dtype(code))[0]
    return plain_time(scalar) if isinstance(scalar, (np.datetime64, np.timedelta64)) else scalar.item()


def _long_double(raw: bytes, byte_order: str) -> Any:
    if byte_order != "<" or np.dtype(np.longdouble).itemsize != 16:
        return _WRONG
    return float(np.frombuffer(raw, np.longdouble)[0])


def _date(arguments: tuple[Any, ...], offset: int) -> Any:
    raw = _raw(arguments, 4)
    return _WRONG if raw is None else _checked(lambda: date(raw[0] * 256 + raw[1], raw[2], raw[3]))


def _datetime(arguments: tuple[Any, ...], offset: int) -> Any:
    zone = arguments[1] if len(arguments) == 2 else None
    raw = _raw(arguments[:1], 10)
    if raw is None or len(arguments) > 2 or not (zone is None or isinstance(zone, timezone)):
        return _WRONG
    micros = int.from_bytes(raw[7:], "big")
    fold = raw[2] >> 7  # its bit rides on the month's byte
    return _checked(
        lambda: datetime(raw[0] * 256 + raw[1], raw[2] & 127, raw[3], raw[4], raw[5], raw[6], micros, zone, fold=fold)
    )


def _time(arguments: tuple[Any, ...], offset: int) -> Any:
    raw = _raw(arguments, 6)
    if raw is None:
        return _WRONG
    return _checked(lambda: time(raw[0] & 127, raw[1], raw[2], int.from_bytes(raw[3:], "big"), fold=raw[0] >> 7))


def _timedelta(arguments: tuple[Any, ...], offset: int) -> Any:
    if len(arguments) != 3 or any(type(argument) is not int for argument in arguments):
        return _WRONG
    return _checked(lambda: timedelta(*arguments))


def _timezone(arguments: tuple[Any, ...], offset: int) -> Any:
    if len(arguments) != 1 or not isinstance(arguments[0], timedelta):
        return _WRONG
    return _checked(lambda: timezone(arguments[0]))


def _raw(arguments: tuple[Any, ...], length: int) -> bytes | None:
    value = arguments[0] if len(arguments) == 1 else None
    return value if isinstance(value, bytes) and len(value) == length else None


def _checked(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, OverflowError):  # a 30th of February
        return _WRONG


_RULES: dict[str, Callable[[tuple[Any, ...], int], Any]] = {
    "_reconstructor": _reconstructed,
    "_restore": _restored_named_tuple,
    "OrderedDict": _ordered_dict,
    "defaultdict": _default_dict,
    "set": _set,
    "encode": _encoded,
    "bytes": _bytes,
    "Decimal": _decimal,
    "dtype": _dtype,
    "scalar": _numpy_scalar,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "timedelta": _timedelta,
    "timezone": _timezone,
}
