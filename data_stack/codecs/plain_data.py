"""Converts values to JSON data and back, without loss.

Recipes, fitted encoders, saved splits and records of Python values are stored in this form.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from data_stack.codecs.arrays import ArrayCodec
from data_stack.codecs.codec import Codec
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import objects

#: The codec of arrays, whose records are stored as base64.
_ARRAYS = ArrayCodec()

#: The maximum number of lists and objects around a value.
_MAX_DEPTH = 100

#: The maximum number of dimensions of an array of objects: that of numpy before 2.0.
_MAX_DIMENSIONS = 32

#: Integers of more bits are written in hexadecimal digits. Python refuses decimal texts of
#: thousands of digits, which take quadratic time.
_MAX_DECIMAL_BITS = 8192

#: Messages show objects of at most this number of values or characters.
_MAX_SHOWN = 80

#: The kinds of dtypes of arrays that can be written; ``O`` if their objects can be.
_ARRAY_KINDS = "biufcmMSUO"

#: Returns a value of a further type as an object with one key; None for values of other types.
_Special: TypeAlias = Callable[[Any], dict[str, Any] | None]

#: Makes plain data of a value at a depth, the number of lists and objects around it.
_ToPlain: TypeAlias = Callable[[Any, int], Any]

#: Makes a value of plain data that stand within an object.
_FromPlain: TypeAlias = Callable[[Any], Any]


# ------------------------------------------------------------------ values to plain data


def to_plain(value: Any, special: _Special | None = None, first: _Special | None = None) -> Any:
    """Return ``value`` as plain data, which JSON holds.

    Plain data are None, booleans, integers, finite floats, strings, lists, and objects with one
    key, which names a type.

    Args:
        value: a value of these types, a tuple, dict, set, range, slice, bytes, or a numpy scalar or
            array (arrays of objects too, if these are such values), nested at will.
        special: converts further types to an object with one key; returns None for others.
        first: converts values before all other rules, except None, booleans, integers, floats and
            strings; returns None for values that the other rules convert.

    Raises:
        ConfigError: a value of another type, or nested more than 100 levels deep.
    """

    def convert(value: Any, depth: int) -> Any:
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            if value.bit_length() > _MAX_DECIMAL_BITS:
                return {"int": hex(value)}
            return value
        if type(value) is float:
            if not math.isfinite(value):
                return {"float": str(value)}
            return value
        if depth > _MAX_DEPTH:
            raise ConfigError(
                f"values nested more than {_MAX_DEPTH} levels deep cannot be written as plain "
                f"data: {shorten(value)}"
            )
        if first is not None:
            plain = first(value)
            if plain is not None:
                return plain
        if isinstance(value, list):
            return [convert(item, depth + 1) for item in value]
        plain = _plain_object(value, convert, depth + 1)
        if plain is None and special is not None:
            plain = special(value)
        if plain is not None:
            return plain
        if isinstance(value, tuple):  # a named tuple
            return convert(tuple(value), depth)
        value_type = type(value)
        raise ConfigError(
            f"a {value_type.__module__}.{value_type.__qualname__} cannot be written as plain data: "
            f"{shorten(value)}"
        )

    return convert(value, 0)


def _plain_object(value: Any, convert: _ToPlain, depth: int) -> dict[str, Any] | None:
    """Return a value as an object with one key; None if plain data lack the type of the value.

    Args:
        value: not a list, and not of a type that JSON has.
        convert: makes plain data of the values within ``value``.
        depth: the depth of these values.
    """
    is_array = isinstance(value, (np.ndarray, np.generic))
    if is_array and value.dtype.kind in _ARRAY_KINDS:
        if isinstance(value, np.ma.MaskedArray):  # whose mask would be lost
            return None
        return _plain_array(value, convert, depth)
    if type(value) is tuple:
        return {"tuple": [convert(item, depth) for item in value]}
    if isinstance(value, Mapping):
        pairs = [[convert(key, depth), convert(item, depth)] for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, (set, frozenset)):
        items = [convert(item, depth) for item in value]
        return {"set": sorted(items, key=canonical_json)}
    if isinstance(value, range):
        if (value.stop - value.start) // value.step > sys.maxsize:
            raise ConfigError(f"{shorten(value)} is too long to be plain data")
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return {"slice": [convert(end, depth) for end in ends]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": _to_base64(value)}
    return None


def _plain_array(value: Any, convert: _ToPlain, depth: int) -> dict[str, Any]:
    """Return a numpy array or scalar as an object with one key."""
    array = np.asarray(value)
    if array.dtype == object:
        plain_values = [convert(item, depth) for item in array.ravel().tolist()]
        return {"objects": {"shape": list(array.shape), "values": plain_values}}
    # The same text on all machines.
    little_endian = np.asarray(array, dtype=array.dtype.newbyteorder("<"))
    try:
        record = _ARRAYS.encode(little_endian)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{shorten(value)} cannot be written as plain data: {error}") from error
    if isinstance(value, np.generic):
        return {"scalar": _to_base64(record)}
    return {"array": _to_base64(record)}


def _to_base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")


# ------------------------------------------------------------------ plain data to values


def from_plain(data: Any, special: Mapping[str, Callable[[Any], Any]] | None = None) -> Any:
    """Return the value that :func:`to_plain` wrote; dicts, lists and arrays are new objects.

    Sets come back as frozensets, bytearrays as bytes, named tuples as tuples, arrays little-endian
    and in C order.

    Args:
        data: plain data, also from untrusted files. The result takes at most a few times the memory
            of ``data``.
        special: functions that make values of further types, by key. Their errors are raised
            unchanged.

    Raises:
        ConfigError: ``data`` is not of that form, or nested more than 100 levels deep.
    """

    def convert(data: Any, depth: int) -> Any:
        if data is None or type(data) in (bool, int, str):
            return data
        if type(data) is float:
            if not math.isfinite(data):
                raise ConfigError(f"{data} is not plain data; write {{'float': '{data}'}}")
            return data
        if depth > _MAX_DEPTH:
            raise ConfigError(
                f"plain data nested more than {_MAX_DEPTH} levels deep: {shorten(data)}"
            )
        if type(data) is list:
            return [convert(item, depth + 1) for item in data]
        if type(data) is not dict or len(data) != 1:
            raise ConfigError(
                f"not plain data: {shorten(data)}; an object must have one key, which names a type"
            )
        ((type_name, content),) = data.items()
        if special is not None and type_name in special:
            return special[type_name](content)
        make_value = _MAKERS.get(type_name)
        if make_value is None:
            raise ConfigError(f"plain data of an unknown type {shorten(type_name)}")

        def convert_inner(inner: Any) -> Any:
            return convert(inner, depth + 2)  # within the object, and within its list

        try:
            return make_value(content, convert_inner)
        except ConfigError:
            raise
        except (TypeError, ValueError, LookupError, OverflowError, MemoryError) as error:
            raise ConfigError(
                f"not plain data of type {type_name!r}: {shorten(content)} ({error})"
            ) from error

    return convert(data, 0)


def _make_int(content: Any, convert: _FromPlain) -> int:
    return int(content, 16)


def _make_float(content: Any, convert: _FromPlain) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]


def _make_tuple(content: Any, convert: _FromPlain) -> tuple[Any, ...]:
    return tuple(map(convert, _check_list(content)))


def _make_dict(content: Any, convert: _FromPlain) -> dict[Any, Any]:
    pairs = _check_list(content)
    items_by_key: dict[Any, Any] = {}
    for pair in pairs:
        key, item = _check_list(pair, 2)
        items_by_key[convert(key)] = convert(item)
    if len(items_by_key) != len(pairs):
        raise ValueError("a key occurs twice")
    return items_by_key


def _make_set(content: Any, convert: _FromPlain) -> frozenset[Any]:
    return frozenset(map(convert, _check_list(content)))


def _make_range(content: Any, convert: _FromPlain) -> range:
    start, stop, step = _check_list(content, 3)
    numbers = range(start, stop, step)
    len(numbers)  # raises OverflowError if the range is too long
    return numbers


def _make_slice(content: Any, convert: _FromPlain) -> slice:
    start, stop, step = _check_list(content, 3)
    return slice(convert(start), convert(stop), convert(step))


def _make_bytes(content: Any, convert: _FromPlain) -> bytes:
    return base64.b64decode(content, validate=True)


def _make_array(content: Any, convert: _FromPlain) -> np.ndarray[Any, Any]:
    return _ARRAYS.decode(base64.b64decode(content, validate=True))


def _make_scalar(content: Any, convert: _FromPlain) -> Any:
    array = _make_array(content, convert)
    if array.ndim:
        raise ValueError("a scalar has no shape")
    return array[()]


def _make_objects(content: Any, convert: _FromPlain) -> np.ndarray[Any, Any]:
    shape = _check_list(content["shape"])
    values = convert(_check_list(content["values"]))
    has_other_keys = content.keys() != {"shape", "values"}
    if has_other_keys or not _is_shape(shape) or len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values do not fit the shape {shorten(shape)}")
    return objects(values).reshape(shape)


def _is_shape(sizes: list[Any]) -> bool:
    """Return whether a list is the shape of an array."""
    if len(sizes) > _MAX_DIMENSIONS:
        return False
    return all(type(size) is int and 0 <= size < 1 << 62 for size in sizes)


def _check_list(data: Any, n_items: int | None = None) -> list[Any]:
    """Return ``data``, a list; of ``n_items`` if this is given.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(data, list) or (n_items is not None and len(data) != n_items):
        expected = "a list" if n_items is None else f"a list of {n_items}"
        raise ValueError(f"expected {expected}")
    return data


