"""Adds up the sizes that the page headers of a column chunk claim.

pyarrow allocates the claimed size of a page before it decompresses the page.
The format: https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from data_stack.formats.parquet.thrift import Struct, read_struct

#: How many bytes are read first for a header. Most headers take tens of bytes; headers with
#: statistics of long texts take more.
_HEADER_BYTES: Final = 256
#: How much more is read at each further try.
_HEADER_GROWTH: Final = 16
#: The longest header, as in pyarrow.
_MAX_HEADER_BYTES: Final = 16 << 20

# Field numbers of PageHeader: type, uncompressed_page_size and compressed_page_size.
_TYPE: Final = 1
_RAW_BYTES: Final = 2
_STORED_BYTES: Final = 3

#: The value of the field ``type`` of a page with a dictionary.
_DICTIONARY_PAGE: Final = 2


class ClaimedBytes(NamedTuple):
    """The sizes before compression that the headers of a column chunk's pages claim.

    Attributes:
        all_pages: size of all pages together, in bytes.
        largest_dictionary: size of the largest dictionary page, in bytes; 0 without such a page.
    """

    all_pages: int
    largest_dictionary: int


def read_claimed_bytes(source: Any, start: int, end: int) -> ClaimedBytes:
    """Add up the sizes that the page headers of a column chunk claim.

    Args:
        source: the file, open for pyarrow.
        start: offset of the first page.
        end: offset of the end of the last page.

    Raises:
        ValueError: a header is damaged.
    """
    all_pages = 0
    largest_dictionary = 0
    while start < end:
        header, n_header_bytes = _read_header(source, start, end)
        raw_bytes = _size_in(header, _RAW_BYTES, start)
        stored_bytes = _size_in(header, _STORED_BYTES, start)
        all_pages += raw_bytes
        if header.get(_TYPE) == _DICTIONARY_PAGE:
            largest_dictionary = max(largest_dictionary, raw_bytes)
        start += n_header_bytes + stored_bytes
    return ClaimedBytes(all_pages, largest_dictionary)


def _size_in(header: Struct, field: int, start: int) -> int:
    """Return the size in a field of the header of the page at ``start``.

    Raises:
        ValueError: the header has no such size.
    """
    size = header.get(field)
    # In a damaged header, the field may have another type.
    if type(size) is not int or size < 0:
        raise ValueError(f"the page at byte {start} does not state its size")
    return size


def _read_header(source: Any, start: int, end: int) -> tuple[Struct, int]:
    """Read the header at ``start``, and return it with its length in bytes.

    Raises:
        ValueError: the header is damaged.
    """
    n_bytes = _HEADER_BYTES
    while True:
        data: bytes = source.read_at(min(n_bytes, end - start), start)
        try:
            return read_struct(data)
        except IndexError:
            # The header is longer than the data, or truncated.
            has_no_more_bytes = len(data) < n_bytes
            if has_no_more_bytes or n_bytes >= _MAX_HEADER_BYTES:
                raise ValueError(f"the header of the page at byte {start} is truncated") from None
            n_bytes *= _HEADER_GROWTH
