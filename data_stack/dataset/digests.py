"""Digests of samples: equal for equal samples, wherever and in whatever batch they are read."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.util.exact import in_unit, leaf_types, ticks_of

__all__ = ["DIGEST_BYTES", "column_digests", "row_digests", "sample_digest"]

DIGEST_BYTES = 16
"""Length of a digest: the start of a SHA-256, which current processors compute faster than any other safe hash."""

Digests = npt.NDArray[np.uint8]
"""Shape ``(n, 16)``: one digest a row."""

_Array = npt.NDArray[Any]

# What numbers are written as: bytes, then the widest integers, then floats.
_BYTE, _SIGNED, _UNSIGNED, _DOUBLE = b"B", b"q", b"Q", b"d"

_LENGTH = struct.Struct("<Q")
_NUMBERS = {code: struct.Struct("<" + code.decode()) for code in (_BYTE, _SIGNED, _UNSIGNED, _DOUBLE)}


def sample_digest(sample: Any) -> bytes:
    """16 bytes that are the same for equal samples, and different for others, in every process and on every machine.

    A sample is a tuple or list of columns, a dict of columns in any order of keys, or a bare value. Values are equal where
    they say the same, however they are kept:

    * Numbers count by value, not by type: ``3``, ``3.0``, ``True + 2``, a numpy or torch 3 of any dtype, and ``Decimal(3)`` are
      one value. ``-0.0`` equals ``0.0``, and every NaN every other. The reason: which dtype a number has in a batch depends on
      the batch's other samples.
    * Arrays, tensors, lists and tuples of equal shape and equal elements are one value; shapes count, dtypes do not.
    * Times count by instant, whatever their unit. A time with a time zone equals none without.
    * An array with masked entries equals another one of equal entries and mask; what is below the mask does not count.
    * Strings and bytes differ, also if empty. None equals None only.
    * Records (values of structured dtypes) are dicts of their fields. Sets are equal whatever their order.

    Every part is written with its type and length before it is hashed, so ``("ab", "c")`` and ``("a", "bc")`` differ.

    Raises:
        ConfigError: the sample holds an object of another type, which has no known content.
    """
    if isinstance(sample, (tuple, list)):
        encoded = b"".join([b"T", _LENGTH.pack(len(sample)), *map(_encoding, sample)])
    else:
        encoded = _encoding(sample)
    return hashlib.sha256(encoded).digest()[:DIGEST_BYTES]


def row_digests(batch: tuple[_Array, ...] | Mapping[Any, _Array] | _Array) -> Digests:
    """The :func:`sample_digest` of each sample of a batch as ``read_batch`` gives it, shape ``(n, 16)``, uint8.

    It is the digest of the sample by itself.

    Raises:
        ConfigError: as there.
    """
    if isinstance(batch, np.ndarray):
        encodings = list(map(_encoding, _values(batch)))
    elif isinstance(batch, Mapping):
        keys = sorted(((_encoding(key), key) for key in batch), key=lambda pair: pair[0])
        columns = [[encoded_key + _encoding(value) for value in _values(batch[key])] for encoded_key, key in keys]
        encodings = [b"D" + _LENGTH.pack(len(keys)) + b"".join(row) for row in zip(*columns, strict=True)]
    else:
        columns = [list(map(_encoding, _values(column))) for column in batch]
        encodings = [b"T" + _LENGTH.pack(len(columns)) + b"".join(row) for row in zip(*columns, strict=True)]
    digests = b"".join([hashlib.sha256(encoded).digest()[:DIGEST_BYTES] for encoded in encodings])
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def column_digests(column: _Array) -> Digests:
    """The digest of each value ``v`` of one column, as that of the sample ``(v,)``; shape ``(n, 16)``, uint8.

    Raises:
        ConfigError: as :func:`sample_digest`.
    """
    return row_digests((column,))


def _values(column: _Array) -> Iterable[Any]:
    """The values of a column: as Python's where these are the same, which are encoded faster."""
    return column.tolist() if column.ndim == 1 and column.dtype.kind not in "mMV" else column


# ---------------------------------------------------------------------------------------------- one value as bytes


