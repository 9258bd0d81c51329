"""Parts of one version of a file: what is asked for, and whether the answer is that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.io.redaction import printable
from data_stack.io.web.framing import announced_length

#: RFC 9110, section 8.8.3: a weak tag begins with ``W/``, and does not promise equal bytes.
_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_UNSATISFIED_RANGE: Final = re.compile(r"bytes \*/(\d{1,18})")


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
            headers: names in any case.
            size: length of the whole file, if it is known.
        """
        etag = headers.get("ETag", "").strip()
        last_modified = headers.get("Last-Modified", "").strip()
        return cls(etag, last_modified, size)

    @property
    def strong_etag(self) -> str | None:
        """The ETag, if equal ones promise equal bytes; else None."""
        return self.etag if _STRONG_ETAG.fullmatch(self.etag) else None

    def conditions(self) -> dict[str, str]:
        """Return the headers of a request that only this version of the file fulfils."""
        if self.strong_etag is not None:
            return {"If-Match": self.strong_etag}
        if self.last_modified:
            return {"If-Unmodified-Since": self.last_modified}
        return {}

    def is_kept_by(self, now: FileVersion) -> bool:
        """Whether a later answer is of the same version.

        What the earlier answer told of the version, the later one must tell as well: a tag that is missing is not an equal one.
        Where neither tells anything but the size, nothing can be compared but that.
        """
        are_sizes_known = self.size is not None and now.size is not None
        if are_sizes_known and self.size != now.size:
            return False
        if self.etag != now.etag:
            return False
        # The date of an unchanged file differs between servers that share its strong tag.
        return self.strong_etag is not None or self.last_modified == now.last_modified

    def __str__(self) -> str:
        facts = []
        if self.size is not None:
            facts.append(f"{self.size:,} bytes")
        facts.append(f"ETag {printable(self.etag)[:80]}" if self.etag else "no ETag")
        if self.last_modified:
            facts.append(f"Last-Modified {printable(self.last_modified)[:80]}")
        return ", ".join(facts)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of a file to ask for.

    Attributes:
        start: its first byte.
        stop: the byte behind its last one; None for the end of the file. A file that ends earlier sends what it has.
        version: the version that it must be of; None for any.
        or_whole: whether the server sends another version of the file whole (``If-Range``), instead of refusing (``If-Match``).
            The version must have a strong ETag then.
    """

    start: int
    stop: int | None = None
    version: FileVersion | None = None
    or_whole: bool = False

    @classmethod
    def requested_by(cls, headers: Mapping[str, str]) -> ByteRange | None:
        """Return the part that the ``Range`` among headers asks for; None if there is none, or several parts."""
        for name, value in headers.items():
            asked = _RANGE.fullmatch(value.strip())
            if name.lower() == "range" and asked is not None:
                return cls(int(asked[1]), int(asked[2]) + 1 if asked[2] else None)
        return None

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for it."""
        last = "" if self.stop is None else self.stop - 1
        headers = {"Range": f"bytes={self.start}-{last}"}
        if self.version is None:
            return headers
        if not self.or_whole:
            return headers | self.version.conditions()
        if self.version.strong_etag is None:
            raise ValueError(
                "only a strong ETag tells whether the rest of a file fits its beginning"
            )
        return headers | {"If-Range": self.version.strong_etag}


@dataclass(frozen=True, slots=True)
class SentRange:
    """The ``Content-Range`` of an answer with status 206.

    Attributes:
        start: the first byte.
        stop: the byte behind the last one.
        size: of the whole file; None if the server does not know it.
    """

    start: int
    stop: int
    size: int | None


def sent_range(headers: Mapping[str, str]) -> SentRange | None:
    """Return the part of a file that an answer announces; None if it announces none, or not in the form of a range."""
    sent = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if sent is None:
        return None
    size = None if sent[3] == "*" else int(sent[3])
    return SentRange(int(sent[1]), int(sent[2]) + 1, size)


def size_beyond(headers: Mapping[str, str]) -> int | None:
    """Return the length of the file that an answer with status 416 announces; None if it announces none."""
    sent = _UNSATISFIED_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    return None if sent is None else int(sent[1])


def refuse_part(asked: ByteRange, headers: Mapping[str, str]) -> str | None:
    """Return why an answer with status 206 is not the part that was asked for; None if it is."""
    media_type = headers.get("Content-Type", "").strip().lower()
    if media_type.startswith("multipart/byteranges"):
        return "sends several parts (multipart/byteranges), one was requested"
    sent = sent_range(headers)
    wanted = f"bytes {asked.start:,} to {'the end' if asked.stop is None else f'{asked.stop:,}'}"
    if sent is None:
        return f"does not say which part it sends, requested were {wanted}"
    if not asked.start < sent.stop or sent.start != asked.start:
        return f"sends bytes {sent.start:,} to {sent.stop:,}, requested were {wanted}"
    # Only the end of the file may end a part early.
    is_end = sent.size is None or sent.stop == sent.size
    if asked.stop is None:
        is_complete = sent.size is not None and is_end
    else:
        is_complete = sent.stop == asked.stop or (sent.stop < asked.stop and is_end)
    if not is_complete:
        total = "" if sent.size is None else f" of {sent.size:,}"
        return f"sends bytes {sent.start:,} to {sent.stop:,}{total}, requested were {wanted}"
    length = announced_length(headers)
    if length is not None and length != sent.stop - sent.start:
        return f"announces {length:,} bytes for a part of {sent.stop - sent.start:,}"
    return None
