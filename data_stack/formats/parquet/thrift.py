"""Reads structs of Thrift's compact protocol, in which Parquet stores footers and page headers.

pyarrow parses footers as well, but it returns no page headers, and its C++ code ends the process
for some crafted footers. So both are read and checked here, before pyarrow uses them.

The protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any, Final

#: The values of a struct by field number: integers of 32 bits, bytes, bools, lists and structs.
#:
#: An integer of 64 bits has the key ``LONG | number`` instead of ``number``. pyarrow ignores a
#: field whose integer has another width than Parquet's specification requires. A reader of a
#: Struct ignores it as well, because it asks for the key of the required width.
Struct = dict[int, Any]

#: Added to the number of a field that holds an integer of 64 bits.
LONG: Final = 1 << 16
#: Added to the number of a field that holds an integer of 8 or 16 bits. Parquet has no such field.
_SHORT: Final = 1 << 17

#: The maximum depth of nested structs and lists, because reading is recursive. Parquet's footer
#: has a depth of 6.
_MAX_DEPTH: Final = 16
_TOO_DEEP: Final = "its structs are nested too deeply"
#: An unsigned integer has 7 bits a byte: the tenth byte begins at this bit and is the last one.
_MAX_SHIFT: Final = 63
_MAX_FIELD_NUMBER: Final = (1 << 15) - 1

_MASK_OF_32_BITS: Final = (1 << 32) - 1
_MASK_OF_64_BITS: Final = (1 << 64) - 1

# The protocol's numbers of types.
_TRUE: Final = 1
_FALSE: Final = 2
_INT8: Final = 3
_INT16: Final = 4
_INT32: Final = 5
_INT64: Final = 6
_DOUBLE: Final = 7
_BINARY: Final = 8
_LIST: Final = 9
_SET: Final = 10
_STRUCT: Final = 12

#: What is added to the number of a field, by the type of its value; nothing for other types.
_KEY_FLAGS: Final = {_INT8: _SHORT, _INT16: _SHORT, _INT64: LONG}

#: In the head of a list: 15 or more values; the number of values follows.
_LONG_LIST: Final = 15


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[Struct, int]:
    """Read a struct.

    Args:
        data: the bytes of a footer or of a page header.
        at: the offset of the struct.
        depth: number of structs and lists that contain the struct.

    Returns:
        The struct, and the offset of its end.

    Raises:
        ValueError: the data is damaged.
        IndexError: the data ends before the struct does.
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
        type_ = head & 0x0F
        # The high bits are the difference to the number of the field before. If they are 0, the
        # number follows.
        difference = head >> 4
        if difference:
            number += difference
        else:
            number, at = _read_integer(data, at, _MASK_OF_64_BITS)
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise ValueError(f"a struct has the invalid field number {number}")
        if type_ in (_TRUE, _FALSE):
            struct[number] = type_ == _TRUE
        else:
            key = number | _KEY_FLAGS.get(type_, 0)
            struct[key], at = _read_value(data, at, type_, depth)


def _read_value(data: bytes, at: int, type_: int, depth: int) -> tuple[Any, int]:
    """Read a value, and return it with the offset of its end.

    The bool of a struct is no such value: its type is the value.
    """
    if type_ == _INT32:
        return _read_integer(data, at, _MASK_OF_32_BITS)
    if type_ in (_INT16, _INT64):
        return _read_integer(data, at, _MASK_OF_64_BITS)
    if type_ == _BINARY:
        return _read_binary(data, at)
    if type_ == _STRUCT:
        return read_struct(data, at, depth + 1)
    if type_ in (_LIST, _SET):
        return _read_list(data, at, depth + 1)
    if type_ in (_INT8, _TRUE, _FALSE):  # a bool in a list takes a byte
        return data[at], at + 1
    if type_ == _DOUBLE:  # Parquet's structs have none
        return None, at + 8
    raise ValueError(f"a value has the unknown type {type_}")


def _read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_unsigned(data, at)
    end = at + length
    if end > len(data):
        raise IndexError("the data ends within bytes")
    return data[at:end], end


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    head = data[at]
    at += 1
    type_ = head & 0x0F
    length = head >> 4
    if length == _LONG_LIST:
        length, at = _read_unsigned(data, at)
    if length > len(data) - at:  # each value takes at least one byte
        raise IndexError("the data ends within a list")
    values = []
    for _ in range(length):
        value, at = _read_value(data, at, type_, depth)
        values.append(value)
    return values, at


def _read_integer(data: bytes, at: int, mask: int) -> tuple[int, int]:
    """Read a signed integer in zigzag encoding: 0, -1, 1, -2, 2 … are stored as 0, 1, 2, 3, 4 …

    Args:
        data: the bytes.
        at: the offset of the integer.
        mask: the bits of the stored number that count. Thrift's C++ library, which pyarrow uses,
            reads up to 64 bits of an integer of 32 bits and drops the high ones. If they counted
            here, a page header could state one size to this reader and another to pyarrow.
    """
    stored, at = _read_unsigned(data, at)
    stored &= mask
    magnitude = stored >> 1
    is_negative = stored & 1
    return magnitude ^ -is_negative, at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned integer of 64 bits: 7 bits a byte, the lowest first.

    The last byte is below 128.
    """
    number = 0
    shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            # of the tenth byte, only one bit counts
            return number & _MASK_OF_64_BITS, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError("a number has more than 64 bits")
