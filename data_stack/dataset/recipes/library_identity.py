"""Values of Pillow, pandas and the libraries of time zones as plain data that no other value has.

No library is imported: a value is asked what it is.
"""

from __future__ import annotations

import datetime
import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Plain = Callable[[Any], Any]
"""Makes plain data of a value of any kind."""


def portable_class_name(cls: type) -> str:
    """Return the name of a class with its module.

    A class of the program has the same name in worker processes, where Python renames its module.
    """
    return f"{cls.__module__}.{cls.__qualname__}".replace("__mp_main__.", "__main__.")


def zone_identity(zone: Any, plain: Plain) -> Any:
    """Describe a time zone.

    A fixed zone has its offset and name, a zone of the database its key; other zones are described
    by ``plain``.
    """
    if type(zone) is datetime.timezone:
        return ["fixed", repr(zone)]
    library = type(zone).__module__.partition(".")[0]
    if library in ("pytz", "dateutil"):
        return [library, repr(zone)]
    return plain(zone)


# ------------------------------------------------------------------------------------------ Pillow


def image_identity(value: Any) -> dict[str, Any] | None:
    """Describe an image by its pixels, its mode, its palette and the notes of its file.

    Returns:
        Plain data; None for an object of another class of Pillow's.
    """
    image_class = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image_class is None or not isinstance(value, image_class):
        return None

    pixels = hashlib.sha256(value.tobytes()).hexdigest()
    palette = None
    if value.palette is not None:
        _mode, palette_bytes = value.palette.getdata()
        colors = bytes(palette_bytes)
        palette = [value.palette.mode, hashlib.sha256(colors).hexdigest()]
    form = [value.mode, list(value.size), value.format]
    # Notes of the file are the transparency, the resolution, and so on.
    notes = sorted((str(key), _note_text(note)) for key, note in value.info.items())
    pairs = [list(pair) for pair in notes]
    return {"image": [portable_class_name(type(value)), form, pixels, palette, pairs]}


def _note_text(note: Any) -> str:
    """Return a note in the file of an image as text; an object by its class."""
    text = repr(note)
    has_address = " at 0x" in text
    return portable_class_name(type(note)) if has_address else text


# ------------------------------------------------------------------------------------------ pandas


def pandas_identity(value: Any, plain: Plain) -> dict[str, Any] | None:
    """Describe a table, a series, an index, an array or a scalar of pandas.

    Returns:
        Plain data; None for an object of another class of pandas.
    """
    scalar = _scalar_identity(value, plain)
    if scalar is not None:
        return scalar
    if hasattr(value, "iloc"):
        is_table = value.ndim == 2
        return _frame_identity(value, plain) if is_table else _series_identity(value, plain)
    index = _index_identity(value, plain)
    if index is not None:
        return index
    is_array = hasattr(value, "dtype") and hasattr(value, "_from_sequence")
    if is_array:
        return {"pandas_array": _values_identity(value, plain)}
    return None


def _scalar_identity(value: Any, plain: Plain) -> dict[str, Any] | None:
    name = type(value).__name__
    if name in ("NaTType", "NAType"):
        return {"singleton": repr(value)}
    if name == "Timestamp":
        zone = None if value.tzinfo is None else zone_identity(value.tzinfo, plain)
        wall_time = value.tz_localize(None).isoformat()
        return {"timestamp": [wall_time, value.unit, value.fold, zone]}
    if name == "Timedelta":
        ticks = int(value.to_numpy().astype(np.int64))
        return {"pandas_timedelta": [ticks, value.unit]}
    if name == "Period":
        return {"period": [value.ordinal, value.freqstr]}
    if name == "Interval":
        return {"interval": [plain(value.left), plain(value.right), value.closed]}
    return None


def _frame_identity(frame: Any, plain: Plain) -> dict[str, Any]:
    class_name = portable_class_name(type(frame))
    names = plain(frame.columns)
    index = plain(frame.index)
    numbers = range(frame.shape[1])
    columns = [_values_identity(frame.iloc[:, number].array, plain) for number in numbers]
    return {"frame": [class_name, names, index, columns, plain(dict(frame.attrs))]}


def _series_identity(series: Any, plain: Plain) -> dict[str, Any]:
    class_name = portable_class_name(type(series))
    name = plain(series.name)
    index = plain(series.index)
    values = _values_identity(series.array, plain)
    return {"series": [class_name, name, index, values, plain(dict(series.attrs))]}


def _index_identity(value: Any, plain: Plain) -> dict[str, Any] | None:
    name = type(value).__name__
    if name == "RangeIndex":
        return {"index": [name, plain(value.name), [value.start, value.stop, value.step]]}
    if name == "MultiIndex":
        return {"index": [name, plain(list(value.names)), [plain(item) for item in value]]}
    is_index = hasattr(value, "is_monotonic_increasing") and hasattr(value, "get_indexer")
    if not is_index:
        return None
    frequency = getattr(value, "freqstr", None)
    return {"index": [name, plain(value.name), frequency, _values_identity(value.array, plain)]}


def _values_identity(array: Any, plain: Plain) -> Any:
    """Describe the values of a column with their dtype.

    Numbers and times are described as an array, categories with their codes, other values one by
    one.
    """
    dtype = array.dtype
    dtype_class = type(dtype).__name__
    dtype_text = f"{dtype_class} {dtype!r}"
    if isinstance(dtype, np.dtype):
        return [dtype_text, plain(array.to_numpy())]
    if dtype_class == "CategoricalDtype":
        categories = plain(array.categories)
        return [dtype_class, bool(dtype.ordered), categories, plain(np.asarray(array.codes))]
    if dtype_class == "DatetimeTZDtype":
        instants = array.tz_convert("UTC").tz_localize(None).to_numpy()
        return [dtype_text, zone_identity(dtype.tz, plain), plain(instants)]
    return [dtype_text, [plain(item) for item in array]]


def column_of_numbers(column: Any) -> npt.NDArray[Any] | None:
    """Return the numbers of a series of pandas, without its index and its name.

    As a column of samples, the series means the same without them.

    Returns:
        The numbers; None for other columns, and for a series of other values.
    """
    is_series = hasattr(column, "iloc") and getattr(column, "ndim", 0) == 1
    if not is_series or not isinstance(column.dtype, np.dtype):
        return None
    if column.dtype.kind not in "biufc":
        return None
    return np.asarray(column.to_numpy())
