"""Parts of one version of a file: what is asked for, and whether an answer is that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.io.redaction import printable
from data_stack.io.web.framing import announced_length

#: A weak tag begins with ``W/``, and does not promise equal bytes:
#: https://www.rfc-editor.org/rfc/rfc9110#section-8.8.3.
_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_UNSATISFIED_RANGE: Final = re.compile(r"bytes \*/(\d{1,18})")
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
    def of(cls, headers: Mapping[str, str], size: int | None = None) -> FileVersion:
        """Return what the header of an answer says.

        Args:
            headers: the headers; their names in any case.
            size: length of the whole file in bytes, if it is known.
        """
        etag = headers.get("ETag", "").strip()
        last_modified = headers.get("Last-Modified", "").strip()
        return cls(etag, last_modified, size)

    @property
    def strong_etag(self) -> str | None:
        """The ETag, if equal ones promise equal bytes; else None."""
        if _STRONG_ETAG.fullmatch(self.etag):
            return self.etag
        return None

    def conditions(self) -> dict[str, str]:
        """Return the headers of a request that only this version of the file fulfils."""
        if self.strong_etag is not None:
            return {"If-Match": self.strong_etag}
        if self.last_modified:
            return {"If-Unmodified-Since": self.last_modified}
        return {}

    def is_kept_by(self, later: FileVersion) -> bool:
        """Return whether a later answer is of the same version.

        What the earlier answer told of the version, the later one must tell as well: a tag that is
        missing is not an equal one. Where neither tells anything but the size, the size decides.
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


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of a file to ask for.

    Attributes:
        start: its first byte.
        stop: the byte behind its last one; None for the end of the file. A file that ends earlier
            sends what it has.
        version: the version that the file must have; None for any.
        or_whole: what the server does if the file has another version: send it whole (``If-Range``)
            or, if False, refuse (``If-Match``). If True, the version must have a strong ETag.
    """

    start: int
    stop: int | None = None
    version: FileVersion | None = None
    or_whole: bool = False

    @classmethod
    def requested_by(cls, headers: Mapping[str, str]) -> ByteRange | None:
        """Return the part for which the ``Range`` among headers asks.

        None if there is no such header, or if it asks for several parts.
        """
        for name, value in headers.items():
            if name.lower() != "range":
                continue
            match = _RANGE.fullmatch(value.strip())
            if match is None:
                continue
            start, last = match.groups()
            stop = int(last) + 1 if last else None
            return cls(int(start), stop)
        return None

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for this part.

        Raises:
            ValueError: ``or_whole``, and the version has no strong ETag.
        """
        last = "" if self.stop is None else self.stop - 1
        headers = {"Range": f"bytes={self.start}-{last}"}
        if self.version is None:
            return headers
        if not self.or_whole:
            headers.update(self.version.conditions())
            return headers
        if self.version.strong_etag is None:
            raise ValueError(
                "only a strong ETag tells whether the rest of a file fits its beginning"
            )
        headers["If-Range"] = self.version.strong_etag
        return headers

    def __str__(self) -> str:
        end = "the end" if self.stop is None else f"{self.stop:,}"
        return f"bytes {self.start:,} to {end}"


@dataclass(frozen=True, slots=True)
class SentRange:
    """The ``Content-Range`` of an answer with status 206.

    Attributes:
        start: the first byte.
        stop: the byte behind the last one.
        size: length of the whole file in bytes; None if the server does not know it.
    """

    start: int
    stop: int
    size: int | None

    def is_all_of(self, asked: ByteRange) -> bool:
        """Return whether this is the part that was asked for, or as much of it as the file has."""
        begins_right = self.start == asked.start and self.start < self.stop
        if not begins_right:
            return False
        if asked.stop is None:
            return self.stop == self.size
        if self.stop == asked.stop:
            return True
        # Only the end of the file may end a part early.
        may_be_end_of_file = self.size is None or self.stop == self.size
        return self.stop < asked.stop and may_be_end_of_file

    def __str__(self) -> str:
        return f"bytes {self.start:,} to {self.stop:,}"


def sent_range(headers: Mapping[str, str]) -> SentRange | None:
    """Return the part of a file that an answer announces; None if it announces none."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    start, last, size_text = match.groups()
    size = None if size_text == "*" else int(size_text)
    return SentRange(int(start), int(last) + 1, size)


def size_beyond(headers: Mapping[str, str]) -> int | None:
    """Return the length of the file that an answer with status 416 announces, or None."""
    match = _UNSATISFIED_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    return int(match[1])


def refuse_part(asked: ByteRange, headers: Mapping[str, str]) -> str | None:
    """Return why an answer with status 206 is not the part that was asked for; None if it is."""
    media_type = headers.get("Content-Type", "").strip().lower()
    if media_type.startswith("multipart/byteranges"):
        return "sends several parts (multipart/byteranges), one was requested"
    sent = sent_range(headers)
    if sent is None:
        return f"does not say which part it sends, requested were {asked}"
    if not sent.is_all_of(asked):
        of_size = "" if sent.size is None else f" of {sent.size:,}"
        return f"sends {sent}{of_size}, requested were {asked}"
    length = announced_length(headers)
    if length is not None and length != sent.stop - sent.start:
        return f"announces {length:,} bytes for a part of {sent.stop - sent.start:,}"
    return None
