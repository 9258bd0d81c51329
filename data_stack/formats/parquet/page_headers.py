"""Reads the sizes that page headers claim, which pyarrow allocates before it decompresses a page.

The format: https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from data_stack.formats.parquet.thrift import Struct, read_struct

#: Most headers take tens of bytes; those with statistics of long texts take more.
_HEADER_BYTES: Final = 256
_MAX_HEADER_BYTES: Final = 16 << 20

# Field numbers of a header, and the type of a page.
_TYPE: Final = 1
_RAW_BYTES: Final = 2
_STORED_BYTES: Final = 3
_DICTIONARY_PAGE: Final = 2


class ClaimedBytes(NamedTuple):
    """The bytes before compression that the headers of pages claim.

    Attributes:
        all_pages: of all pages together.
        largest_dictionary: of the largest page with a dictionary; 0 without one.
    """

    all_pages: int
    largest_dictionary: int


def read_claimed_bytes(source: Any, start: int, end: int) -> ClaimedBytes:
    """Add up the sizes that the page headers of a column chunk claim.

    Args:
        source: an open file of pyarrow.
        start: offset of the first page.
        end: end of the last page.

    Raises:
        ValueError: a header is damaged.
    """
    n_bytes = 0
    largest_dictionary = 0
    while start < end:
        header, n_header_bytes = _read_header(source, start, end)
        raw_bytes = _size_in(header, _RAW_BYTES, start)
        stored_bytes = _size_in(header, _STORED_BYTES, start)
        n_bytes += raw_bytes
        if header.get(_TYPE) == _DICTIONARY_PAGE:
            largest_dictionary = max(largest_dictionary, raw_bytes)
        start += n_header_bytes + stored_bytes
    return ClaimedBytes(n_bytes, largest_dictionary)


def _size_in(header: Struct, number: int, start: int) -> int:
    size = header.get(number)
    # in a damaged header, the field may have another type
    if type(size) is not int or size < 0:
        raise ValueError(f"the page at byte {start} does not state its size")
    return size


def _read_header(source: Any, start: int, end: int) -> tuple[Struct, int]:
    """Read the header at ``start``, and return it with its length."""
    size = _HEADER_BYTES
    while True:
        data: bytes = source.read_at(min(size, end - start), start)
        try:
            return read_struct(data)
        except IndexError:
            is_whole = len(data) < size
            if is_whole or size >= _MAX_HEADER_BYTES:
                raise ValueError(f"the header of the page at byte {start} is truncated") from None
            size *= 16
