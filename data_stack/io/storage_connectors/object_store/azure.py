"""Requests to Azure by the client of adlfs, whose answers are checked.

adlfs takes a missing container for a missing blob, any conflict for an existing blob, and whatever
a server, proxy or gateway answers for a range or a listing. Its client waits 15 s before its first
retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import DecodeError, HttpResponseError
from azure.storage.blob.aio import BlobPrefix

from data_stack.io.storage_connectors.object_store.azure_folders import is_folder
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.refused_requests import refused_request
from data_stack.io.storage_connectors.object_store.s3 import (
    NO_LISTING,
    ObjectRange,
    OtherVersionError,
    WrongAnswerError,
    describe_404,
    refusal_of,
)
from data_stack.io.web.ranges import ByteRange, find_part_fault, sent_range
from data_stack.io.web.requested_pause import requested_pause_seconds

#: :meth:`.RemoteFileSystem.retry` retries, so the client does not. Azure does not redirect, so who
#: does so is something else.
_REQUEST_OPTIONS: Final[Any] = {"retry_total": 0, "permit_redirects": False}
#: https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-error-codes
_EXISTING_BLOB_CODES: Final = {"BlobAlreadyExists", "ResourceAlreadyExists"}
_MISSING_BLOB_CODES: Final = {"BlobNotFound"}


async def get_ranges(
    file_system: Any, container: str, ranges: Sequence[ObjectRange]
) -> list[bytes | BaseException]:
    """Read ranges at once.

    Returns:
        The bytes of each range, or why it could not be read: FileNotFoundError for a missing blob.
    """
    answers = (_get_range(file_system, container, object_range) for object_range in ranges)
    return await asyncio.gather(*answers, return_exceptions=True)


async def _get_range(file_system: Any, container: str, object_range: ObjectRange) -> bytes:
    answer = await _download(
        file_system,
        container,
        object_range.key,
        offset=object_range.start,
        length=object_range.stop - object_range.start,
        **_condition(object_range.etag),
    )
    asked = ByteRange(object_range.start, object_range.stop)
    sent = sent_range(answer.headers)
    fault = find_part_fault(asked, sent, len(answer.data), answer.headers)
    if fault is not None:
        raise WrongAnswerError(f"the server {fault}")
    if object_range.etag is not None and answer.etag != object_range.etag:
        raise OtherVersionError(f"ETag {answer.etag}")
    return answer.data


async def get_version(
    file_system: Any, container: str, key: str, max_bytes: int
) -> tuple[bytes, str | None]:
    """Read the beginning of a small blob.

    Returns:
        Its bytes, and the ETag of the blob; None if the server names none.
    """
    answer = await _download(file_system, container, key)
    return answer.data[:max_bytes], answer.etag or None


class _Answer(NamedTuple):
    """An answer with bytes of a blob."""

    data: bytes
    headers: Mapping[str, str]

    @property
    def etag(self) -> str:
        return self.headers.get("ETag", "")


async def _download(file_system: Any, container: str, key: str, **options: Any) -> _Answer:
    """Read a blob, or the range of it that the options of ``download_blob`` name."""
    headers: Mapping[str, str] = {}

    def note_headers(response: Any) -> None:
        nonlocal headers
        headers = response.http_response.headers

    async with file_system.service_client.get_blob_client(container, key) as blob:
        try:
            # The client corrects the headers of its own answer, so the original ones are checked.
            stream = await blob.download_blob(
                raw_response_hook=note_headers, **options, **_REQUEST_OPTIONS
            )
            data: bytes = await stream.readall()
        except (HttpResponseError, ValueError) as error:
            raise _translate(error) from None
    return _Answer(data, headers)


async def head(file_system: Any, container: str, key: str) -> dict[str, Any] | None:
    """Return what is known of a blob, as file systems of fsspec describe it.

    Returns:
        None if there is no such blob, or if it stands for a folder.
    """
    async with file_system.service_client.get_blob_client(container, key) as blob:
        try:
            properties = await blob.get_blob_properties(**_REQUEST_OPTIONS)
        except HttpResponseError as error:
            translated = _translate(error)
            if isinstance(translated, FileNotFoundError):
                return None
            raise translated from None
    if is_folder(properties.metadata or {}):
        return None
    return {
        "name": f"{container}/{key}",
        "type": "file",
        "size": properties.size,
        "ETag": properties.etag,
        "LastModified": properties.last_modified,
    }


async def put(file_system: Any, container: str, key: str, data: bytes, etag: str | None) -> None:
    """Write or replace a blob.

    Args:
        file_system: the file system of adlfs.
        container: the container.
        key: the name of the blob.
        data: its bytes.
        etag: the ETag that it must have now; None: any, or none.

    Raises:
        OtherVersionError: it has another one.
    """
    await _upload(file_system, container, key, data, overwrite=True, **_condition(etag))


async def create(file_system: Any, container: str, key: str, data: bytes) -> None:
    """Write a blob unless it exists.

    Raises:
        FileExistsError: it exists.
    """
    await _upload(file_system, container, key, data, overwrite=False)


async def _upload(
    file_system: Any, container: str, key: str, data: bytes, **conditions: Any
) -> None:
    async with file_system.service_client.get_blob_client(container, key) as blob:
        try:
            await blob.upload_blob(data, length=len(data), **conditions, **_REQUEST_OPTIONS)
        except HttpResponseError as error:
            raise _translate(error) from None


async def delete(file_system: Any, container: str, key: str, etag: str | None) -> None:
    """Remove a blob.

    Args:
        file_system: the file system of adlfs.
        container: the container.
        key: the name of the blob.
        etag: the ETag that it must have; None: any.

    Raises:
        FileNotFoundError: there is no such blob.
        OtherVersionError: it has another ETag.
    """
    async with file_system.service_client.get_blob_client(container, key) as blob:
        try:
            await blob.delete_blob(**_condition(etag), **_REQUEST_OPTIONS)
        except HttpResponseError as error:
            raise _translate(error) from None


async def list_page(
    file_system: Any, container: str, prefix: str, delimiter: str, token: str | None
) -> ListingPage:
    """Request a page of a listing; see :meth:`.ObjectClient.list_page`."""
    options: dict[str, Any] = {
        "name_starts_with": prefix,
        "include": ["metadata"],
        **_REQUEST_OPTIONS,
    }
    objects = []
    folders = []
    async with file_system.service_client.get_container_client(container) as client:
        if delimiter:
            blobs = client.walk_blobs(delimiter=delimiter, **options)
        else:
            blobs = client.list_blobs(**options)
        pages = blobs.by_page(token)
        try:
            page = await anext(pages)
            if pages.container is None:
                raise WrongAnswerError(NO_LISTING)
            async for item in page:
                if isinstance(item, BlobPrefix):
                    folders.append(item.name)
                elif not is_folder(item.metadata or {}):
                    objects.append(_listed_object(item))
        except HttpResponseError as error:
            raise _translate(error) from None
    return ListingPage(objects, folders, pages.continuation_token or None)


def _listed_object(blob: Any) -> dict[str, Any]:
    """Return a blob of a listing, as S3 lists objects."""
    # In listings, ETags have no quotes.
    tag = blob.etag.strip('"')
    return {
        "Key": blob.name,
        "Size": blob.size,
        "ETag": f'"{tag}"',
        "LastModified": blob.last_modified,
    }


def _condition(etag: str | None) -> dict[str, Any]:
    """Return the arguments of a request that is only for a blob with this ETag; None: any."""
    if etag is None:
        return {}
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _translate(error: HttpResponseError | ValueError) -> Exception:
    """Return the exception to raise for one of the client."""
    if not isinstance(error, HttpResponseError):
        return WrongAnswerError("the server or a cache before it does not support ranges")
    status = error.status_code
    if status is None or status < 300:
        if isinstance(error, DecodeError):
            return WrongAnswerError("the answer of the server is not that of Azure")
        return ConnectionError("the connection was cut before all bytes had arrived")
    code = getattr(error, "error_code", None) or ""
    code = str(getattr(code, "value", code))
    message = error.message.split("\n")[0]
    if status == 404:
        if code in _MISSING_BLOB_CODES:
            return FileNotFoundError("there is no such blob")
        return WrongAnswerError(describe_404(refusal_of(refused_request(404, code, ""))))
    if status == 409 and code in _EXISTING_BLOB_CODES:
        return FileExistsError("the blob exists")
    if status == 412:
        return OtherVersionError("another ETag")
    headers = getattr(error.response, "headers", None) or {}
    return refused_request(status, code, message, retry_after=requested_pause_seconds(headers))