#: The functions that make values, by the key of an object. Each gets the content of the object, and
#: a function that makes the values within.
_MAKERS: dict[str, Callable[[Any, _FromPlain], Any]] = {
    "int": _make_int,
    "float": _make_float,
    "tuple": _make_tuple,
    "dict": _make_dict,
    "set": _make_set,
    "range": _make_range,
    "slice": _make_slice,
    "bytes": _make_bytes,
    "array": _make_array,
    "scalar": _make_scalar,
    "objects": _make_objects,
}


# ------------------------------------------------------------------ texts of plain data


def canonical_json(plain: Any) -> str:
    """Return the canonical JSON text of plain data, for digests."""
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def json_digest(plain: Any) -> str:
    """Return the SHA-256 of the canonical JSON text of plain data: 64 hex digits."""
    return hashlib.sha256(canonical_json(plain).encode("ascii")).hexdigest()


def shorten(value: Any) -> str:
    """Return a short text of a value for messages, made without visiting all of it."""
    n_values = 0
    if isinstance(value, np.ndarray):
        n_values = value.size
    elif isinstance(value, (dict, list, tuple, set, frozenset)):
        n_values = len(value)
    if n_values > _MAX_SHOWN:
        return f"a {type(value).__name__} of {n_values:,} values"
    if isinstance(value, (str, bytes)):
        value = value[: _MAX_SHOWN + 1]
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # the repr of foreign classes may raise anything
        # Python's own raises for an integer of too many digits and a deeply nested list.
        return f"a {type(value).__name__}"
    if len(text) > _MAX_SHOWN:
        return f"{text[: _MAX_SHOWN - 1]}…"
    return text


