"""What the pages of a column claim to unpack to, which stands before each of them."""

from __future__ import annotations

from typing import Any, Final

from data_stack.formats.parquet.footer_structs import read_struct

__all__ = ["claimed_by_pages"]

#: Most headers take some tens of bytes; those with statistics of long texts take more.
_HEADER_BYTES: Final = 256
_MOST_HEADER_BYTES: Final = 16 << 20
_TYPE, _UNPACKED, _STORED = 1, 2, 3
_DICTIONARY: Final = 2


def claimed_by_pages(source: Any, start: int, end: int) -> tuple[int, int]:
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
