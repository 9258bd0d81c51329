"""Values as plain JSON data and back, exactly: for recipes, fitted encoders, saved splits and records of Python values."""

from __future__ import annotations

import base64
import functools
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

#: Arrays are base64 of their records.
_ARRAYS = ArrayCodec()
_base64 = functools.partial(base64.b64decode, validate=True)
_DEEPEST = 100

#: Integers of more bits are written in hexadecimal digits.
_MAX_DECIMAL_BITS = 8192

# Messages do not show objects of more values.
_MAX_SHOWN = 80


#: Makes an object with one key of a value of a further type; None of others.
_Special: TypeAlias = Callable[[Any], dict[str, Any] | None]


def to_plain(value: Any, special: _Special | None = None, first: _Special | None = None) -> Any:
    """``value`` as JSON data: None, bools, ints, finite floats, strings, lists, and objects with one key, which names a type.

    Args:
        value: of these types, a tuple, dict, set, range, slice, bytes, or a numpy scalar or array (arrays of objects too, if
            these are such values), nested at will.
        special: converts further types to an object with one key; returns None for others.
        first: as ``special``, but called first for all values except None, bools, ints, floats and strings.

    Raises:
        ConfigError: a value of another type, or nested more than 100 levels deep.
    """

    def plain(value: Any, depth: int) -> Any:
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            # Python refuses decimal texts of thousands of digits, which take quadratic time
            return value if value.bit_length() <= _MAX_DECIMAL_BITS else {"int": hex(value)}
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if depth > _DEEPEST:
            raise ConfigError(
                f"values nested more than {_DEEPEST} levels deep cannot be written as plain data: {shorten(value)}"
            )
        found = first(value) if first is not None else None
        if found is not None:
            return found
        within = depth + 1
        is_masked = isinstance(value, np.ma.MaskedArray)  # whose mask would be lost
        if (
            isinstance(value, (np.ndarray, np.generic))
            and value.dtype.kind in "biufcmMSUO"
            and not is_masked
        ):
            return _plain_array(value, lambda item: plain(item, within))
        if isinstance(value, list):
            return [plain(item, within) for item in value]
        if type(value) is tuple:
            return {"tuple": [plain(item, within) for item in value]}
        if isinstance(value, Mapping):
            return {
                "dict": [[plain(key, within), plain(item, within)] for key, item in value.items()]
            }
        if isinstance(value, (set, frozenset)):
            return {"set": sorted((plain(item, within) for item in value), key=canonical_json)}
        if isinstance(value, range):
            if (value.stop - value.start) // value.step > sys.maxsize:
                raise ConfigError(f"{shorten(value)} is too long to be plain data")
            return {"range": [value.start, value.stop, value.step]}
        if isinstance(value, slice):
            return {"slice": [plain(end, within) for end in (value.start, value.stop, value.step)]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": base64.b64encode(value).decode("ascii")}
        found = special(value) if special is not None else None
        if found is not None:
            return found
        if isinstance(value, tuple):  # one with names
            return plain(tuple(value), depth)
        kind = type(value)
        raise ConfigError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be written as plain data: {shorten(value)}"
        )

    return plain(value, 0)


def from_plain(data: Any, special: Mapping[str, Callable[[Any], Any]] | None = None) -> Any:
    """The inverse of :func:`to_plain`; dicts, lists and arrays are new objects.

    Sets come back as frozensets, bytearrays as bytes, named tuples as tuples, arrays little-endian and in C order.

    Args:
        data: plain data, also from untrusted files; the result takes at most a few times the memory of ``data``.
        special: functions that make values of further types, by key. Their errors are raised unchanged.

    Raises:
        ConfigError: ``data`` is not of that form, or nested more than 100 levels deep.
    """

    def value(data: Any, depth: int) -> Any:
        if data is None or type(data) in (bool, int, str):
            return data
        if type(data) is float:
            if not math.isfinite(data):
                raise ConfigError(f"{data} is not plain data; write {{'float': '{data}'}}")
            return data
        if depth > _DEEPEST:
            raise ConfigError(
                f"plain data nested more than {_DEEPEST} levels deep: {shorten(data)}"
            )
        if type(data) is list:
            return [value(item, depth + 1) for item in data]
        if type(data) is not dict or len(data) != 1:
            raise ConfigError(
                f"not plain data: {shorten(data)}; an object must have one key, which names a type"
            )
        ((kind, content),) = data.items()
        if special is not None and kind in special:
            return special[kind](content)
        maker = _MAKERS.get(kind)
        if maker is None:
            raise ConfigError(f"plain data of an unknown type {shorten(kind)}")
        try:
            return maker(content, lambda item: value(item, depth + 2))
        except ConfigError:
            raise
        except (TypeError, ValueError, LookupError, OverflowError, MemoryError) as error:
            raise ConfigError(
                f"not plain data of type {kind!r}: {shorten(content)} ({error})"
            ) from error

    return value(data, 0)


def canonical_json(plain: Any) -> str:
    """The canonical JSON text of plain data, for digests."""
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def json_digest(plain: Any) -> str:
    """SHA-256 of the canonical JSON text of plain data: 64 hex digits."""
    return hashlib.sha256(canonical_json(plain).encode("ascii")).hexdigest()


