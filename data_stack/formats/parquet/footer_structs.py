"""Reads the structs of footers and of the headers of pages, which are stored in Thrift's compact protocol.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any, Final

Struct = dict[int, Any]
"""Values by field number: integers of 32 bits, bytes, truth values, lists and structs; integers of 64 bits by ``LONG | number``.

pyarrow takes a field for missing whose integer has another width than the standard says. So it must be missing here.
"""

LONG: Final = 1 << 16
#: By the kind of an integer; those of 8 and 16 bits occur in no field that matters.
_WIDTHS: Final = {3: 1 << 17, 4: 1 << 17, 6: LONG}
_LARGEST_NUMBER: Final = (1 << 15) - 1

#: Structs in structs; a footer has six levels.
_MOST_DEPTH: Final = 16


def read_struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """A struct, and where it ends.

    Args:
        data: of a footer.
        at: where the struct begins.
        depth: in how many others it lies.

    Raises:
        ValueError: the footer is damaged.
        IndexError: it ends too early.
    """
    if depth > _MOST_DEPTH:
        raise ValueError("its footer is nested too deep")
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head > 0x0F:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if not 0 < number <= _LARGEST_NUMBER:
            raise ValueError(f"its footer has a field {number}, which no footer has")
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
    if kind in (1, 2, 3):  # in a list a truth value takes a byte
        return data[at], at + 1
    if kind == 7:
        return None, at + 8
    raise ValueError(f"its footer holds a value of the kind {kind}, which no footer has")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MOST_DEPTH:
        raise ValueError("its footer is nested too deep")
    head, at = data[at], at + 1
    length, kind = head >> 4, head & 0x0F
    if length == 15:
        length, at = _read_unsigned(data, at)
    if length > len(data) - at:  # each takes a byte at least
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
            raise ValueError("its footer holds a number of more than 64 bits")


# ---------------------------------------------------------------------- the headers of pages

#: Most headers take some tens of bytes; those with statistics of long texts take more.
_HEADER_BYTES: Final = 256
_MOST_HEADER_BYTES: Final = 16 << 20
_TYPE, _UNPACKED, _STORED = 1, 2, 3
_DICTIONARY: Final = 2


def bytes_claimed_by_pages(source: Any, start: int, end: int) -> tuple[int, int]:
    """Bytes that the pages between two positions of a file say that they unpack to: all together, and that of a dictionary.

    Args:
        source: an open file of pyarrow.
        start: of the first page.
        end: of the last one.

    Raises:
        ValueError: a header is damaged.

    The format: https://parquet.apache.org/docs/file-format/data-pages/
    """
    claimed = dictionary = 0
    while start < end:
        header, n_bytes = _header(source, start, end)
        unpacked, stored = header.get(_UNPACKED), header.get(_STORED)
        # Of a damaged header, a field of another type than a number may have been read under the number of this one.
        if type(unpacked) is not int or type(stored) is not int or unpacked < 0 or stored < 0:
            raise ValueError(f"the page at byte {start} does not tell its size")
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
            if len(data) < size or size >= _MOST_HEADER_BYTES:
                raise ValueError(f"the header of the page at byte {start} is cut short") from None
            size *= 16
