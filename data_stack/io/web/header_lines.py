"""Reads the header lines of an answer."""

from __future__ import annotations

import http.client
import re
from collections.abc import Sequence
from typing import Final, Protocol

from data_stack.io.redaction import printable

#: The limits of http.client.
_MAX_LINE_BYTES: Final = 65_536
_MAX_LINES: Final = 100
#: A name is a token, and the colon follows at once:
#: https://www.rfc-editor.org/rfc/rfc9112#section-5. These characters may not be in a value:
#: https://www.rfc-editor.org/rfc/rfc9110#section-5.5.
_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00\r\n]*)")
#: How much of a line is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 60


class BadHeaderError(http.client.HTTPException):
    """The header of an answer cannot be read clearly."""


class _Lines(Protocol):
    """A file of bytes."""

    def readline(self, limit: int, /) -> bytes:
        """Return the next line with its end; empty at the end of the file."""
        ...


def read_fields(file: _Lines) -> list[tuple[str, str]]:
    """Read header lines up to the empty line behind them, and return their names and values.

    Unlike ``http.client.parse_headers``, it refuses a line that is no header, and a header that is
    cut short: that function ignores such a line with all lines behind it. It parses by the package
    email, which makes 240 calls for six lines.

    Args:
        file: the file of the connection, behind the status line.

    Raises:
        BadHeaderError: a line is no header, or there are too many lines.
        http.client.IncompleteRead: the connection was cut before the empty line.
        http.client.LineTooLong: a line is too long.
    """
    fields = list[tuple[str, str]]()
    for _ in range(_MAX_LINES + 1):
        line = file.readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise http.client.LineTooLong("header line")
        if not line.endswith(b"\n"):
            raise http.client.IncompleteRead(line)
        text = line.decode("latin-1").rstrip("\r\n")
        if not text:
            return fields
        is_continued = text[0] in " \t" and bool(fields)
        if is_continued:
            # An old way to send a long value: https://www.rfc-editor.org/rfc/rfc9112#section-5.2
            name, value = fields.pop()
            text = f"{name}:{value} {text.strip()}"
        match = _LINE.fullmatch(text)
        if match is None:
            shown = printable(text)[:_MAX_SHOWN_CHARACTERS]
            raise BadHeaderError(f"sends a header that cannot be read: {shown!r}")
        fields.append((match[1], match[2].strip(" \t")))
    raise BadHeaderError(f"sends more than {_MAX_LINES} header lines")


def values_of(fields: Sequence[tuple[str, str]], name: str) -> str:
    """Return the value of a header, of which several are joined with commas; empty if none is.

    Args:
        fields: names and values.
        name: the name in lower case.
    """
    values = [value for field_name, value in fields if field_name.lower() == name]
    return ", ".join(values)
