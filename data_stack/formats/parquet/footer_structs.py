"""Reads the structs of footers and of the headers of pages, which are stored in Thrift's compact protocol.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any, Final

Struct = dict[int, Any]
"""Values by field number: 32-bit integers, bytes, booleans, lists and structs; 64-bit integers by ``LONG | number``.

pyarrow ignores a field whose integer has another width than the standard requires. Here, too, such a field is missing.
"""

LONG: Final = 1 << 16
#: By the kind of an integer; no field that we need has 8 or 16 bits.
_WIDTHS: Final = {3: 1 << 17, 4: 1 << 17, 6: LONG}
_MAX_NUMBER: Final = (1 << 15) - 1

#: Levels of nested structs; a footer has six.
_MAX_DEPTH: Final = 16


def read_struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """Read a struct; return it and its end.

    Args:
        data: the bytes of a footer.
        at: the offset of the struct.
        depth: number of structs around it.

    Raises:
        ValueError: the footer is damaged.
        IndexError: it ends too early.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("its footer is nested too deeply")
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head > 0x0F:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if not 0 < number <= _MAX_NUMBER:
            raise ValueError(f"its footer has an invalid field {number}")
        if kind <= 2:
            found[number] = kind == 1
        else:
            found[number | _WIDTHS.get(kind, 0)], at = _value(data, at, kind, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == 12:
        return read_struct(data, at, depth + 1)
    if kind in (9, 10):
        return _list(data, at, depth + 1)
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 8:
        length, at = _read_unsigned(data, at)
        if at + length > len(data):
            raise IndexError("its end")
        return data[at : at + length], at + length
    if kind in (1, 2, 3):  # in a list a boolean takes a byte
        return data[at], at + 1
    if kind == 7:
        return None, at + 8
    raise ValueError(f"its footer has a value of the invalid kind {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("its footer is nested too deeply")
    head, at = data[at], at + 1
    length, kind = head >> 4, head & 0x0F
    if length == 15:
        length, at = _read_unsigned(data, at)
    if length > len(data) - at:  # each value takes at least one byte
        raise IndexError("its end")
    found = []
    for _ in range(length):
        value, at = _value(data, at, kind, depth)
        found.append(value)
    return found, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _read_unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("its footer has a number of more than 64 bits")


# ---------------------------------------------------------------------- the headers of pages

#: Most headers take tens of bytes; those with statistics of long texts take more.
_HEADER_BYTES: Final = 256
_MAX_HEADER_BYTES: Final = 16 << 20
_TYPE, _UNPACKED, _STORED = 1, 2, 3
_DICTIONARY: Final = 2


def bytes_claimed_by_pages(source: Any, start: int, end: int) -> tuple[int, int]:
    """Add up the uncompressed sizes that page headers state.

    Args:
        source: an open file of pyarrow.
        start: offset of the first page.
        end: end of the last page.

    Returns:
        The bytes of all pages, and those of the largest dictionary page.

    Raises:
        ValueError: a header is damaged.

    The format: https://parquet.apache.org/docs/file-format/data-pages/
    """
    claimed = dictionary = 0
    while start < end:
        header, n_bytes = _header(source, start, end)
        unpacked, stored = header.get(_UNPACKED), header.get(_STORED)
        # In a damaged header, the field may have another type.
        if type(unpacked) is not int or type(stored) is not int or unpacked < 0 or stored < 0:
            raise ValueError(f"the page at byte {start} does not state its size")
        claimed += unpacked
        if header.get(_TYPE) == _DICTIONARY:
            dictionary = max(dictionary, unpacked)
        start += n_bytes + stored
    return claimed, dictionary


def _header(source: Any, start: int, end: int) -> tuple[dict[int, Any], int]:
    size = _HEADER_BYTES
    while True:
        data: bytes = source.read_at(min(size, end - start), start)
        try:
            return read_struct(data, 0, 0)
        except IndexError:
            if len(data) < size or size >= _MAX_HEADER_BYTES:
                raise ValueError(f"the header of the page at byte {start} is truncated") from None
            size *= 16
