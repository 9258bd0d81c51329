"""Digests of samples: equal for equal samples, in any batch and process."""

from __future__ import annotations

import contextlib
import hashlib
import math
import operator
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

#: The codes of what numbers are written as: bytes, then the widest integers, then floats.
_BYTE = b"B"
_SIGNED = b"q"
_UNSIGNED = b"Q"
_DOUBLE = b"d"

#: Little-endian formats of one number, by the code.
_NUMBER_FORMATS = {
    code: struct.Struct("<" + code.decode()) for code in (_BYTE, _SIGNED, _UNSIGNED, _DOUBLE)
}

#: For each code of integers, in the order of preference, the integers that it holds.
_INTEGER_RANGES = (
    (_BYTE, 0, 2**8 - 1),
    (_SIGNED, -(2**63), 2**63 - 1),
    (_UNSIGNED, 0, 2**64 - 1),
)

#: The number of dimensions of a single number.
_NO_DIMENSIONS = b"\0"

_LENGTH = struct.Struct("<Q")
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def sample_digest(sample: Any) -> bytes:
    """Return 16 bytes that are the same for equal samples, and different for others.

    They are the same in every process and on every machine.

    A sample is a tuple or list of columns, a dict of columns in any order of keys, or a bare value.
    Values are compared by content:

    * Numbers are equal by value: ``3``, ``3.0``, ``True + 2``, a numpy or torch 3 of any dtype, and
      ``Decimal(3)`` are one value, because the dtype of a number in a batch depends on the other
      samples. ``-0.0`` equals ``0.0``; all NaN are equal.
    * Arrays, tensors, lists and tuples of equal shape and equal elements are equal; dtypes do not
      count.
    * Times are equal by instant; units do not count. Times with a time zone differ from those
      without.
    * Strings differ from bytes, also if empty. None equals None only.
    * Records (values of structured dtypes) are dicts of their fields. Sets have no order.

    Every part is hashed with its type and length, so ``("ab", "c")`` and ``("a", "bc")`` differ.

    Raises:
        ConfigError: the sample contains an object of another type, or an array with masked entries.
    """
    if isinstance(sample, (tuple, list)):
        encoded = _join(b"T", [_encode(column) for column in sample], len(sample))
    else:
        encoded = _encode(sample)
    return hashlib.sha256(encoded).digest()[:DIGEST_BYTES]


def row_digests(batch: tuple[_Array, ...] | Mapping[Any, _Array] | _Array) -> Digests:
    """Return the :func:`sample_digest` of each sample of a batch, as of the sample by itself.

    Args:
        batch: columns, as ``read_batch`` returns them.

    Returns:
        The digests, shape ``(n, 16)``, uint8.

    Raises:
        ConfigError: as of :func:`sample_digest`.
    """
    if isinstance(batch, np.ndarray):
        encoded_samples = [_encode(value) for value in _values(batch)]
    elif isinstance(batch, Mapping):
        encoded_samples = _encode_dicts(batch)
    else:
        encoded_samples = _encode_tuples(batch)
    digests = [hashlib.sha256(encoded).digest()[:DIGEST_BYTES] for encoded in encoded_samples]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def column_digests(column: _Array) -> Digests:
    """Return the digest of each value ``v`` of one column, as that of the sample ``(v,)``.

    Returns:
        The digests, shape ``(n, 16)``, uint8.

    Raises:
        ConfigError: as of :func:`sample_digest`.
    """
    return row_digests((column,))


def _encode_tuples(columns: Sequence[_Array]) -> list[bytes]:
    encoded_columns = [[_encode(value) for value in _values(column)] for column in columns]
    prefix = b"T" + _LENGTH.pack(len(columns))
    return [prefix + b"".join(row) for row in zip(*encoded_columns, strict=True)]


def _encode_dicts(columns: Mapping[Any, _Array]) -> list[bytes]:
    # The order of the keys does not count.
    encoded_keys = sorted(((_encode(key), key) for key in columns), key=operator.itemgetter(0))
    encoded_columns = []
    for encoded_key, key in encoded_keys:
        encoded_columns.append([encoded_key + _encode(value) for value in _values(columns[key])])
    prefix = b"D" + _LENGTH.pack(len(encoded_keys))
    return [prefix + b"".join(row) for row in zip(*encoded_columns, strict=True)]