def shorten(value: Any) -> str:
    """A short text of a value for messages, made without visiting all of it."""
    is_container = isinstance(value, (dict, list, tuple, set, frozenset))
    n_values = value.size if isinstance(value, np.ndarray) else len(value) if is_container else 0
    if n_values > _MAX_SHOWN:
        return f"a {type(value).__name__} of {n_values:,} values"
    if isinstance(value, (str, bytes)):
        value = value[: _MAX_SHOWN + 1]
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # an integer of too many digits, a deeply nested list, or a foreign class
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _plain_array(value: Any, plain: Callable[[Any], Any]) -> Any:
    array = np.asarray(value)
    if array.dtype == object:
        return {
            "objects": {
                "shape": list(array.shape),
                "values": [plain(item) for item in array.ravel().tolist()],
            }
        }
    try:
        record = _ARRAYS.encode(np.asarray(array, dtype=array.dtype.newbyteorder("<")))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{shorten(value)} cannot be written as plain data: {error}") from error
    return {
        "scalar" if isinstance(value, np.generic) else "array": base64.b64encode(record).decode(
            "ascii"
        )
    }


def _scalar(text: Any) -> Any:
    array = _ARRAYS.decode(_base64(text))
    if array.ndim:
        raise ValueError("a scalar has no shape")
    return array[()]


def _objects(content: Any, value: Callable[[Any], Any]) -> Any:
    shape, values = _items(content["shape"]), value(_items(content["values"]))
    # The limit of numpy before 2.0.
    is_shape = len(shape) <= 32 and all(
        type(extent) is int and 0 <= extent < 1 << 62 for extent in shape
    )
    if content.keys() != {"shape", "values"} or not is_shape or len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values do not fit the shape {shorten(shape)}")
    return objects(values).reshape(shape)


def _dict(pairs: Any, value: Callable[[Any], Any]) -> dict[Any, Any]:
    made = {value(key): value(item) for key, item in (_items(pair, 2) for pair in _items(pairs))}
    if len(made) != len(pairs):
        raise ValueError("a key occurs twice")
    return made


def _range(ends: Any) -> range:
    made = range(*_items(ends, 3))
    len(made)  # OverflowError if it is too long
    return made


def _items(data: Any, number: int | None = None) -> list[Any]:
    if not isinstance(data, list) or number not in (None, len(data)):
        raise ValueError("expected a list" if number is None else f"expected a list of {number}")
    return data


_MAKERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "int": lambda content, value: int(content, 16),
    "float": lambda content, value: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
    "tuple": lambda content, value: tuple(map(value, _items(content))),
    "dict": _dict,
    "set": lambda content, value: frozenset(map(value, _items(content))),
    "range": lambda content, value: _range(content),
    "slice": lambda content, value: slice(*map(value, _items(content, 3))),
    "bytes": lambda content, value: _base64(content),
    "array": lambda content, value: _ARRAYS.decode(_base64(content)),
    "scalar": lambda content, value: _scalar(content),
    "objects": _objects,
}


_EXACT = (type(None), bool, int, float, complex, str, bytes, range, slice)


@register_codec
class PythonCodec(Codec):
    """Python's plain values: None, booleans, integers of any size, floats (NaN and infinities too), complex numbers, text, bytes,
    ranges, slices, numpy scalars and arrays, and lists, tuples, dicts and frozensets of them. Never pickle.

    A value comes back equal and of the same type. It is stored as JSON (:mod:`data_stack.codecs.plain_data`).
    """

    name = "python"

    def encode(self, value: Any) -> bytes:
        try:
            self._check(value)
            return canonical_json(to_plain(value, self._describe)).encode("ascii")
        except (
            ValueError,
            RecursionError,
        ) as error:  # ConfigError is one; so is an int of more digits than Python writes
            raise ConfigError(str(error)) from error

    def decode(self, record: bytes) -> Any:
        return from_plain(json.loads(bytes(record)), self._makers())

    def _describe(self, value: Any) -> dict[str, Any] | None:
        """A value of a type that plain data lack as an object with one key; None for other values."""
        return (
            {"complex": [to_plain(value.real), to_plain(value.imag)]}
            if type(value) is complex
            else None
        )

    def _makers(self) -> Mapping[str, Callable[[Any], Any]]:
        """The functions that make values of such objects, by key."""
        return {"complex": lambda parts: complex(*map(from_plain, parts))}

    def _is_exact(self, value: Any) -> bool:
        return type(value) in _EXACT or isinstance(value, np.generic)

    def _check(self, value: Any) -> None:
        """Check that a value would come back with the same type.

        Raises:
            ConfigError: it would not.
        """
        kind = type(value)
        if kind in (list, tuple, frozenset):
            for item in value:
                self._check(item)
        elif kind is dict:
            for key, item in value.items():
                self._check(key)
                self._check(item)
        elif kind in (np.ndarray, np.memmap):
            if value.dtype == object:
                self._check(value.ravel().tolist())
        elif not self._is_exact(value):
            advice = "map it to numbers, text, bytes, arrays, or lists, tuples and dicts of such"
            raise ConfigError(
                f"a {kind.__module__}.{kind.__qualname__} cannot be written: {value!r:.80}; {advice}"
            )
