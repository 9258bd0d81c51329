"""Makes the results of the calls in Petastorm's pickles, without the calls.

A pickle makes an object by a call of a class or function with arguments. Each ``_make_…`` below
stands for one that Petastorm's pickles call: it checks the arguments and makes a stub or a plain
value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from data_stack_petastorm.pickles.known_globals import KnownGlobal
from data_stack_petastorm.pickles.stubs import (
    DictStub,
    DtypeStub,
    GlobalStub,
    ObjectStub,
    Refusal,
    SetStub,
)
from data_stack_petastorm.plain_times import plain_time

_Arguments: TypeAlias = tuple[Any, ...]

#: Roles of globals that are classes of objects.
_CLASS_ROLES: Final = ("schema", "field", "codec", "indexer", "spark type")

#: The attributes of a field, which is a named tuple.
_FIELD_ATTRIBUTES: Final = ("name", "numpy_dtype", "shape", "codec", "nullable")

#: The text of a decimal: a sign, digits around a point (at least one digit), and an exponent.
#: Parquet and Arrow keep at most 76 digits. Without limits, a short text such as "1e999999999"
#: could stand for a number of gigabytes.
_DECIMAL: Final = re.compile(
    r"[+-]?(?=\.?[0-9])[0-9]{0,100}\.?[0-9]{0,100}(?:[eE][+-]?[0-9]{1,2})?"
)

#: The code of a dtype: a byte order, which may be missing, and a kind with a size (group 1). numpy
#: itself would also parse structured dtypes of any size.
_DTYPE: Final = re.compile(r"[<>|=]?([biufcMm][0-9]{1,2}|[SU][0-9]{1,9})")


def result_of_call(known: KnownGlobal, arguments: _Arguments) -> Any:
    """Return what a call of a global would make, without calling it.

    Raises:
        Refusal, ValueError, TypeError, OverflowError, ArithmeticError: Petastorm's pickles do not
            contain such a call.
    """
    if known.role in _CLASS_ROLES:
        return _make_object(known, arguments)
    make_result = _FUNCTIONS.get(known.name)
    if make_result is None:  # a type of a field, or a base class
        raise _unknown_call(known.name)
    return make_result(arguments)


def _unknown_call(name: str) -> Refusal:
    """Return the error for a call with arguments that Petastorm does not write."""
    return Refusal(f"a call of {name} that Petastorm does not write")


# ----------------------------------------------------------------------------------------- objects


def _make_object(known: KnownGlobal, arguments: _Arguments) -> ObjectStub:
    """Make an object. A field takes its five values, other classes take no arguments.

    Raises:
        Refusal: the global is not a class of objects, or the number of arguments is another.
    """
    if known.role not in _CLASS_ROLES:
        raise Refusal(f"a new {known.name} with {len(arguments)} arguments")
    n_expected = len(_FIELD_ATTRIBUTES) if known.role == "field" else 0
    if len(arguments) != n_expected:
        raise Refusal(f"a new {known.name} with {len(arguments)} arguments")
    return ObjectStub(known, arguments)


def _make_reconstructed(arguments: _Arguments) -> ObjectStub:
    """Make an object as ``copyreg._reconstructor`` does, which protocols 0 and 1 call.

    Its arguments are the class, the base class that keeps the values, and these values.
    """
    match arguments:
        case [GlobalStub() as class_, GlobalStub() as base, values] if base.known.role == "base":
            is_field = class_.known.role == "field"
            if base.known.name == "tuple" and is_field and isinstance(values, tuple):
                return _make_object(class_.known, values)
            if base.known.name == "object" and values is None:
                return _make_object(class_.known, ())
    raise _unknown_call("_reconstructor")


def _make_restored(arguments: _Arguments) -> ObjectStub:
    """Make a field as pyspark before 3.5 did, which replaced the pickling of named tuples.

    The arguments are the name of the class, the names of the attributes, and their values.
    """
    match arguments:
        case ["UnischemaField", tuple() as names, tuple() as values]:
            if names == _FIELD_ATTRIBUTES:
                return _make_object(KnownGlobal("field", "UnischemaField"), values)
    raise _unknown_call("_restore")


# -------------------------------------------------------------------------------------- containers


def _make_ordered_dict(arguments: _Arguments) -> DictStub:
    """Make a dict: an empty one, or one of a list of pairs, as Python 2 pickles it."""
    if not arguments:
        return DictStub()
    match arguments:
        case [list() as pairs] if all(_is_pair(pair) for pair in pairs):
            return DictStub([(pair[0], pair[1]) for pair in pairs])
    raise _unknown_call("OrderedDict")


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2


def _make_default_dict(arguments: _Arguments) -> DictStub:
    """Make an empty dict, for ``defaultdict(set)``."""
    match arguments:
        case [GlobalStub() as factory] if factory.known.name == "set":
            return DictStub()
    raise _unknown_call("defaultdict")


def _make_set(arguments: _Arguments) -> SetStub:
    """Make a set: an empty one, or one of a list of items."""
    if not arguments:
        return SetStub()
    match arguments:
        case [list() as items]:
            return SetStub(items)
    raise _unknown_call("set")


# ----------------------------------------------------------------------------------- plain values


def _make_encoded(arguments: _Arguments) -> bytes:
    """Make bytes of a text as ``_codecs.encode`` does, which Python 3 calls in protocols 0 to 2."""
    match arguments:
        case [str() as text, "latin1"]:
            return text.encode("latin-1")
    raise _unknown_call("encode")


def _make_empty_bytes(arguments: _Arguments) -> bytes:
    """Make ``bytes()``, which Python 3 calls in protocols 0 to 2."""
    if arguments:
        raise _unknown_call("bytes")
    return b""


def _make_decimal(arguments: _Arguments) -> Decimal:
    """Make a decimal of its text."""
    match arguments:
        case [str() as text] if _DECIMAL.fullmatch(text):
            return Decimal(text)
    raise _unknown_call("Decimal")


def _make_time(time_class: Any, arguments: _Arguments) -> Any:
    """Make a date, time or datetime of its bytes, and of its time zone if there is one.

    Args:
        time_class: the class of the result.
        arguments: the bytes, and the time zone.
    """
    match arguments:
        case [bytes() | str() as state, *zones] if _are_timezones(zones):
            value = time_class(_bytes_of(state), *zones)
            # The constructor does not check the bytes (a 30th of February), but replace() does.
            return value.replace()
    raise _unknown_call(time_class.__name__)


def _are_timezones(values: list[Any]) -> bool:
    return all(isinstance(value, timezone) for value in values)


def _make_timedelta(arguments: _Arguments) -> timedelta:
    """Make a timedelta of its days, seconds and microseconds."""
    match arguments:
        case [int() as days, int() as seconds, int() as microseconds]:
            return timedelta(days, seconds, microseconds)
    raise _unknown_call("timedelta")


def _make_timezone(arguments: _Arguments) -> timezone:
    """Make a time zone of its offset from UTC."""
    match arguments:
        case [timedelta() as offset]:
            return timezone(offset)
    raise _unknown_call("timezone")


def _bytes_of(state: bytes | str) -> bytes:
    """Return bytes unchanged, and a ``str`` of Python 2 as the bytes that it had there."""
    if isinstance(state, str):
        return state.encode("utf-8", "surrogateescape")
    return state


# ------------------------------------------------------------------------------------------- numpy


def _make_dtype(arguments: _Arguments) -> DtypeStub:
    """Make a dtype of its code. The two arguments after it say how numpy aligns and copies it."""
    match arguments:
        case [str() as text, _, _]:
            dtype_match = _DTYPE.fullmatch(text)
            if dtype_match is not None:
                code = dtype_match[1]
                np.dtype(code)  # raises for a size that does not exist, such as "i3"
                return DtypeStub(code)
    raise _unknown_call("dtype")


def _make_scalar(arguments: _Arguments) -> Any:
    """Make a scalar of numpy, of its dtype and its bytes, as a value of Python."""
    match arguments:
        case [DtypeStub() as dtype, bytes() | str() as state]:
            return _python_value(dtype, _bytes_of(state))
    raise _unknown_call("scalar")


def _python_value(dtype: DtypeStub, raw: bytes) -> Any:
    """Return a scalar of numpy as a value of Python.

    Times that Python cannot hold exactly remain times of numpy.

    Raises:
        Refusal: the bytes are not one scalar of the dtype.
    """
    kind = dtype.code[0]
    size = int(dtype.code[1:])
    n_bytes = 4 * size if kind == "U" else size  # numpy keeps a character in 4 bytes
    lacks_unit = kind in "Mm" and not dtype.unit
    if len(raw) != n_bytes or lacks_unit:
        raise Refusal(f"{len(raw)} bytes of dtype {dtype.code}{dtype.unit}")
    if kind == "S":
        return raw.rstrip(b"\0")
    if kind == "U":
        encoding = "utf-32-be" if dtype.byte_order == ">" else "utf-32-le"
        return raw.decode(encoding).rstrip("\0")
    numpy_dtype = np.dtype(f"{dtype.byte_order}{dtype.code}{dtype.unit}")
    scalar = np.frombuffer(raw, numpy_dtype)[0]
    if isinstance(scalar, (np.datetime64, np.timedelta64)):
        return plain_time(scalar)
    if isinstance(scalar, np.longdouble):  # item() would return it unchanged
        return float(scalar)
    return scalar.item()


#: What makes the result of a call, by our name of the global that is called.
_FUNCTIONS: Final[dict[str, Callable[[_Arguments], Any]]] = {
    "_reconstructor": _make_reconstructed,
    "_restore": _make_restored,
    "OrderedDict": _make_ordered_dict,
    "defaultdict": _make_default_dict,
    "set": _make_set,
    "encode": _make_encoded,
    "bytes": _make_empty_bytes,
    "Decimal": _make_decimal,
    "date": partial(_make_time, date),
    "datetime": partial(_make_time, datetime),
    "time": partial(_make_time, time),
    "timedelta": _make_timedelta,
    "timezone": _make_timezone,
    "dtype": _make_dtype,
    "scalar": _make_scalar,
}