def _values(column: _Array) -> Iterable[Any]:
    """Return the values of a column: as Python's, which are encoded faster, if these are equal."""
    stay_equal = column.ndim == 1 and column.dtype.kind not in "mMV"
    return column.tolist() if stay_equal else column


# ------------------------------------------------------------------------------- one value as bytes


def _encode(value: Any) -> bytes:
    """Return bytes that no other value has, and that are not a prefix of another value's.

    The first byte says what follows: ``T`` columns of a tuple, ``D`` pairs of a dict, ``S`` text,
    ``Y`` bytes, ``0`` None, ``N`` numbers, ``E`` a decimal as text, ``C`` complex numbers, ``M``
    and ``m`` times and spans, ``Z`` a time with a time zone, ``L`` a list, ``{`` a set.

    The most frequent types are asked for first.

    Raises:
        ConfigError: the value is of an unknown type.
    """
    if isinstance(value, str):
        return _with_length(b"S", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (int, float)):  # np.float64 is a float
        return _encode_number(value)
    if value is None:
        return b"0"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _with_length(b"Y", bytes(value))
    if isinstance(value, (list, tuple)):
        return _encode_sequence(value)
    if isinstance(value, Mapping):
        pairs = sorted((_encode(key), _encode(item)) for key, item in value.items())
        return _join(b"D", [key + item for key, item in pairs], len(pairs))
    if isinstance(value, (np.timedelta64, complex)):  # np.timedelta64 is an np.integer
        return _encode_array(value)
    if isinstance(value, (np.integer, np.bool_)):
        return _encode_number(int(value))
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _encode_array(value)
    if isinstance(value, (date, timedelta)):
        has_zone = isinstance(value, datetime) and value.tzinfo is not None
        prefix = b"Z" if has_zone else b""
        return prefix + _encode_array(as_time(value))
    if isinstance(value, Decimal):
        return _encode_decimal(value)
    if isinstance(value, (set, frozenset)):
        return _join(b"{", sorted(_encode(item) for item in value), len(value))
    raise _unknown_error(value)


def _with_length(mark: bytes, data: bytes) -> bytes:
    return mark + _LENGTH.pack(len(data)) + data


def _join(mark: bytes, encoded_parts: Sequence[bytes], length: int) -> bytes:
    return mark + _LENGTH.pack(length) + b"".join(encoded_parts)


def _unknown_error(value: Any) -> ConfigError:
    value_type = type(value)
    return ConfigError(
        f"samples with a {value_type.__module__}.{value_type.__qualname__} cannot be compared by "
        "digest; map it to numbers, strings, arrays, or dicts and lists of these, "
        "or compare other columns"
    )


# ------------------------------------------------------------------------------------------ numbers


def _encode_number(value: float) -> bytes:
    """Encode a number as :func:`_encode_numbers` does, 20 times as fast."""
    if isinstance(value, float):
        is_integer = value.is_integer() and -(2.0**63) <= value < 2.0**64
        if not is_integer:
            number = value if value == value else math.nan  # all NaN have one encoding
            return b"Nd\0" + _NUMBER_FORMATS[_DOUBLE].pack(number)
        value = int(value)
    integer = int(value)  # of a bool, or of a class derived from int
    for code, lowest, highest in _INTEGER_RANGES:
        if lowest <= integer <= highest:
            return b"N" + code + _NO_DIMENSIONS + _NUMBER_FORMATS[code].pack(integer)
    return _encode_decimal(Decimal(integer))


def _encode_decimal(value: Decimal) -> bytes:
    """Encode a decimal as the equal float or integer of 64 bits; otherwise as text."""
    if value.is_nan():
        return _encode_number(math.nan)
    nearest_float = float(value)
    if Decimal(nearest_float) == value:
        return _encode_number(nearest_float)
    if -(2**63) <= value < 2**64 and value == value.to_integral_value():
        return _encode_number(int(value))
    text = str(_EXACT.normalize(value))
    return _with_length(b"E", text.encode())


