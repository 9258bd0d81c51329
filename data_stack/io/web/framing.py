"""Where the body of an answer ends and how it is encoded, by its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.io.redaction import printable
from data_stack.io.web.header_lines import values_of

_LENGTH: Final = re.compile(r"[0-9]{1,18}")
#: How much of a header is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class Framing:
    """What the headers of an answer say about where its body ends.

    Attributes:
        transfer_coding: the ``Transfer-Encoding``, in lower case; empty if there is none.
        content_length: the ``Content-Length`` as it was sent; empty if there is none. If the header
            was sent several times, the values are joined with commas, as requests does.
    """

    transfer_coding: str
    content_length: str

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Framing:
        """Return what headers say, whose names may be in any case."""
        transfer_coding = headers.get("Transfer-Encoding", "").strip().lower()
        content_length = headers.get("Content-Length", "").strip()
        return cls(transfer_coding, content_length)

    @classmethod
    def from_fields(cls, fields: Sequence[tuple[str, str]]) -> Framing:
        """Return what names and values of header lines say."""
        transfer_coding = values_of(fields, "transfer-encoding")
        content_length = values_of(fields, "content-length")
        return cls(transfer_coding.strip().lower(), content_length)

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks, whose sizes are sent between them."""
        return self.transfer_coding == "chunked"

    @property
    def length(self) -> int | None:
        """The announced length of the body in bytes.

        None if none was announced, or if the body comes in chunks.
        """
        if self.is_chunked:
            return None
        first_length = self._lengths()[0]
        if not _LENGTH.fullmatch(first_length):
            return None
        return int(first_length)

    def find_fault(self) -> str | None:
        """Look for headers that do not say clearly where the body begins and ends.

        The only transfer coding that can be decoded is ``chunked`` alone. Another one, such as
        ``gzip, chunked``, would leave compressed bytes or the sizes of chunks between the bytes of
        the file: https://www.rfc-editor.org/rfc/rfc9112#section-6.3.

        Returns:
            What is wrong, without a subject; None if the framing is clear.
        """
        if self.transfer_coding not in ("", "identity", "chunked"):
            shown = printable(self.transfer_coding)[:_MAX_SHOWN_CHARACTERS]
            return f"sends the body with the transfer coding {shown!r}, which was not requested"

        if self.is_chunked or not self.content_length:
            return None
        lengths = self._lengths()
        are_all_equal = len(set(lengths)) == 1
        if not are_all_equal or not _LENGTH.fullmatch(lengths[0]):
            shown = printable(self.content_length)[:_MAX_SHOWN_CHARACTERS]
            return f"announces a length that is not a number: {shown!r}"
        return None

    def _lengths(self) -> list[str]:
        """Return the announced lengths as written; an empty text if there is none."""
        return [length.strip() for length in self.content_length.split(",")]


def content_encoding(headers: Mapping[str, str]) -> str | None:
    """Return the coding in which a body was sent, such as ``gzip``; None if there is none."""
    coding = headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    return printable(coding)[:_MAX_SHOWN_CHARACTERS]
