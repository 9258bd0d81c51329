"""Ranges of bytes, as requests ask for them and as answers announce them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.io.web.file_version import FileVersion

_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_UNSATISFIED_RANGE: Final = re.compile(r"bytes \*/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of a file to ask for.

    Attributes:
        start: its first byte.
        stop: the byte behind its last one; None for the end of the file. A file that ends earlier
            sends what it has.
        version: the version that the file must have; None for any.
        or_whole: whether the server sends the whole file if it has another version (``If-Range``);
            ``version`` needs a strong ETag then. If False, the server refuses (``If-Match``).
    """

    start: int
    stop: int | None = None
    version: FileVersion | None = None
    or_whole: bool = False

    @classmethod
    def requested_by(cls, headers: Mapping[str, str]) -> ByteRange | None:
        """Return the part that the ``Range`` header among ``headers`` asks for.

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
        file_size: length of the whole file in bytes; None if the server does not know it.
    """

    start: int
    stop: int
    file_size: int | None

    @property
    def n_bytes(self) -> int:
        """Length of the part."""
        return self.stop - self.start

    def is_all_of(self, asked: ByteRange) -> bool:
        """Return whether this is the part that was asked for, or as much of it as the file has."""
        if self.start != asked.start or self.n_bytes <= 0:
            return False
        if asked.stop is None:
            return self.stop == self.file_size
        if self.stop == asked.stop:
            return True
        # Only the end of the file may end a part early.
        may_be_end_of_file = self.file_size is None or self.stop == self.file_size
        return self.stop < asked.stop and may_be_end_of_file

    def __str__(self) -> str:
        return f"bytes {self.start:,} to {self.stop:,}"


def sent_range(headers: Mapping[str, str]) -> SentRange | None:
    """Return the part of a file that an answer announces; None if it announces none."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    start, last, size_text = match.groups()
    file_size = None if size_text == "*" else int(size_text)
    return SentRange(int(start), int(last) + 1, file_size)


def file_size_in_416(headers: Mapping[str, str]) -> int | None:
    """Return the length of the file in bytes that an answer with status 416 announces, or None.

    Status 416 answers a request for bytes behind the end of the file.
    """
    match = _UNSATISFIED_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    return int(match[1])


def find_part_fault(
    asked: ByteRange, sent: SentRange | None, length: int | None, headers: Mapping[str, str]
) -> str | None:
    """Compare an answer with status 206 with the part that was asked for.

    Args:
        asked: the part.
        sent: the :func:`sent_range` of the answer.
        length: the announced length of its body in bytes; None if none was announced.
        headers: the headers of the answer.

    Returns:
        What is wrong, without a subject, such as ``"sends bytes 0 to 5, expected …"``; None
        if the answer is that part.
    """
    media_type = headers.get("Content-Type", "").strip().lower()
    if media_type.startswith("multipart/byteranges"):
        return "sends several parts (multipart/byteranges), expected one"
    if sent is None:
        return f"does not say which part it sends, expected {asked}"
    if not sent.is_all_of(asked):
        of_file_size = "" if sent.file_size is None else f" of {sent.file_size:,}"
        return f"sends {sent}{of_file_size}, expected {asked}"
    if length is not None and length != sent.n_bytes:
        return f"announces {length:,} bytes for a part of {sent.n_bytes:,}"
    return None