def _encode_numbers(array: _Array) -> bytes:
    """Encode numbers as bytes, signed or unsigned integers, or floats.

    It is the first of these that holds all of them.

    Raises:
        ConfigError: they are floats that float64 does not hold.
    """
    if array.dtype.kind == "f":
        doubles = array.astype(np.float64, copy=False)
        if not np.array_equal(doubles, array, equal_nan=True):
            raise ConfigError(
                f"values of dtype {array.dtype} are rounded as float64; "
                "cast them before you compare them"
            )
        array = doubles

    are_integers = array.dtype.kind != "f" or bool((np.trunc(array) == array).all())
    if are_integers:
        smallest = array.min().item() if array.size else 0
        largest = array.max().item() if array.size else 0
        for code, lowest, highest in _INTEGER_RANGES:
            if lowest <= smallest and largest <= highest:
                integers = array.astype("<" + code.decode())
                return b"N" + code + _encode_shape(array) + integers.tobytes()

    doubles = np.atleast_1d(array).astype("<f8") + 0.0  # -0.0 becomes 0.0
    is_nan = np.isnan(doubles)
    if is_nan.any():
        doubles[is_nan] = math.nan  # all NaN have one encoding
    return b"N" + _DOUBLE + _encode_shape(array) + doubles.tobytes()


# ----------------------------------------------------------------------------- sequences and arrays


def _encode_sequence(values: Sequence[Any]) -> bytes:
    """Encode a list or tuple: as an array, if it is equal to one."""
    # An element that cannot be stacked is refused below, or encoded by itself.
    with contextlib.suppress(ValueError, TypeError, OverflowError, RuntimeError):
        column = stack_values(values)
        if column.dtype.kind in "biufcmM":
            return _encode_array(column)
    return _join(b"L", [_encode(value) for value in values], len(values))


def _encode_array(value: Any) -> bytes:
    """Encode an array, a scalar of numpy's, or a tensor.

    Raises:
        ConfigError: its values are of an unknown type.
    """
    array = _as_numpy(value)
    kind = array.dtype.kind
    if kind in "biuf":
        return _encode_numbers(array)
    if kind == "c":
        return _encode_complex(array)
    if kind in "mM":
        ticks = [_encode_ticks(time) for time in array.reshape(-1)]
        return kind.encode() + _encode_shape(array) + b"".join(ticks)
    if kind == "V":
        return _encode_records(array, value)
    is_unknown_scalar = array.ndim == 0 and array[()] is value
    if is_unknown_scalar:
        raise _unknown_error(value)
    return _encode(array.tolist())  # strings and other objects, as Python's own


def _encode_records(array: _Array, value: Any) -> bytes:
    """Encode an array of dtype void: of records, or of numbers that numpy does not know.

    Args:
        array: the array.
        value: what it was made of, for the error.
    """
    is_number_of_a_package = array.dtype.type is not np.void  # such as bfloat16
    if is_number_of_a_package:
        return _encode_numbers(array.astype(np.float64))
    is_scalar = array.ndim == 0 and array[()] is value
    if array.dtype.names is None or is_scalar:
        raise _unknown_error(value)
    if array.ndim:
        return _join(b"L", [_encode_array(row) for row in array], len(array))
    return _encode({name: array[name][()] for name in array.dtype.names})


def _encode_complex(array: _Array) -> bytes:
    parts = np.stack([array.real, array.imag], axis=-1)
    has_imaginary_parts = parts[..., 1].any()
    return b"C" + _encode_numbers(parts) if has_imaginary_parts else _encode_numbers(array.real)


def _encode_ticks(time: Any) -> bytes:
    """Encode a time in attoseconds, or a span in months: exact, and the same for all units."""
    if np.isnat(time):
        return b"-"
    unit, ticks = ticks_of(time)
    n_bytes = ticks.bit_length() // 8 + 1
    return _with_length(unit.encode(), ticks.to_bytes(n_bytes, "little", signed=True))


def _encode_shape(array: _Array) -> bytes:
    lengths = [_LENGTH.pack(length) for length in array.shape]
    return bytes([array.ndim]) + b"".join(lengths)


def _as_numpy(value: Any) -> _Array:
    """Return an array or tensor as a numpy array.

    Raises:
        ConfigError: numpy cannot hold it.
    """
    try:
        return as_array(value)
    except (TypeError, RuntimeError) as error:
        is_bfloat16 = str(getattr(value, "dtype", "")).endswith("bfloat16")
        if not is_bfloat16:
            raise _unknown_error(value) from error
        return as_array(value.float())
