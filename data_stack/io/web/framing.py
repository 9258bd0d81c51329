"""Where the body of an answer begins and ends, and how it is encoded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from data_stack.io.redaction import printable

_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def is_chunked(headers: Mapping[str, str]) -> bool:
    """Whether the body comes in chunks, whose sizes are not a part of it."""
    return headers.get("Transfer-Encoding", "").strip().lower() == "chunked"


def announced_length(headers: Mapping[str, str]) -> int | None:
    """Return the announced length of a body; None if none was, or if it comes in chunks."""
    if is_chunked(headers):
        return None
    lengths = _lengths(headers)
    return int(lengths[0]) if lengths and _LENGTH.fullmatch(lengths[0]) else None


def content_encoding(headers: Mapping[str, str]) -> str | None:
    """Return the coding in which a body was sent, such as ``gzip``; None if it was sent as it is."""
    coding = headers.get("Content-Encoding", "").strip().lower()
    return None if coding in ("", "identity") else printable(coding)[:40]


def refuse_framing(headers: Mapping[str, str]) -> str | None:
    """Return why it cannot be known where a body begins and ends; None if it can.

    Only ``chunked`` alone is undone. Another coding, such as ``gzip, chunked``, would leave sizes of chunks or packed bytes where
    the bytes of the file belong: https://www.rfc-editor.org/rfc/rfc9112#section-6.3.
    """
    coding = headers.get("Transfer-Encoding", "").strip().lower()
    if coding not in ("", "identity", "chunked"):
        return f"sends the body with the transfer coding {printable(coding)[:40]!r}, which was not requested"
    lengths = _lengths(headers)
    if coding == "chunked" or not lengths:
        return None
    if len(set(lengths)) > 1 or not _LENGTH.fullmatch(lengths[0]):
        sent = printable(headers["Content-Length"])[:40]
        return f"announces a length that is not a number: {sent!r}"
    return None


def _lengths(headers: Mapping[str, str]) -> list[str]:
    """The announced lengths; requests joins headers that were sent twice."""
    text = headers.get("Content-Length", "").strip()
    return [length.strip() for length in text.split(",")] if text else []
