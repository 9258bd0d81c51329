"""What an answer says about the version of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.io.redaction import printable

#: A weak tag begins with ``W/``, and does not promise equal bytes:
#: https://www.rfc-editor.org/rfc/rfc9110#section-8.8.3.
_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
#: How much of a tag or date is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What an answer says about the version of a file.

    Attributes:
        etag: the ETag as it was sent, with its quotes; empty if none was.
        last_modified: the date as it was sent; empty if none was.
        size: length of the whole file in bytes; None if it was not announced.
    """

    etag: str = ""
    last_modified: str = ""
    size: int | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], size: int | None = None) -> FileVersion:
        """Return what the headers of an answer say.

        Args:
            headers: the headers; their names in any case.
            size: length of the whole file in bytes, if it is known.
        """
        etag = headers.get("ETag", "").strip()
        last_modified = headers.get("Last-Modified", "").strip()
        return cls(etag, last_modified, size)

    @property
    def strong_etag(self) -> str | None:
        """The ETag, if files with equal tags have equal bytes; else None."""
        if _STRONG_ETAG.fullmatch(self.etag):
            return self.etag
        return None

    def conditions(self) -> dict[str, str]:
        """Return request headers that make the server refuse another version of the file."""
        if self.strong_etag is not None:
            return {"If-Match": self.strong_etag}
        if self.last_modified:
            return {"If-Unmodified-Since": self.last_modified}
        return {}

    def agrees_with(self, later: FileVersion) -> bool:
        """Return whether a later answer is of the same version.

        A later answer without an ETag differs from an earlier one with an ETag, and so does one
        without a date. If both answers have only a size, the sizes decide.
        """
        are_sizes_known = self.size is not None and later.size is not None
        if are_sizes_known and self.size != later.size:
            return False
        if self.etag != later.etag:
            return False
        if self.strong_etag is not None:
            # The date of an unchanged file differs between servers that share its strong tag.
            return True
        return self.last_modified == later.last_modified

    def __str__(self) -> str:
        facts = []
        if self.size is not None:
            facts.append(f"{self.size:,} bytes")
        if self.etag:
            facts.append(f"ETag {printable(self.etag)[:_MAX_SHOWN_CHARACTERS]}")
        else:
            facts.append("no ETag")
        if self.last_modified:
            shown = printable(self.last_modified)[:_MAX_SHOWN_CHARACTERS]
            facts.append(f"Last-Modified {shown}")
        return ", ".join(facts)