def _encoding(value: Any) -> bytes:
    """``value`` as bytes that no other value has, and that are no start of another value's."""
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return b"S" + _LENGTH.pack(len(text)) + text
    if isinstance(value, (int, float)):  # np.float64 is a float
        return _number(value)
    if value is None:
        return b"0"
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return b"Y" + _LENGTH.pack(len(data)) + data
    if isinstance(value, (list, tuple)):
        return _sequence(value)
    if isinstance(value, Mapping):
        pairs = sorted((_encoding(key), _encoding(item)) for key, item in value.items())
        return b"".join([b"D", _LENGTH.pack(len(pairs)), *(part for pair in pairs for part in pair)])
    if isinstance(value, np.timedelta64):  # numpy takes it for an integer
        return _array(value)
    if isinstance(value, (np.integer, np.bool_)):
        return _number(int(value))
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _array(value)
    if isinstance(value, (date, timedelta)):
        return _time(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, complex):
        return _array(np.array(value))
    if isinstance(value, (set, frozenset)):
        return b"".join([b"{", _LENGTH.pack(len(value)), *sorted(map(_encoding, value))])
    raise _unknown(value)


def _unknown(value: Any) -> ConfigError:
    of = type(value)
    return ConfigError(
        f"samples with a {of.__module__}.{of.__qualname__} in them cannot be compared by digest, for what it holds is unknown; "
        f"map it to numbers, strings, arrays, or dicts and lists of these, or compare other columns"
    )


def _number(value: Any) -> bytes:
    """A number as :func:`_numbers` writes it, 20 times as fast."""
    if isinstance(value, float) and not (value.is_integer() and -(2.0**63) <= value < 2.0**64):
        return b"Nd\0" + _NUMBERS[_DOUBLE].pack(value if value == value else math.nan)
    value = int(value)
    if not -(2**63) <= value < 2**64:
        return _large_integer(value)
    code = _BYTE if 0 <= value < 256 else _SIGNED if value < 2**63 else _UNSIGNED
    return b"N" + code + b"\0" + _NUMBERS[code].pack(value)


def _large_integer(value: int) -> bytes:
    try:
        if int(float(value)) == value:  # then it equals a float
            return b"Nd\0" + _NUMBERS[_DOUBLE].pack(float(value))
    except OverflowError:
        pass
    return _whole_number(value)


def _whole_number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"I" + _LENGTH.pack(len(data)) + data


def _decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        return _number(float(value)) if not value.is_snan() else _number(math.nan)
    if value.adjusted() < 20 and value == value.to_integral_value():
        return _number(int(value))
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf
    if math.isfinite(nearest) and Decimal(nearest) == value:
        return _number(nearest)
    sign, digits, exponent = value.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0")
    kept = shown.rstrip("0")
    text = f"{'-' * sign}{kept}E{int(exponent) + len(shown) - len(kept)}".encode()
    return b"E" + _LENGTH.pack(len(text)) + text


def _time(value: date | timedelta) -> bytes:
    if isinstance(value, timedelta):
        to_numpy = getattr(value, "to_timedelta64", None)  # pandas' are more exact than their base class
        return _array(np.timedelta64(value, "us") if to_numpy is None else to_numpy())
    aware = isinstance(value, datetime) and value.tzinfo is not None
    to_numpy = getattr(value, "to_datetime64", None)
    if to_numpy is not None:
        instant = to_numpy()
    elif isinstance(value, datetime):
        instant = np.datetime64(value.astimezone(timezone.utc).replace(tzinfo=None) if aware else value, "us")
    else:
        instant = np.datetime64(value, "D")
    return b"Z" * aware + _array(instant)


def _sequence(values: Sequence[Any]) -> bytes:
    try:
        types = leaf_types(values)
        has_masks = any(issubclass(kind, np.ma.MaskedArray) for kind in types)  # which numpy would take away
        array = None if has_masks else np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError):  # of no common shape, or tensors with gradients
        array = None
    if array is not None and array.dtype.kind in "biufcmM" and (types == {float} or _are_kept(values, array)):
        return _array(array)
    return b"".join([b"L", _LENGTH.pack(len(values)), *map(_encoding, values)])


