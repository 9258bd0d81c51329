"""Tells text in UTF-16 and UTF-32 from text in UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Final

from data_stack.exception import DatasetFileCorruptError

#: The byte order marks; one of UTF-32 begins as one of UTF-16 does.
_ENCODING_BY_MARK: Final = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

#: The encodings without such a mark, by which of the first 4 bytes are zero in ASCII characters.
_ENCODING_BY_ZEROS: Final[Mapping[tuple[bool, ...], str]] = {
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
}


def check_not_utf16(head: bytes, name: str) -> None:
    """Check that text that is read as UTF-8 is not UTF-16 or UTF-32.

    Without a byte order mark, ASCII characters in these are valid UTF-8 with NULs between them.

    Args:
        head: the first bytes of the text, at least 4 unless it is shorter.
        name: the name of the file.

    Raises:
        DatasetFileCorruptError: the text is UTF-16 or UTF-32.
    """
    # Where the zero bytes of the first letters are.
    are_zero = tuple(byte == 0 for byte in head[:4])
    encoding = _ENCODING_BY_ZEROS.get(are_zero)
    for mark, encoding_of_mark in _ENCODING_BY_MARK.items():
        if head.startswith(mark):
            encoding = encoding_of_mark
            break
    if encoding is not None:
        raise DatasetFileCorruptError(
            f"{name!r} is text in {encoding}, as it begins with {head[:4]!r}; pass "
            f"encoding={encoding!r} (for CSV), or convert the file to utf-8"
        )
