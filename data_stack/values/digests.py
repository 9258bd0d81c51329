"""Digests of samples: equal for equal samples, in any batch and process."""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import as_array, stack_values
from data_stack.values.times import as_time, ticks_of

DIGEST_BYTES = 16
"""Length of a digest: the start of a SHA-256."""

Digests = npt.NDArray[np.uint8]
"""Shape ``(n, 16)``: one digest a row."""

_Array = npt.NDArray[Any]

# What numbers are written as: bytes, then the widest integers, then floats.
_BYTE, _SIGNED, _UNSIGNED, _DOUBLE = b"B", b"q", b"Q", b"d"

_LENGTH = struct.Struct("<Q")
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_NUMBERS = {
    code: struct.Struct("<" + code.decode()) for code in (_BYTE, _SIGNED, _UNSIGNED, _DOUBLE)
}


def sample_digest(sample: Any) -> bytes:
    """16 bytes that are the same for equal samples, and different for others, in every process and on every machine.

    A sample is a tuple or list of columns, a dict of columns in any order of keys, or a bare value. Values are compared by
    content:

    * Numbers are equal by value: ``3``, ``3.0``, ``True + 2``, a numpy or torch 3 of any dtype, and ``Decimal(3)`` are one
      value, because the dtype of a number in a batch depends on the other samples. ``-0.0`` equals ``0.0``; all NaN are equal.
    * Arrays, tensors, lists and tuples of equal shape and equal elements are equal; dtypes do not count.
    * Times are equal by instant; units do not count. Times with a time zone differ from those without.
    * Strings differ from bytes, also if empty. None equals None only.
    * Records (values of structured dtypes) are dicts of their fields. Sets have no order.

    Every part is hashed with its type and length, so ``("ab", "c")`` and ``("a", "bc")`` differ.

    Raises:
        ConfigError: the sample contains an object of another type, or an array with masked entries.
    """
    if isinstance(sample, (tuple, list)):
        encoded = b"".join([b"T", _LENGTH.pack(len(sample)), *map(_encoding, sample)])
    else:
        encoded = _encoding(sample)
    return hashlib.sha256(encoded).digest()[:DIGEST_BYTES]


def row_digests(batch: tuple[_Array, ...] | Mapping[Any, _Array] | _Array) -> Digests:
    """The :func:`sample_digest` of each sample of a batch as ``read_batch`` returns it, shape ``(n, 16)``, uint8.

    It is the digest of the sample by itself.

    Raises:
        ConfigError: as there.
    """
    if isinstance(batch, np.ndarray):
        encodings = list(map(_encoding, _values(batch)))
    elif isinstance(batch, Mapping):
        keys = sorted(((_encoding(key), key) for key in batch), key=lambda pair: pair[0])
        columns = [
            [encoded_key + _encoding(value) for value in _values(batch[key])]
            for encoded_key, key in keys
        ]
        encodings = [
            b"D" + _LENGTH.pack(len(keys)) + b"".join(row) for row in zip(*columns, strict=True)
        ]
    else:
        columns = [list(map(_encoding, _values(column))) for column in batch]
        encodings = [
            b"T" + _LENGTH.pack(len(columns)) + b"".join(row) for row in zip(*columns, strict=True)
        ]
    digests = b"".join([hashlib.sha256(encoded).digest()[:DIGEST_BYTES] for encoded in encodings])
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def column_digests(column: _Array) -> Digests:
    """The digest of each value ``v`` of one column, as that of the sample ``(v,)``; shape ``(n, 16)``, uint8.

    Raises:
        ConfigError: as :func:`sample_digest`.
    """
    return row_digests((column,))


def _values(column: _Array) -> Iterable[Any]:
    """The values of a column, converted to Python's if they stay equal, which are encoded faster."""
    return column.tolist() if column.ndim == 1 and column.dtype.kind not in "mMV" else column


# ---------------------------------------------------------------------------------------------- one value as bytes


