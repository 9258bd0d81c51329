"""Values of known kinds as plain data that no other value has: what a fingerprint compares.

Identity is more than equality. ``Decimal("1.10")`` equals ``Decimal("1.1")``, and noon in Berlin the same instant in UTC, but a
function may tell them apart, and a cache must not give one for the other. So the type, dtype, time zone, digits, palette, index
and names of a value belong to it.
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
import sys
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json

#: Makes plain data of a value of any kind.
Plain = Callable[[Any], Any]

_PACKAGES_OF_SCALARS = ("numpy", "builtins")


def identity_of(value: Any, plain: Plain) -> dict[str, Any] | None:
    """Plain data of a value of a known kind, an object with one key; None of other kinds, and of what plain data have anyway.

    Args:
        value: anything but numbers, text, lists, tuples and dicts of exactly these types, and arrays.
        plain: makes plain data of the parts of a value.
    """
    kind = type(value)
    described = _BY_TYPE.get(kind)
    if described is not None:
        return described(value, plain)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        items = [plain(item) for item in value]
        return {"named_tuple": [_name_of(kind), list(kind._fields), items]}
    if isinstance(value, enum.Enum):
        return {"member": [_name_of(kind), value.name]}
    if isinstance(value, pathlib.PurePath):
        return {"path": [kind.__name__, str(value)]}
    library = kind.__module__.partition(".")[0]
    if library == "PIL":
        return _image(value, plain)
    if library == "pandas":
        return _of_pandas(value, plain)
    if library == "zoneinfo" and getattr(value, "key", None) is not None:
        return {"zone": value.key}
    return None


def dtype_identity(dtype: np.dtype[Any]) -> str:
    """The name of a dtype that no other has; of numpy's own in the machine's order as if it were little-endian.

    Without the name of their package, types such as ml_dtypes' 8-bit floats look alike.
    """
    little = dtype.newbyteorder("<")
    if dtype.type.__module__.partition(".")[0] not in _PACKAGES_OF_SCALARS:
        return f"{dtype.type.__module__}.{dtype.type.__qualname__}"
    text: str = little.str
    if dtype.names is not None or dtype.subdtype is not None:
        try:
            text = str(little.descr)
        except ValueError:  # fields that overlap
            text = str(little)
    elif dtype.kind == "V":
        text = str(little.descr)
    if dtype.isnative or dtype.str.startswith("<"):
        return text
    return f"{text} swapped"


def array_class(array: Any) -> str | None:
    """The class of an array, if it is another one than numpy's own; it may compute otherwise, as a matrix does."""
    kind = type(array)
    if kind in (np.ndarray, np.memmap) or isinstance(array, np.generic):
        return None
    return _name_of(kind)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".replace("__mp_main__.", "__main__.")


# ---------------------------------------------------------------------- the standard library


def _complex(value: complex, plain: Plain) -> dict[str, Any]:
    return {"complex": [plain(value.real), plain(value.imag)]}


def _date(value: datetime.date, plain: Plain) -> dict[str, Any]:
    return {"date": value.isoformat()}


def _time(value: datetime.time | datetime.datetime, plain: Plain) -> dict[str, Any]:
    zone = None if value.tzinfo is None else _zone(value.tzinfo, plain)
    kind = type(value).__name__
    return {kind: [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, zone]}


def _zone(zone: Any, plain: Plain) -> Any:
    """A time zone: a fixed one by its offset and name, one of the database by its key; others as their kind says."""
    if type(zone) is datetime.timezone:
        return ["fixed", repr(zone)]
    library = type(zone).__module__.partition(".")[0]
    if library in ("pytz", "dateutil"):
        return [library, repr(zone)]
    return plain(zone)


def _timezone(value: datetime.timezone, plain: Plain) -> dict[str, Any]:
    return {"zone": _zone(value, plain)}


def _timedelta(value: datetime.timedelta, plain: Plain) -> dict[str, Any]:
    return {"timedelta": [value.days, value.seconds, value.microseconds]}


def _decimal(value: decimal.Decimal, plain: Plain) -> dict[str, Any]:
    sign, digits, exponent = value.as_tuple()
    return {"decimal": [sign, "".join(map(str, digits)), exponent]}


def _fraction(value: fractions.Fraction, plain: Plain) -> dict[str, Any]:
    return {"fraction": [value.numerator, value.denominator]}


def _uuid(value: uuid.UUID, plain: Plain) -> dict[str, Any]:
    return {"uuid": value.hex}


def _pattern(value: re.Pattern[Any], plain: Plain) -> dict[str, Any]:
    return {"pattern": [plain(value.pattern), value.flags]}


def _bytearray(value: bytearray, plain: Plain) -> dict[str, Any]:
    return {"bytearray": hashlib.sha256(value).hexdigest()}


def _frozenset(value: frozenset[Any], plain: Plain) -> dict[str, Any]:
    return {"frozenset": sorted((plain(item) for item in value), key=canonical_json)}


def _deque(value: collections.deque[Any], plain: Plain) -> dict[str, Any]:
    return {"deque": [value.maxlen, [plain(item) for item in value]]}