# ------------------------------------------------------------------ the codec

#: The types whose values come back equal and of the same type.
_EXACT_TYPES = (type(None), bool, int, float, complex, str, bytes, range, slice)


@register_codec
class PythonCodec(Codec):
    """Python's plain values.

    These are None, booleans, integers of any size, floats (NaN and infinities too), complex
    numbers, text, bytes, ranges, slices, numpy scalars and arrays, and lists, tuples, dicts and
    frozensets of them. Never pickle.

    A value comes back equal and of the same type. It is stored as JSON
    (:mod:`data_stack.codecs.plain_data`).
    """

    name = "python"

    def encode(self, value: Any) -> bytes:
        try:
            self._check(value)
            return canonical_json(to_plain(value, self._describe)).encode("ascii")
        except (ValueError, RecursionError) as error:
            # ValueError: a ConfigError, or an integer of more digits than Python writes.
            raise ConfigError(str(error)) from error

    def decode(self, record: bytes) -> Any:
        return from_plain(json.loads(bytes(record)), self._makers())

    def _describe(self, value: Any) -> dict[str, Any] | None:
        """Return a complex number as an object with one key; None for other values."""
        if type(value) is complex:
            return {"complex": [to_plain(value.real), to_plain(value.imag)]}
        return None

    def _makers(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return the functions that make values of such objects, by key."""
        return {"complex": _make_complex}

    def _is_exact(self, value: Any) -> bool:
        """Return whether a value that holds no others comes back with the same type."""
        return type(value) in _EXACT_TYPES or isinstance(value, np.generic)

    def _check(self, value: Any) -> None:
        """Check that a value would come back with the same type.

        Raises:
            ConfigError: it would not.
        """
        value_type = type(value)
        if value_type in (list, tuple, frozenset):
            for item in value:
                self._check(item)
        elif value_type is dict:
            for key, item in value.items():
                self._check(key)
                self._check(item)
        elif value_type in (np.ndarray, np.memmap):
            if value.dtype == object:
                self._check(value.ravel().tolist())
        elif not self._is_exact(value):
            raise ConfigError(
                f"a {value_type.__module__}.{value_type.__qualname__} cannot be written: "
                f"{value!r:.80}; map it to numbers, text, bytes, arrays, "
                "or lists, tuples and dicts of such"
            )


def _make_complex(parts: Any) -> complex:
    return complex(*map(from_plain, parts))
