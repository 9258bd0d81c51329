"""Values as plain JSON data and back, exactly: recipes, fitted encoders and saved splits are kept in this form."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError

__all__ = ["canonical_json", "from_plain", "to_plain"]

_ARRAY_KINDS = "biufcmMSU"  # of fixed size, and nothing in them can run
_MOST_VALUES_SHOWN = 32


def to_plain(value: Any, special: Callable[[Any], dict[str, Any] | None] | None = None) -> Any:
    """``value`` as what JSON has: None, bools, ints, finite floats, strings, lists, and objects with one key, which names a type.

    Args:
        value: of these types, a tuple, dict, set, range, slice, bytes, or a numpy scalar or array (arrays of objects too, if
            these are such values), nested at will.
        special: what becomes of further types, as an object with one key; None from it where it knows none either.

    Raises:
        ConfigError: a value of another type.
    """

    def plain(value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, (np.ndarray, np.generic)):
            return _plain_array(value, plain)
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [plain(item) for item in value]}
        if isinstance(value, Mapping):
            return {"dict": [[plain(key), plain(item)] for key, item in value.items()]}
        if isinstance(value, (set, frozenset)):
            return {"set": sorted((plain(item) for item in value), key=canonical_json)}
        if isinstance(value, range):
            return {"range": [value.start, value.stop, value.step]}
        if isinstance(value, slice):
            return {"slice": [plain(value.start), plain(value.stop), plain(value.step)]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": base64.b64encode(value).decode("ascii")}
        found = special(value) if special is not None else None
        if found is None:
            raise ConfigError(
                f"a {type(value).__module__}.{type(value).__qualname__} cannot be written as plain data: {value!r:.80}"
            )
        return found

    return plain(value)


def from_plain(data: Any, special: Mapping[str, Callable[[Any], Any]] | None = None) -> Any:
    """What :func:`to_plain` was given; dicts, lists and arrays are new ones.

    Args:
        data: what may come from a file of anyone's.
        special: for each further key that names a type, what makes the value.

    Raises:
        ConfigError: ``data`` is not of that form.
    """

    def value(data: Any) -> Any:
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        if isinstance(data, list):
            return [value(item) for item in data]
        if not isinstance(data, dict) or len(data) != 1:
            raise ConfigError(f"no plain data: {data!r:.80}")
        ((kind, content),) = data.items()
        if special is not None and kind in special:
            return special[kind](content)
        try:
            return makers[kind](content)
        except KeyError:
            raise ConfigError(f"plain data of an unknown type {kind!r:.80}") from None
        except (TypeError, ValueError, binascii.Error) as error:
            raise ConfigError(f"no plain data of type {kind!r}: {content!r:.80} ({error})") from error

    makers: dict[str, Callable[[Any], Any]] = {
        "float": lambda text: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text],
        "tuple": lambda items: tuple(value(_checked_list(items))),
        "dict": lambda items: {value(key): value(item) for key, item in _checked_list(items)},
        "set": lambda items: frozenset(value(_checked_list(items))),
        "range": lambda ends: range(*_checked_list(ends)),
        "slice": lambda ends: slice(*_checked_list(ends)),
        "bytes": lambda text: base64.b64decode(text, validate=True),
        "array": _array,
        "scalar": lambda content: _array(content)[()],
        "objects": lambda content: _objects(content, value),
    }
    return value(data)


def canonical_json(plain: Any) -> str:
    """The one JSON text of plain data: what digests are taken of."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain_array(value: Any, plain: Callable[[Any], Any]) -> Any:
    array = np.asarray(value)
    if array.dtype == object:
        return {"objects": {"shape": list(array.shape), "values": [plain(item) for item in array.ravel().tolist()]}}
    if array.dtype.kind not in _ARRAY_KINDS:
        raise ConfigError(f"an array of dtype {array.dtype} cannot be written as plain data")
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    content: dict[str, Any] = {"dtype": little.dtype.str, "shape": list(array.shape)}
    if array.dtype.kind in "iu" and array.size <= _MOST_VALUES_SHOWN:
        content["values"] = array.ravel().tolist()
    else:
        content["base64"] = base64.b64encode(little.tobytes()).decode("ascii")
    return {"scalar" if isinstance(value, np.generic) else "array": content}


def _array(content: Any) -> Any:
    dtype = np.dtype(str(content["dtype"]))
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"dtype {dtype} is not allowed")
    shape = tuple(int(extent) for extent in _checked_list(content["shape"]))
    if "values" in content:
        return np.array(_checked_list(content["values"]), dtype=dtype).reshape(shape)
    data = base64.b64decode(content["base64"], validate=True)
    return np.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def _objects(content: Any, value: Callable[[Any], Any]) -> Any:
    values = value(_checked_list(content["values"]))
    array = np.empty(len(values), dtype=object)
    for position, item in enumerate(values):  # one by one: numpy would unfold values that are sequences
        array[position] = item
    return array.reshape([int(extent) for extent in _checked_list(content["shape"])])


def _checked_list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError("a list is needed")
    return data
