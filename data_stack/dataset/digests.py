"""Digests of samples: equal for equal samples, wherever and in whatever batch they are read."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
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
        return _hashed(_encodings(batch))
    if isinstance(batch, Mapping):
        keys = sorted(((_encoding(key), key) for key in batch), key=lambda pair: pair[0])
        parts: list[list[bytes]] = []
        n_samples = len(next(iter(batch.values()))) if batch else 0
        for number, (encoded_key, key) in enumerate(keys):
            start = b"D" + _LENGTH.pack(len(keys)) if number == 0 else b""
            parts += [[start + encoded_key] * n_samples, _encodings(batch[key])]
    else:
        n_samples = len(batch[0]) if batch else 0
        parts = [[b"T" + _LENGTH.pack(len(batch))] * n_samples, *map(_encodings, batch)]
    return _hashed([b"".join(row) for row in zip(*parts, strict=True)])


def column_digests(column: _Array) -> Digests:
    """The digest of each value ``v`` of one column, as that of the sample ``(v,)``; shape ``(n, 16)``, uint8.

    Raises:
        ConfigError: as :func:`sample_digest`.
    """
    return row_digests((column,))


def _hashed(encodings: Sequence[bytes]) -> Digests:
    sha256 = hashlib.sha256
    digests = b"".join([sha256(encoded).digest()[:DIGEST_BYTES] for encoded in encodings])
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


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
        return _encodings(np.array([value]))[0]
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
    """A number as :func:`_number_rows` writes it, 20 times as fast for a single one."""
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
            return _encodings(np.array([float(value)]))[0]
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
        return _encodings(array[np.newaxis])[0]
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
    if isinstance(value, np.ma.MaskedArray) and b"\1" in (mask := np.ma.getmaskarray(value)).tobytes():
        nothing: Any = np.zeros((), value.dtype)
        shown = value.filled(nothing)
        return b"".join([b"K", *_encodings(mask[np.newaxis]), *_encodings(shown[np.newaxis])])
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        try:
            array = np.asarray(tensor)
        except (TypeError, RuntimeError):  # of a dtype that numpy lacks, such as bfloat16
            try:
                array = np.asarray(tensor.double() if tensor.is_floating_point() else tensor.long())
            except (TypeError, RuntimeError) as error:
                raise _unknown(value) from error
    else:
        array = np.asarray(value)
    if array.dtype == object and array.ndim == 0:
        if array[()] is value:
            raise _unknown(value)
        return _encoding(array[()])
    return _encodings(array[np.newaxis])[0]


# ---------------------------------------------------------------------------------------------- the values of a column as bytes


def _encodings(column: _Array) -> list[bytes]:
    """The :func:`_encoding` of each value of a column, shape ``(n, ...)``."""
    kind = column.dtype.kind
    if len(column) == 0:
        return []
    if kind in "biuf":
        return _number_rows(column)
    if kind == "c":
        return _complex_rows(column)
    if kind in "mM":
        return _time_rows(column)
    if kind == "V":
        return _record_rows(column)
    return [_encoding(value) for value in column.tolist()]  # strings and other objects, as Python's own


def _number_rows(column: _Array) -> list[bytes]:
    shape = b"".join([bytes([column.ndim - 1]), *map(_LENGTH.pack, column.shape[1:])])
    rows = column.reshape(len(column), -1)
    encodings: list[bytes] = [b""] * len(rows)
    for code, numbers, values in _by_code(rows):
        packed = np.ascontiguousarray(values, dtype="<" + code.decode())
        header = b"N" + code + shape
        data: Any = packed.reshape(-1).view(np.uint8).data  # slices of a memoryview are made faster than those of an array
        width = packed.dtype.itemsize * packed.shape[1]
        if width:
            pieces = [b"".join((header, data[start : start + width])) for start in range(0, len(data), width)]
        else:
            pieces = [header] * len(packed)
        if numbers is None:
            return pieces
        for number, piece in zip(numbers.tolist(), pieces, strict=True):
            encodings[number] = piece
    return encodings


def _by_code(rows: _Array) -> list[tuple[bytes, npt.NDArray[np.intp] | None, _Array]]:
    """Rows of numbers, shape ``(n, k)``, by what each is written as: (code, which rows (None: all), their values)."""
    if rows.shape[1] == 0 or rows.dtype.kind == "b" or rows.dtype == np.uint8:
        return [(_BYTE, None, rows)]
    are_floats = rows.dtype.kind == "f"
    if are_floats:
        rows = _doubles(rows)
    low, high = rows.min(axis=1), rows.max(axis=1)
    whole = (np.trunc(rows) == rows).all(axis=1) if are_floats else np.ones(len(rows), dtype=bool)
    if are_floats:
        is_signed = (low >= -(2.0**63)) & (high < 2.0**63)
    else:
        is_signed = high.astype(np.uint64) < np.uint64(2**63) if rows.dtype.kind == "u" else whole
    is_unsigned = (low >= 0) & (high < 2.0**64) if are_floats else whole
    found: list[tuple[bytes, npt.NDArray[np.intp] | None, _Array]] = []
    left = np.ones(len(rows), dtype=bool)
    of_codes = ((_BYTE, whole & (low >= 0) & (high < 256)), (_SIGNED, whole & is_signed), (_UNSIGNED, whole & is_unsigned))
    for code, fits in (*of_codes, (_DOUBLE, left)):
        numbers = np.flatnonzero(left & fits)
        if len(numbers):
            values = (rows if len(numbers) == len(rows) else rows[numbers]).astype(code.decode())
            if code == _DOUBLE:
                values += 0.0  # -0.0 becomes 0.0
                values[np.isnan(values)] = math.nan
            found.append((code, numbers, values))
            left = left & ~fits
    return found


def _doubles(rows: _Array) -> _Array:
    doubles = rows.astype(np.float64, copy=False)
    if rows.dtype.itemsize > 8 and bool(((doubles != rows) & ~np.isnan(rows)).any()):
        raise ConfigError(f"values of dtype {rows.dtype} that are no float64 differ between machines; cast them first")
    return doubles


def _complex_rows(column: _Array) -> list[bytes]:
    parts = np.stack([column.real, column.imag], axis=-1)
    encodings = [b"C" + encoded for encoded in _encodings(parts)]
    real = (parts[..., 1] == 0).reshape(len(column), -1).all(axis=1)
    for number, encoded in zip(np.flatnonzero(real).tolist(), _encodings(column.real[real]), strict=True):
        encodings[number] = encoded
    return encodings


def _time_rows(column: _Array) -> list[bytes]:
    """By attoseconds, or months where a span has no number of days: exact for every unit, and the same for all of them."""
    start = column.dtype.kind.encode() + b"".join([bytes([column.ndim - 1]), *map(_LENGTH.pack, column.shape[1:])])
    return [start + b"".join(map(_ticks, row)) for row in column.reshape(len(column), -1)]


def _ticks(time: Any) -> bytes:
    if np.isnat(time):
        return b"-"
    counted_in, ticks = ticks_of(time)
    return counted_in.encode() + _whole_number(ticks)


def _record_rows(column: _Array) -> list[bytes]:
    if column.dtype.names is None:
        if column.dtype.type is not np.void:  # a package's own numbers, such as bfloat16
            return _encodings(column.astype(np.float64))
        raise ConfigError(
            f"samples with values of dtype {column.dtype} cannot be compared by digest; view them as bytes or numbers"
        )
    if column.ndim > 1:
        return [b"".join([b"L", _LENGTH.pack(len(row)), *_encodings(row)]) for row in column]
    names = sorted((_encoding(name), name) for name in column.dtype.names)
    start = b"D" + _LENGTH.pack(len(names))
    fields = [[encoded + value for value in _encodings(column[name])] for encoded, name in names]
    return [start + b"".join(row) for row in zip(*fields, strict=True)]