def _are_kept(values: Any, array: _Array) -> bool:
    """Whether values are those of the array that numpy made of them: it may have rounded integers, or let times wrap."""
    if array.dtype.kind in "biu":
        return True
    if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim):
        return all(map(_are_kept, values, array))
    if isinstance(values, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(values)) or in_unit(np.asarray(values), array.dtype) is not None
    return not isinstance(values, (int, np.integer)) or bool(int(values) == array.item())


def _array(value: Any) -> bytes:
    """An array, a scalar of numpy's, or a tensor."""
    if isinstance(value, np.ma.MaskedArray) and b"\1" in (mask := np.ma.getmaskarray(value)).tobytes():
        nothing: Any = np.zeros((), value.dtype)
        return b"K" + _array(np.asarray(mask)) + _array(np.asarray(value.filled(nothing)))
    array = _as_numpy(value)
    kind = array.dtype.kind
    if kind in "biuf":
        return _numbers(array)
    if kind == "c":
        parts = np.stack([array.real, array.imag], axis=-1)
        return b"C" + _numbers(parts) if parts[..., 1].any() else _numbers(array.real)
    if kind in "mM":
        return b"".join([kind.encode(), _shape(array), *map(_ticks, array.reshape(-1))])
    if kind == "V" and array.dtype.type is not np.void:  # a package's own numbers, such as bfloat16
        return _numbers(array.astype(np.float64))
    if kind == "V":
        return _records(array)
    if array.ndim == 0 and array[()] is value:
        raise _unknown(value)
    return _encoding(array.tolist())  # strings and other objects, as Python's own


def _as_numpy(value: Any) -> _Array:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    try:
        return np.asarray(tensor)
    except (TypeError, RuntimeError):  # of a dtype that numpy lacks, such as bfloat16
        try:
            return np.asarray(tensor.double() if tensor.is_floating_point() else tensor.long())
        except (TypeError, RuntimeError) as error:
            raise _unknown(value) from error


def _shape(array: _Array) -> bytes:
    return b"".join([bytes([array.ndim]), *map(_LENGTH.pack, array.shape)])


def _numbers(array: _Array) -> bytes:
    """Numbers as the first of bytes, signed and unsigned integers, and floats that all of them are."""
    if array.dtype.kind == "f":
        doubles = array.astype(np.float64, copy=False)
        if array.dtype.itemsize > 8 and bool(((doubles != array) & ~np.isnan(array)).any()):
            raise ConfigError(f"values of dtype {array.dtype} that are no float64 differ between machines; cast them first")
        array = doubles
    if array.dtype.kind != "f" or bool((np.trunc(array) == array).all()):
        low, high = (array.min().item(), array.max().item()) if array.size else (0, 0)
        for code, lowest, end in ((_BYTE, 0, 2**8), (_SIGNED, -(2**63), 2**63), (_UNSIGNED, 0, 2**64)):
            if lowest <= low and high < end:
                return b"N" + code + _shape(array) + array.astype("<" + code.decode()).tobytes()
    values = np.atleast_1d(array).astype("<f8") + 0.0  # -0.0 becomes 0.0
    if np.isnan(values).any():
        values[np.isnan(values)] = math.nan
    return b"N" + _DOUBLE + _shape(array) + values.tobytes()


def _ticks(time: Any) -> bytes:
    """By attoseconds, or months where a span has no number of days: exact for every unit, and the same for all of them."""
    if np.isnat(time):
        return b"-"
    counted_in, ticks = ticks_of(time)
    return counted_in.encode() + _whole_number(ticks)


def _records(array: _Array) -> bytes:
    names = array.dtype.names
    if names is None:
        raise ConfigError(
            f"samples with values of dtype {array.dtype} cannot be compared by digest; view them as bytes or numbers"
        )
    if array.ndim:
        return b"".join([b"L", _LENGTH.pack(len(array)), *map(_array, array)])
    pairs = sorted((_encoding(name), _encoding(array[name][()])) for name in names)
    return b"".join([b"D", _LENGTH.pack(len(pairs)), *(part for pair in pairs for part in pair)])
