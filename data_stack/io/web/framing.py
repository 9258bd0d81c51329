"""Where the body of an answer ends and how it is encoded, by its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from data_stack.io.redaction import printable

_LENGTH: Final = re.compile(r"[0-9]{1,18}")
#: How much of a header is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 40


def is_chunked(headers: Mapping[str, str]) -> bool:
    """Return whether the body comes in chunks, whose sizes are sent between them."""
    return _transfer_coding(headers) == "chunked"


def announced_length(headers: Mapping[str, str]) -> int | None:
    """Return the announced length of a body in bytes.

    None if none was announced, or if the body comes in chunks.
    """
    if is_chunked(headers):
        return None
    lengths = _lengths(headers)
    if not lengths or not _LENGTH.fullmatch(lengths[0]):
        return None
    return int(lengths[0])


def content_encoding(headers: Mapping[str, str]) -> str | None:
    """Return the coding in which a body was sent, such as ``gzip``; None if there is none."""
    coding = headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    return printable(coding)[:_MAX_SHOWN_CHARACTERS]


def find_framing_fault(headers: Mapping[str, str]) -> str | None:
    """Look for headers that do not say clearly where the body begins and ends.

    The only transfer coding that can be decoded is ``chunked`` alone. Another one, such as
    ``gzip, chunked``, would leave compressed bytes or the sizes of chunks between the bytes of the
    file: https://www.rfc-editor.org/rfc/rfc9112#section-6.3.

    Returns:
        What is wrong, without a subject; None if the framing is clear.
    """
    coding = _transfer_coding(headers)
    if coding not in ("", "identity", "chunked"):
        shown = printable(coding)[:_MAX_SHOWN_CHARACTERS]
        return f"sends the body with the transfer coding {shown!r}, which was not requested"

    lengths = _lengths(headers)
    if coding == "chunked" or not lengths:
        return None
    are_all_equal = len(set(lengths)) == 1
    if not are_all_equal or not _LENGTH.fullmatch(lengths[0]):
        shown = printable(headers["Content-Length"])[:_MAX_SHOWN_CHARACTERS]
        return f"announces a length that is not a number: {shown!r}"
    return None


def _transfer_coding(headers: Mapping[str, str]) -> str:
    return headers.get("Transfer-Encoding", "").strip().lower()


def _lengths(headers: Mapping[str, str]) -> list[str]:
    """Return the announced lengths as written.

    There are several if the header was sent several times: requests joins them with commas.
    """
    text = headers.get("Content-Length", "").strip()
    if not text:
        return []
    return [length.strip() for length in text.split(",")]
