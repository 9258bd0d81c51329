"""Requests to S3 whose answers are checked: a range of one version of an object, or all names below a prefix.

s3fs takes whatever a server, proxy or gateway answers: the whole object or another part in place of a range, a page that is no
listing for an empty one, keys of other folders. Wrong bytes and deleted data would follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from data_stack.exception import DataStackError
from data_stack.io.web.framing import announced_length
from data_stack.io.web.ranges import ByteRange, refuse_part, sent_range, size_beyond

#: Codes of S3 for what is not there. Another 404 comes from a gateway before it, which knows nothing about the objects.
_MISSING_OBJECT: Final = {"NoSuchKey", "NoSuchVersion"}
_PIECE_BYTES: Final = 1 << 20


class _Headers(Mapping[str, str]):
    """The headers of an answer, by names in any case.

    Args:
        headers: as botocore returns them, with names in lower case.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return str(self._headers[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class WrongAnswerError(DataStackError):
    """A server answered something else than it was asked; its message says what."""


class OtherVersionError(DataStackError):
    """An object is of another version than the one that was asked for."""


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """A part of an object to read.

    Attributes:
        key: of the object in its bucket.
        start: the first byte.
        stop: the byte behind the last one; the object may end before.
        etag: of the version that must be read; None for any.
    """

    key: str
    start: int
    stop: int
    etag: str | None = None


async def get_ranges(
    file_system: Any, bucket: str, ranges: Sequence[ObjectRange]
) -> list[bytes | BaseException]:
    """Return the bytes of each range, or why it could not be read; FileNotFoundError for a missing object."""
    answers = (_get_range(file_system, bucket, asked) for asked in ranges)
    return await asyncio.gather(*answers, return_exceptions=True)


async def _get_range(file_system: Any, bucket: str, asked: ObjectRange) -> bytes:
    options = {} if asked.etag is None else {"IfMatch": asked.etag}
    last = asked.stop - 1
    try:
        answer = await file_system._call_s3(
            "get_object",
            Bucket=bucket,
            Key=asked.key,
            Range=f"bytes={asked.start}-{last}",
            **options,
        )
    except OSError as error:
        return _explain_refusal(error, asked)
    body = answer["Body"]
    try:
        n_bytes = _check_part(answer, asked)
        return await _read(body, n_bytes)
    finally:
        body.close()


def _check_part(answer: Mapping[str, Any], asked: ObjectRange) -> int:
    """Check that the header announces what was asked for; return the length of the body.

    Raises:
        WrongAnswerError: it does not.
        OtherVersionError: it is of another version. A missing tag is not an equal one.
    """
    headers = _Headers(answer["ResponseMetadata"].get("HTTPHeaders") or {})
    status = answer["ResponseMetadata"].get("HTTPStatusCode")
    if asked.etag is not None and headers.get("ETag") != asked.etag:
        raise OtherVersionError(f"ETag {headers.get('ETag')}")
    sent = sent_range(headers)
    if status == 206:
        reason = refuse_part(ByteRange(asked.start, asked.stop), headers)
        if reason is None and sent is not None:
            return sent.stop - sent.start
        raise WrongAnswerError(f"the server {reason}")
    length = announced_length(headers)
    # Some servers send an object whole if all of it was asked for.
    is_whole = asked.start == 0 and length is not None and length <= asked.stop
    if status == 200 and is_whole and sent is None and length is not None:
        return length
    raise WrongAnswerError(
        f"the server answers {status} with {'unknown' if length is None else f'{length:,}'} bytes,"
        f" requested were bytes {asked.start:,} to {asked.stop:,}: it or a cache before it does not support ranges"
    )


async def _read(body: Any, n_bytes: int) -> bytes:
    """Return a body of exactly this length, of which no more is received."""
    pieces = list[bytes]()
    n_received = 0
    while n_received <= n_bytes:
        piece = await body.read(min(_PIECE_BYTES, n_bytes + 1 - n_received))
        if not piece:
            break
        pieces.append(piece)
        n_received += len(piece)
    if n_received < n_bytes:
        raise ConnectionError(f"the connection was cut after {n_received:,} of {n_bytes:,} bytes")
    if n_received > n_bytes:
        raise WrongAnswerError(
            f"the server sends more than the {n_bytes:,} bytes that it announces"
        )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _explain_refusal(error: OSError, asked: ObjectRange) -> bytes:
    """Return ``b""`` for a range behind the end of an object; else raise the reason.

    Raises:
        FileNotFoundError: there is no such object.
        OtherVersionError: the object is of another version.
        OSError: as given.
    """
    refusal = refusal_of(error)
    if refusal.status == 412 and asked.etag is not None:
        raise OtherVersionError("another ETag") from None
    if refusal.status == 416:
        size = size_beyond(refusal.headers)
        if size is not None and size <= asked.start:
            return b""
    if isinstance(error, FileNotFoundError) and refusal.code not in _MISSING_OBJECT:
        raise WrongAnswerError(_describe_404(refusal)) from error
    raise error


async def head(file_system: Any, bucket: str, key: str) -> dict[str, Any] | None:
    """Return what is known of an object, as file systems of fsspec describe it; None if there is none.

    An answer to HEAD has no body: whether the bucket or the object is missing, or why it is refused, only a GET tells.
    """
    try:
        answer = await file_system._call_s3("head_object", Bucket=bucket, Key=key)
    except FileNotFoundError:
        return None
    return {
        "name": f"{bucket}/{key}",
        "type": "file",
        "size": answer["ContentLength"],
        "ETag": answer.get("ETag", ""),
        "LastModified": answer.get("LastModified", ""),
    }


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a bucket whose keys begin with a prefix.

    Attributes:
        objects: each with its ``Key``, ``Size``, ``LastModified`` and ``ETag``.
        folders: the beginnings of longer keys, up to the delimiter.
    """

    objects: list[dict[str, Any]]
    folders: list[str]


async def list_objects(
    file_system: Any, bucket: str, prefix: str, *, delimiter: str = ""
) -> Listing:
    """List all objects whose keys begin with ``prefix``; with ``delimiter`` only those in which it does not follow.

    Raises:
        WrongAnswerError: an answer is no listing, not of this prefix, or has no end. A bucket that does not exist is not empty.
    """
    listing = Listing([], [])
    options: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": delimiter}
    tokens = set[str]()
    while True:
        try:
            answer = await file_system._call_s3("list_objects_v2", **options)
        except FileNotFoundError as error:
            raise WrongAnswerError(_describe_404(refusal_of(error))) from error
        for entry in answer.get("Contents") or ():
            _check_key(entry["Key"], prefix, delimiter)
            listing.objects.append(entry)
        for entry in answer.get("CommonPrefixes") or ():
            _check_key(entry["Prefix"].removesuffix(delimiter), prefix, delimiter)
            listing.folders.append(entry["Prefix"])
        is_truncated = answer.get("IsTruncated")
        if is_truncated is None:
            raise WrongAnswerError(
                "the server answers a request for a listing with something else, perhaps a page of a gateway"
            )
        if not is_truncated:
            return listing
        token = answer.get("NextContinuationToken")
        if not token or token in tokens:
            raise WrongAnswerError("the server does not tell how its listing goes on")
        tokens.add(token)
        options["ContinuationToken"] = token


def _check_key(key: str, prefix: str, delimiter: str) -> None:
    is_deeper = bool(delimiter) and delimiter in key[len(prefix) :].removesuffix(delimiter)
    if not key.startswith(prefix) or is_deeper:
        raise WrongAnswerError(
            f"the server lists {key!r:.200} among the objects that begin with {prefix!r:.200}"
        )


# ---------------------------------------------------------------------- refusals


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why S3 refused a request.

    Attributes:
        status: of HTTP; None if the server did not answer.
        code: of S3, such as ``AccessDenied``; the status, if the answer had no body.
        headers: names in any case.
    """

    status: int | None
    code: str
    headers: Mapping[str, str]


def refusal_of(error: BaseException) -> Refusal:
    """Return why S3 refused a request, from the exception of its client or what s3fs made of it."""
    for cause in _causes_of(error):
        response = getattr(cause, "response", None)
        if isinstance(response, Mapping):
            metadata = response.get("ResponseMetadata") or {}
            headers = _Headers(metadata.get("HTTPHeaders") or {})
            code = str((response.get("Error") or {}).get("Code", ""))
            return Refusal(metadata.get("HTTPStatusCode"), code, headers)
    return Refusal(None, "", _Headers({}))


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _describe_404(refusal: Refusal) -> str:
    if refusal.code == "NoSuchBucket":
        return "the bucket does not exist"
    return f"the server answers 404 without the reason of S3 ({refusal.code:.40}), as a gateway before it does"
