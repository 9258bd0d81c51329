"""Reads structs of Thrift's compact protocol, in which Parquet stores footers and page headers.

pyarrow parses footers as well, but it shows nothing of page headers, and its C++ code ends the
process for some crafted footers. So both are read and checked here, before pyarrow uses them.

The protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any, Final

Struct = dict[int, Any]
"""Values by field number: integers of 32 bits, bytes, bools, lists and structs.

An integer of 64 bits stands under ``LONG | number``: pyarrow ignores a field whose integer has
another width than the standard requires, and here, too, such a field is missing.
"""

#: Added to the number of a field that holds an integer of 64 bits.
LONG: Final = 1 << 16
#: Added to the number of a field that holds an integer of 8 or 16 bits; Parquet needs none.
_SHORT: Final = 1 << 17

#: Levels of nested structs and lists; a footer has six. Reading is recursive.
_MAX_DEPTH: Final = 16
_TOO_DEEP: Final = "its footer is nested too deeply"
#: Bits of an integer.
_MAX_SHIFT: Final = 63
_MAX_FIELD_NUMBER: Final = (1 << 15) - 1

# The kinds of values.
_TRUE: Final = 1
_BOOLS: Final = (1, 2)
_BYTE: Final = 3
_INTEGERS: Final = (4, 5, 6)
_DOUBLE: Final = 7
_BINARY: Final = 8
_LISTS: Final = (9, 10)  # and sets
_STRUCT: Final = 12

#: By the kind of an integer. Bytes count as well.
_FLAGS_OF_WIDTHS: Final = {_BYTE: _SHORT, 4: _SHORT, 5: 0, 6: LONG}


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[Struct, int]:
    """Read a struct.

    Args:
        data: the bytes of a footer or of a page header.
        at: the offset of the struct.
        depth: number of structs and lists around it.

    Returns:
        The struct, and the offset of its end.

    Raises:
        ValueError: the data is damaged.
        IndexError: it ends too early.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    struct: Struct = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return struct, at
        # The high bits have the difference to the previous number; 0: the number follows.
        kind = head & 0x0F
        difference = head >> 4
        if difference:
            number += difference
        else:
            number, at = _read_integer(data, at)
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise ValueError(f"its footer has an invalid field {number}")
        if kind in _BOOLS:
            struct[number] = kind == _TRUE
        else:
            key = number | _FLAGS_OF_WIDTHS.get(kind, 0)
            struct[key], at = _read_value(data, at, kind, depth)


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read a value of a kind, except the bool of a struct, which has no bytes of its own."""
    if kind in _INTEGERS:
        return _read_integer(data, at)
    if kind == _BINARY:
        return _read_binary(data, at)
    if kind == _STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in _LISTS:
        return _read_list(data, at, depth + 1)
    if kind == _BYTE or kind in _BOOLS:  # a bool in a list takes a byte
        return data[at], at + 1
    if kind == _DOUBLE:  # Parquet's structs have none
        return None, at + 8
    raise ValueError(f"its footer has a value of the invalid kind {kind}")


def _read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_unsigned(data, at)
    end = at + length
    if end > len(data):
        raise IndexError("its end")
    return data[at:end], end


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    head = data[at]
    at += 1
    kind = head & 0x0F
    length = head >> 4
    if length == 15:  # or more: the length follows
        length, at = _read_unsigned(data, at)
    if length > len(data) - at:  # each value takes at least one byte
        raise IndexError("its end")
    values = []
    for _ in range(length):
        value, at = _read_value(data, at, kind, depth)
        values.append(value)
    return values, at


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed integer: 0, -1, 1, -2, 2 … are stored as 0, 1, 2, 3, 4 …"""
    number, at = _read_unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned integer: 7 bits a byte, the lowest first; the last byte is below 128."""
    number = 0
    shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError("its footer has a number of more than 64 bits")
