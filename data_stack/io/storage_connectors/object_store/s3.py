"""Requests to S3 whose answers are checked.

s3fs takes whatever a server, proxy or gateway answers: the whole object or another part in place of
a range, a page that is no listing for an empty one, keys of other folders. Wrong bytes and deleted
data would follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from data_stack.exception import DataStackError
from data_stack.io.log_secrets import hide_secrets_in_logs_of
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.web.framing import Framing
from data_stack.io.web.ranges import ByteRange, file_size_in_416, find_part_fault, sent_range

#: The codes of S3 for what is not there. Another 404 comes from a gateway before it, which knows
#: nothing about the objects.
_MISSING_OBJECT_CODES: Final = {"NoSuchKey", "NoSuchVersion"}
#: The statuses of a conditional write whose condition does not hold, or that meets another write.
_CONFLICTS: Final = (409, 412)
#: How S3 names the region of a bucket.
REGION_HEADER: Final = "x-amz-bucket-region"
REDIRECTED: Final = "the server redirects to another URL; that is not followed"
NO_LISTING: Final = (
    "the server answers a request for a listing with something else, perhaps a page of a gateway"
)
MISSING_BUCKET: Final = "the bucket does not exist"
NO_END_OF_LISTING: Final = "the server does not tell how its listing goes on"
#: A body is read in pieces of this size.
_PIECE_BYTES: Final = 1 << 20

# botocore logs what it signs and sends, with the session token.
hide_secrets_in_logs_of("botocore.auth", "botocore.endpoint")


class _Headers(Mapping[str, str]):
    """The headers of an answer, by names in any case.

    Args:
        headers: the headers as botocore returns them, with names in lower case.
    """

    _headers: Mapping[str, str]

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return str(self._headers[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class WrongAnswerError(DataStackError):
    """A server answered something else than it was asked. The message says what."""


class OtherVersionError(DataStackError):
    """An object has another version than the one that was asked for."""


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """A part of an object to read.

    Attributes:
        key: the key of the object in its bucket.
        start: the first byte.
        stop: the byte behind the last one. The object may end before.
        etag: the ETag of the version that must be read; None: any version.
    """

    key: str
    start: int
    stop: int
    etag: str | None = None


async def get_ranges(
    file_system: Any, bucket: str, ranges: Sequence[ObjectRange]
) -> list[bytes | BaseException]:
    """Read ranges at once.

    Returns:
        The bytes of each range, or why it could not be read: FileNotFoundError for a missing
        object.
    """
    answers = (_get_range(file_system, bucket, object_range) for object_range in ranges)
    return await asyncio.gather(*answers, return_exceptions=True)


async def _get_range(file_system: Any, bucket: str, object_range: ObjectRange) -> bytes:
    """Read a range; return nothing if it begins behind the end of the object."""
    last = object_range.stop - 1
    options = {"Range": f"bytes={object_range.start}-{last}"}
    if object_range.etag is not None:
        options["IfMatch"] = object_range.etag
    try:
        answer = await file_system._call_s3(
            "get_object", Bucket=bucket, Key=object_range.key, **options
        )
    except OSError as error:
        if _is_behind_end(error, object_range):
            return b""
        _raise_refusal(error, object_range)
    body = answer["Body"]
    try:
        n_bytes = _check_part(answer, object_range)
        return await _read(body, n_bytes)
    finally:
        body.close()


def _check_part(answer: Mapping[str, Any], object_range: ObjectRange) -> int:
    """Check that the header announces what was asked for.

    Returns:
        The length of the body.

    Raises:
        WrongAnswerError: it announces something else.
        OtherVersionError: the object has another version. A missing ETag is not an equal one.
    """
    metadata = answer["ResponseMetadata"]
    status = metadata.get("HTTPStatusCode")
    headers = _Headers(metadata.get("HTTPHeaders") or {})
    etag = headers.get("ETag")
    if object_range.etag is not None and etag != object_range.etag:
        raise OtherVersionError(f"ETag {etag}")

    sent = sent_range(headers)
    length = Framing.from_headers(headers).length
    if status == 206:
        asked = ByteRange(object_range.start, object_range.stop)
        reason = find_part_fault(asked, sent, length, headers)
        if reason is not None or sent is None:
            raise WrongAnswerError(f"the server {reason}")
        return sent.n_bytes

    # Some servers answer 200 and send the whole object, if all of it was asked for.
    if status == 200 and sent is None and length is not None:
        is_all_wanted = object_range.start == 0 and length <= object_range.stop
        if is_all_wanted:
            return length
    n_sent = "unknown" if length is None else f"{length:,}"
    raise WrongAnswerError(
        f"the server answers {status} with {n_sent} bytes, requested were bytes "
        f"{object_range.start:,} to {object_range.stop:,}: "
        "it or a cache before it does not support ranges"
    )


async def _read(body: Any, n_bytes: int, *, may_be_longer: bool = False) -> bytes:
    """Return a body of exactly this length. Of a longer one, a single further byte is received.

    Args:
        body: the body.
        n_bytes: its length.
        may_be_longer: whether the beginning of a longer one is returned.

    Raises:
        ConnectionError: it is shorter.
        WrongAnswerError: it is longer.
    """
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
    if n_received > n_bytes and may_be_longer:
        return b"".join(pieces)[:n_bytes]
    if n_received > n_bytes:
        raise WrongAnswerError(
            f"the server sends more than the {n_bytes:,} bytes that it announces"
        )
    if len(pieces) == 1:
        return pieces[0]
    return b"".join(pieces)


def _is_behind_end(error: OSError, object_range: ObjectRange) -> bool:
    """Return whether a range was refused because it begins behind the end of its object."""
    refusal = refusal_of(error)
    if refusal.status != 416:
        return False
    size = file_size_in_416(refusal.headers)
    return size is not None and size <= object_range.start


def _raise_refusal(error: OSError, object_range: ObjectRange) -> NoReturn:
    """Raise why a range was refused.

    Raises:
        FileNotFoundError: there is no such object.
        OtherVersionError: the object has another version.
        WrongAnswerError: the answer is not that of S3.
        OSError: any other error, as it was given.
    """
    refusal = refusal_of(error)
    if refusal.status == 412 and object_range.etag is not None:
        raise OtherVersionError("another ETag") from None
    if isinstance(error, FileNotFoundError) and refusal.code not in _MISSING_OBJECT_CODES:
        raise WrongAnswerError(describe_404(refusal)) from error
    raise error


async def get_version(
    file_system: Any, bucket: str, key: str, max_bytes: int
) -> tuple[bytes, str | None]:
    """Read the beginning of an object.

    Returns:
        Its bytes, and the ETag of the object; None if the server names none.
    """
    answer = await file_system._call_s3("get_object", Bucket=bucket, Key=key)
    body = answer["Body"]
    try:
        data = await _read(body, min(max_bytes, answer["ContentLength"]), may_be_longer=True)
    finally:
        body.close()
    return data, answer.get("ETag") or None


async def create(file_system: Any, bucket: str, key: str, data: bytes) -> None:
    """Write an object unless it exists.

    Raises:
        FileExistsError: it exists, or is being written by another client.
    """
    try:
        await file_system._call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except OSError as error:
        if refusal_of(error).status in _CONFLICTS:
            raise FileExistsError("the object exists") from None
        raise


async def put_over(file_system: Any, bucket: str, key: str, data: bytes, etag: str) -> None:
    """Replace an object that has this ETag.

    Raises:
        OtherVersionError: it has another one, or is being written by another client.
    """
    try:
        await file_system._call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfMatch=etag)
    except OSError as error:
        if refusal_of(error).status in _CONFLICTS:
            raise OtherVersionError("another ETag") from None
        raise


async def delete_version(file_system: Any, bucket: str, key: str, etag: str) -> None:
    """Remove an object that has this ETag.

    Raises:
        OtherVersionError: it has another one, or is being written by another client.
    """
    try:
        await file_system._call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=etag)
    except OSError as error:
        if refusal_of(error).status in _CONFLICTS:
            raise OtherVersionError("another ETag") from None
        raise


async def head(file_system: Any, bucket: str, key: str) -> dict[str, Any] | None:
    """Return what is known of an object, as file systems of fsspec describe it.

    An answer to HEAD has no body. Whether the bucket or the object is missing, or why it is
    refused, only a GET tells.

    Returns:
        None if there is no such object.
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


