"""Requests to Azure by the client of adlfs, whose answers are checked.

adlfs takes a missing container for a missing blob, any conflict for an existing blob, and whatever
a server, proxy or gateway answers for a range or a listing. Its client waits 15 s and longer before
it retries, so it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import DecodeError, HttpResponseError

from data_stack.io.storage_connectors.object_store.refused_requests import refused_request
from data_stack.io.storage_connectors.object_store.s3 import (
    Listing,
    ObjectRange,
    OtherVersionError,
    WrongAnswerError,
    check_listed_key,
    describe_404,
    refusal_of,
)
from data_stack.io.web.ranges import ByteRange, find_part_fault, sent_range

#: :meth:`.RemoteFileSystem.retry` retries.
_NO_RETRIES: Final[Any] = {"retry_total": 0}
#: https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-error-codes
_EXISTING_BLOB_CODES: Final = {"BlobAlreadyExists", "ResourceAlreadyExists"}
_MISSING_BLOB_CODES: Final = {"BlobNotFound"}
#: How accounts with a hierarchical namespace, and adlfs, mark blobs that stand for folders.
_FOLDER_MARKS: Final = ("hdi_isfolder", "is_directory")


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
                raw_response_hook=note_headers, **options, **_NO_RETRIES
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
            properties = await blob.get_blob_properties(**_NO_RETRIES)
        except HttpResponseError as error:
            translated = _translate(error)
            if isinstance(translated, FileNotFoundError):
                return None
            raise translated from None
    if _is_folder(properties):
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
            await blob.upload_blob(data, length=len(data), **conditions, **_NO_RETRIES)
        except HttpResponseError as error:
            raise _translate(error) from None


async def delete(file_system: Any, container: str, key: str) -> None:
    """Remove a blob.

    Raises:
        FileNotFoundError: there is no such blob.
    """
    async with file_system.service_client.get_blob_client(container, key) as blob:
        try:
            await blob.delete_blob(**_NO_RETRIES)
        except HttpResponseError as error:
            raise _translate(error) from None


async def list_objects(
    file_system: Any, container: str, prefix: str, *, delimiter: str = ""
) -> Listing:
    """List all blobs whose names begin with a prefix.

    Args:
        file_system: the file system of adlfs.
        container: the container.
        prefix: the prefix.
        delimiter: only blobs in whose names this text does not follow the prefix are listed.

    Raises:
        WrongAnswerError: an answer is no listing, not of this prefix, or has no end.
    """
    options: dict[str, Any] = {"name_starts_with": prefix, "include": ["metadata"], **_NO_RETRIES}
    listing = Listing([], [])
    seen_markers = set[str]()
    async with file_system.service_client.get_container_client(container) as client:
        if delimiter:
            pages = client.walk_blobs(delimiter=delimiter, **options).by_page()
        else:
            pages = client.list_blobs(**options).by_page()
        try:
            async for page in pages:
                if pages.container is None:
                    raise WrongAnswerError(
                        "the server answers a request for a listing with something else, "
                        "perhaps a page of a gateway"
                    )
                async for item in page:
                    _add_to_listing(listing, item, prefix, delimiter)
                marker = pages.continuation_token
                if marker in seen_markers:
                    raise WrongAnswerError("the server does not tell how its listing goes on")
                seen_markers.add(marker)
        except HttpResponseError as error:
            raise _translate(error) from None
    return listing


def _add_to_listing(listing: Listing, item: Any, prefix: str, delimiter: str) -> None:
    """Add a blob or a folder to a listing."""
    is_prefix = not hasattr(item, "etag")
    check_listed_key(
        item.name.removesuffix(delimiter) if is_prefix else item.name, prefix, delimiter
    )
    if is_prefix:
        listing.folders.append(item.name)
    elif not _is_folder(item):
        listing.objects.append(
            {
                "Key": item.name,
                "Size": item.size,
                # In listings, ETags have no quotes.
                "ETag": f'"{item.etag.strip(chr(34))}"',
                "LastModified": item.last_modified,
            }
        )


def _is_folder(properties: Any) -> bool:
    """Return whether a blob stands for a folder."""
    metadata = {name.lower(): value for name, value in (properties.metadata or {}).items()}
    return any(metadata.get(mark) == "true" for mark in _FOLDER_MARKS)


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
    return refused_request(status, code, message)