def _pairs(value: Any, plain: Plain) -> dict[str, Any]:
    """A dict of a class of the standard library."""
    items = [[plain(key), plain(item)] for key, item in value.items()]
    made_by = plain(value.default_factory) if type(value) is collections.defaultdict else None
    return {"mapping": [_name_of(type(value)), items, made_by]}


def _singleton(value: Any, plain: Plain) -> dict[str, Any]:
    return {"singleton": repr(value)}


_BY_TYPE: dict[type, Callable[[Any, Plain], dict[str, Any]]] = {
    complex: _complex,
    datetime.date: _date,
    datetime.datetime: _time,
    datetime.time: _time,
    datetime.timezone: _timezone,
    datetime.timedelta: _timedelta,
    decimal.Decimal: _decimal,
    fractions.Fraction: _fraction,
    uuid.UUID: _uuid,
    re.Pattern: _pattern,
    bytearray: _bytearray,
    frozenset: _frozenset,
    collections.deque: _deque,
    collections.OrderedDict: _pairs,
    collections.defaultdict: _pairs,
    collections.Counter: _pairs,
    type(Ellipsis): _singleton,
    type(NotImplemented): _singleton,
}


# ---------------------------------------------------------------------- other libraries


def _image(value: Any, plain: Plain) -> dict[str, Any] | None:
    """An image of Pillow's: its pixels, mode and palette, and what its file says besides, as transparency."""
    image_class = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image_class is None or not isinstance(value, image_class):
        return None
    pixels = hashlib.sha256(value.tobytes()).hexdigest()
    palette = None
    if value.palette is not None:
        mode = value.palette.mode
        palette = [mode, hashlib.sha256(bytes(value.palette.getdata()[1])).hexdigest()]
    info = sorted((str(key), _note(item)) for key, item in value.info.items())
    about = [value.mode, list(value.size), value.format]
    return {"image": [_name_of(type(value)), about, pixels, palette, list(map(list, info))]}


def _note(item: Any) -> str:
    """What the file of an image says, such as a resolution or a text of one of Pillow's classes."""
    text = repr(item)
    return _name_of(type(item)) if " at 0x" in text else text


def _of_pandas(value: Any, plain: Plain) -> dict[str, Any] | None:
    """A table, series, index or scalar of pandas; None of its other classes."""
    name = type(value).__name__
    if name in ("NaTType", "NAType"):
        return {"singleton": repr(value)}
    if name == "Timestamp":
        zone = None if value.tzinfo is None else _zone(value.tzinfo, plain)
        return {"timestamp": [value.tz_localize(None).isoformat(), value.unit, value.fold, zone]}
    if name == "Timedelta":
        return {"pandas_timedelta": [int(value.to_numpy().astype(np.int64)), value.unit]}
    if name == "Period":
        return {"period": [value.ordinal, value.freqstr]}
    if name == "Interval":
        return {"interval": [plain(value.left), plain(value.right), value.closed]}
    if hasattr(value, "iloc") and value.ndim == 2:
        columns = [
            _values_of_pandas(value.iloc[:, place].array, plain) for place in range(value.shape[1])
        ]
        parts = [_name_of(type(value)), plain(value.columns), plain(value.index), columns]
        return {"frame": [*parts, plain(dict(value.attrs))]}
    if hasattr(value, "iloc"):
        parts = [_name_of(type(value)), plain(value.name), plain(value.index)]
        return {"series": [*parts, _values_of_pandas(value.array, plain), plain(dict(value.attrs))]}
    if name == "RangeIndex":
        return {"index": [name, plain(value.name), [value.start, value.stop, value.step]]}
    if name == "MultiIndex":
        return {"index": [name, plain(list(value.names)), [plain(item) for item in value]]}
    if hasattr(value, "is_monotonic_increasing") and hasattr(value, "get_indexer"):
        frequency = getattr(value, "freqstr", None)
        values = _values_of_pandas(value.array, plain)
        return {"index": [name, plain(value.name), frequency, values]}
    if hasattr(value, "dtype") and hasattr(value, "_from_sequence"):  # an array of pandas
        return {"pandas_array": _values_of_pandas(value, plain)}
    return None


def _values_of_pandas(array: Any, plain: Plain) -> Any:
    """The values of a column with its dtype: numbers and times as an array, categories with their codes, others one by one."""
    dtype = array.dtype
    text = f"{type(dtype).__name__} {dtype!r}"
    if isinstance(dtype, np.dtype):
        return [text, plain(array.to_numpy())]
    kind = type(dtype).__name__
    if kind == "CategoricalDtype":
        return [kind, bool(dtype.ordered), plain(array.categories), plain(np.asarray(array.codes))]
    if kind == "DatetimeTZDtype":
        instants: npt.NDArray[Any] = array.tz_convert("UTC").tz_localize(None).to_numpy()
        return [text, _zone(dtype.tz, plain), plain(instants)]
    return [text, [plain(item) for item in array]]


def column_of_numbers(column: Any) -> npt.NDArray[Any] | None:
    """The numbers of a series that is a column of samples, whose index and name say nothing; None of anything else."""
    is_series = hasattr(column, "iloc") and getattr(column, "ndim", 0) == 1
    if not is_series or not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "biufc":
        return None
    return np.asarray(column.to_numpy())