async def list_page(
    file_system: Any, bucket: str, prefix: str, delimiter: str, token: str | None
) -> ListingPage:
    """Request a page of a listing; see :meth:`.ObjectClient.list_page`."""
    options: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": delimiter}
    if token is not None:
        options["ContinuationToken"] = token
    try:
        answer = await file_system._call_s3("list_objects_v2", **options)
    except FileNotFoundError as error:
        raise WrongAnswerError(describe_404(refusal_of(error))) from error
    folders = [entry["Prefix"] for entry in answer.get("CommonPrefixes") or ()]
    return ListingPage(
        answer.get("Contents") or (),
        folders,
        next_token_of(answer.get("IsTruncated"), answer.get("NextContinuationToken")),
    )


def next_token_of(is_truncated: bool | None, token: str | None) -> str | None:
    """Return what the next page of a listing is asked for by; None: there is none.

    Args:
        is_truncated: whether the answer says that the listing goes on; None: it does not say.
        token: the token in the answer; None: there is none.

    Raises:
        WrongAnswerError: the answer is no listing, or the listing goes on without a token.
    """
    if is_truncated is None:
        raise WrongAnswerError(NO_LISTING)
    if not is_truncated:
        return None
    if not token:
        raise WrongAnswerError(NO_END_OF_LISTING)
    return token


# ---------------------------------------------------------------------- refusals


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why S3 refused a request.

    Attributes:
        status: the status of HTTP; None if the server did not answer.
        code: the code of S3, such as ``AccessDenied``; the status, if the answer had no body; empty
            for other stores.
        headers: the headers of the answer, by names in any case.
    """

    status: int | None
    code: str
    headers: Mapping[str, str]


def refusal_of(error: BaseException) -> Refusal:
    """Return why S3 refused a request.

    Args:
        error: the exception of the client, or what s3fs made of it.
    """
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


def describe_404(refusal: Refusal) -> str:
    """Return what a 404 says that does not name a missing object."""
    if refusal.code == "NoSuchBucket":
        return MISSING_BUCKET
    if refusal.code == "ContainerNotFound":
        return "the container does not exist"
    return (
        f"the server answers 404 without a reason of the store ({refusal.code:.40}), "
        "as a gateway before it does"
    )