def _encoding(value: Any) -> bytes:
    """``value`` as bytes that no other value has, and that are not a prefix of another value's."""
    if isinstance(value, str):
        return _sized(b"S", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (int, float)):  # np.float64 is a float
        return _number(value)
    if value is None:
        return b"0"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _sized(b"Y", bytes(value))
    if isinstance(value, (list, tuple)):
        return _sequence(value)
    if isinstance(value, Mapping):
        pairs = sorted((_encoding(key), _encoding(item)) for key, item in value.items())
        return b"".join(
            [b"D", _LENGTH.pack(len(pairs)), *(part for pair in pairs for part in pair)]
        )
    if isinstance(value, (np.timedelta64, complex)):  # a subclass of np.integer
        return _array(value)
    if isinstance(value, (np.integer, np.bool_)):
        return _number(int(value))
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _array(value)
    if isinstance(value, (date, timedelta)):
        is_aware = isinstance(value, datetime) and value.tzinfo is not None
        return b"Z" * is_aware + _array(as_time(value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, (set, frozenset)):
        return b"".join([b"{", _LENGTH.pack(len(value)), *sorted(map(_encoding, value))])
    raise _unknown(value)


def _sized(mark: bytes, data: bytes) -> bytes:
    return mark + _LENGTH.pack(len(data)) + data


def _unknown(value: Any) -> ConfigError:
    of = type(value)
    return ConfigError(
        f"samples with a {of.__module__}.{of.__qualname__} cannot be compared by digest; "
        f"map it to numbers, strings, arrays, or dicts and lists of these, or compare other columns"
    )


def _number(value: Any) -> bytes:
    """A number as :func:`_numbers` writes it, 20 times as fast."""
    if isinstance(value, float) and not (value.is_integer() and -(2.0**63) <= value < 2.0**64):
        return b"Nd\0" + _NUMBERS[_DOUBLE].pack(value if value == value else math.nan)
    value = int(value)
    if not -(2**63) <= value < 2**64:
        return _decimal(Decimal(value))
    code = _BYTE if 0 <= value < 256 else _SIGNED if value < 2**63 else _UNSIGNED
    return b"N" + code + b"\0" + _NUMBERS[code].pack(value)


def _decimal(value: Decimal) -> bytes:
    """A decimal as the equal float or integer of 64 bits; otherwise as text."""
    nearest = math.nan if value.is_nan() else float(value)
    if value.is_nan() or Decimal(nearest) == value:
        return _number(nearest)
    if -(2**63) <= value < 2**64 and value == value.to_integral_value():
        return _number(int(value))
    return _sized(b"E", str(_EXACT.normalize(value)).encode())


def _sequence(values: Sequence[Any]) -> bytes:
    with contextlib.suppress(
        ValueError, TypeError, OverflowError, RuntimeError
    ):  # an element is refused below
        column = stack_values(values)
        if column.dtype.kind in "biufcmM":
            return _array(column)
    return b"".join([b"L", _LENGTH.pack(len(values)), *map(_encoding, values)])


def _array(value: Any) -> bytes:
    """An array, a scalar of numpy's, or a tensor."""
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
    if (kind == "V" and array.dtype.names is None) or (array.ndim == 0 and array[()] is value):
        raise _unknown(value)
    if kind == "V" and array.ndim:
        return b"".join([b"L", _LENGTH.pack(len(array)), *map(_array, array)])
    if kind == "V":
        return _encoding({name: array[name][()] for name in array.dtype.names or ()})
    return _encoding(array.tolist())  # strings and other objects, as Python's own


def _as_numpy(value: Any) -> _Array:
    try:
        return as_array(value)
    except (TypeError, RuntimeError) as error:
        if not str(getattr(value, "dtype", "")).endswith("bfloat16"):
            raise _unknown(value) from error
        return as_array(value.float())


def _shape(array: _Array) -> bytes:
    return b"".join([bytes([array.ndim]), *map(_LENGTH.pack, array.shape)])


def _numbers(array: _Array) -> bytes:
    """Numbers as bytes, signed or unsigned integers, or floats: the first of these that holds all of them."""
    if array.dtype.kind == "f":
        doubles = array.astype(np.float64, copy=False)
        if not np.array_equal(doubles, array, equal_nan=True):
            raise ConfigError(
                f"values of dtype {array.dtype} are rounded as float64; cast them before you compare them"
            )
        array = doubles
    if array.dtype.kind != "f" or bool((np.trunc(array) == array).all()):
        low, high = (array.min().item(), array.max().item()) if array.size else (0, 0)
        for code, lowest, end in (
            (_BYTE, 0, 2**8),
            (_SIGNED, -(2**63), 2**63),
            (_UNSIGNED, 0, 2**64),
        ):
            if lowest <= low and high < end:
                return b"N" + code + _shape(array) + array.astype("<" + code.decode()).tobytes()
    values = np.atleast_1d(array).astype("<f8") + 0.0  # -0.0 becomes 0.0
    if np.isnan(values).any():
        values[np.isnan(values)] = math.nan
    return b"N" + _DOUBLE + _shape(array) + values.tobytes()


def _ticks(time: Any) -> bytes:
    """A time in attoseconds, or a span in months: exact, and the same for all units."""
    if np.isnat(time):
        return b"-"
    counted_in, ticks = ticks_of(time)
    return _sized(
        counted_in.encode(), ticks.to_bytes(ticks.bit_length() // 8 + 1, "little", signed=True)
    )
