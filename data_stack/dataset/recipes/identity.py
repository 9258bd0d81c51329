"""Describes values of known kinds, for fingerprints, as plain data that no other value has.

Identity is more than equality. ``Decimal("1.10")`` equals ``Decimal("1.1")``, and noon in Berlin
the same instant in UTC, but a function may tell them apart, and a cache must not return one for the
other. So the type, dtype, time zone, digits, palette, index and names of a value belong to it.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import hashlib
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.recipes.library_identity import (
    Plain,
    image_identity,
    pandas_identity,
    portable_class_name,
    zone_identity,
)

#: Packages whose dtypes are known by their codes.
_PACKAGES_OF_SCALARS = ("numpy", "builtins")


def identity_of(value: Any, plain: Plain) -> dict[str, Any] | None:
    """Return plain data of a value of a known kind.

    Args:
        value: anything but numbers, text, lists, tuples and dicts of exactly these types, and
            arrays.
        plain: makes plain data of the parts of a value.

    Returns:
        A dict with one key; None for other kinds, and for values that plain data hold as they are.
    """
    value_type = type(value)
    describe = _DESCRIBE_BY_TYPE.get(value_type)
    if describe is not None:
        return describe(value, plain)

    if isinstance(value, tuple) and hasattr(value_type, "_fields"):
        items = [plain(item) for item in value]
        return {"named_tuple": [portable_class_name(value_type), list(value_type._fields), items]}
    if isinstance(value, enum.Enum):
        return {"member": [portable_class_name(value_type), value.name]}
    if isinstance(value, pathlib.PurePath):
        return {"path": [value_type.__name__, str(value)]}

    library = value_type.__module__.partition(".")[0]
    if library == "PIL":
        return image_identity(value)
    if library == "pandas":
        return pandas_identity(value, plain)
    if library == "zoneinfo" and getattr(value, "key", None) is not None:
        return {"zone": value.key}
    return None


def dtype_identity(dtype: np.dtype[Any]) -> str:
    """Return a name of a dtype that no other dtype has.

    A dtype of numpy's in the machine's order of bytes has the name of the little-endian dtype. The
    name of a dtype of another package begins with that package, as types such as ml_dtypes' floats
    of 8 bits look alike otherwise.
    """
    scalar_type = dtype.type
    if scalar_type.__module__.partition(".")[0] not in _PACKAGES_OF_SCALARS:
        return f"{scalar_type.__module__}.{scalar_type.__qualname__}"

    name = _little_endian_name(dtype)
    is_little_endian = dtype.isnative or dtype.str.startswith("<")
    return name if is_little_endian else f"{name} swapped"


def _little_endian_name(dtype: np.dtype[Any]) -> str:
    little_endian = dtype.newbyteorder("<")
    if dtype.names is not None or dtype.subdtype is not None:
        try:
            return str(little_endian.descr)
        except ValueError:  # fields that overlap
            return str(little_endian)
    if dtype.kind == "V":
        return str(little_endian.descr)
    name: str = little_endian.str
    return name


def array_class(array: Any) -> str | None:
    """Return the class of an array; None for numpy's own.

    An array of another class may compute otherwise, as a matrix does.
    """
    array_type = type(array)
    if array_type in (np.ndarray, np.memmap) or isinstance(array, np.generic):
        return None
    return portable_class_name(array_type)


# --------------------------------------------------------------------------- the standard library


def _describe_complex(value: complex, plain: Plain) -> dict[str, Any]:
    return {"complex": [plain(value.real), plain(value.imag)]}


def _describe_date(value: datetime.date, plain: Plain) -> dict[str, Any]:
    return {"date": value.isoformat()}


def _describe_time(value: datetime.time | datetime.datetime, plain: Plain) -> dict[str, Any]:
    zone = None if value.tzinfo is None else zone_identity(value.tzinfo, plain)
    wall_time = value.replace(tzinfo=None, fold=0).isoformat()
    return {type(value).__name__: [wall_time, value.fold, zone]}


def _describe_timezone(value: datetime.timezone, plain: Plain) -> dict[str, Any]:
    return {"zone": zone_identity(value, plain)}


def _describe_timedelta(value: datetime.timedelta, plain: Plain) -> dict[str, Any]:
    return {"timedelta": [value.days, value.seconds, value.microseconds]}


def _describe_decimal(value: decimal.Decimal, plain: Plain) -> dict[str, Any]:
    sign, digits, exponent = value.as_tuple()
    text = "".join(str(digit) for digit in digits)
    return {"decimal": [sign, text, exponent]}


def _describe_fraction(value: fractions.Fraction, plain: Plain) -> dict[str, Any]:
    return {"fraction": [value.numerator, value.denominator]}


def _describe_uuid(value: uuid.UUID, plain: Plain) -> dict[str, Any]:
    return {"uuid": value.hex}


def _describe_pattern(value: re.Pattern[Any], plain: Plain) -> dict[str, Any]:
    return {"pattern": [plain(value.pattern), value.flags]}


def _describe_bytearray(value: bytearray, plain: Plain) -> dict[str, Any]:
    return {"bytearray": hashlib.sha256(value).hexdigest()}


def _describe_frozenset(value: frozenset[Any], plain: Plain) -> dict[str, Any]:
    items = [plain(item) for item in value]
    return {"frozenset": sorted(items, key=canonical_json)}


def _describe_deque(value: collections.deque[Any], plain: Plain) -> dict[str, Any]:
    return {"deque": [value.maxlen, [plain(item) for item in value]]}


def _describe_mapping(value: Any, plain: Plain) -> dict[str, Any]:
    """Describe a dict of a class of the standard library."""
    items = [[plain(key), plain(item)] for key, item in value.items()]
    default_factory = None
    if type(value) is collections.defaultdict:
        default_factory = plain(value.default_factory)
    return {"mapping": [portable_class_name(type(value)), items, default_factory]}


def _describe_singleton(value: Any, plain: Plain) -> dict[str, Any]:
    return {"singleton": repr(value)}


#: Describes a value of exactly this type.
_DESCRIBE_BY_TYPE: dict[type, Callable[[Any, Plain], dict[str, Any]]] = {
    complex: _describe_complex,
    datetime.date: _describe_date,
    datetime.datetime: _describe_time,
    datetime.time: _describe_time,
    datetime.timezone: _describe_timezone,
    datetime.timedelta: _describe_timedelta,
    decimal.Decimal: _describe_decimal,
    fractions.Fraction: _describe_fraction,
    uuid.UUID: _describe_uuid,
    re.Pattern: _describe_pattern,
    bytearray: _describe_bytearray,
    frozenset: _describe_frozenset,
    collections.deque: _describe_deque,
    collections.OrderedDict: _describe_mapping,
    collections.defaultdict: _describe_mapping,
    collections.Counter: _describe_mapping,
    type(Ellipsis): _describe_singleton,
    type(NotImplemented): _describe_singleton,
}
