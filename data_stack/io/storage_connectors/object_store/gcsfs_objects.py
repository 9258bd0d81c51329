"""Requests for single objects of Google Cloud Storage by gcsfs."""

from __future__ import annotations

from typing import Any

from data_stack.io.storage_connectors.object_store.fsspec_objects import FsspecObjects
from data_stack.io.storage_connectors.object_store.google_answers import (
    DESCRIPTION_FIELDS,
    page_parameters,
    parse_description,
    parse_page,
)
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import MISSING_BUCKET, WrongAnswerError


class GcsfsObjects(FsspecObjects):
    """The objects of a bucket. Their versions are named by their generations."""

    def describe(self, path: str) -> RemoteFile:
        key = self._file_system.key_of(path)
        return parse_description(self._file_system.run_request(_get_description, key), path)

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        parameters = page_parameters(prefix, delimiter, token)
        try:
            return parse_page(self._file_system.run_request(_get_page, parameters))
        except FileNotFoundError:
            raise WrongAnswerError(MISSING_BUCKET) from None

    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        key = self._file_system.key_of(path)
        answer: tuple[bytes, str | None] = self._file_system.run_request(
            _get_version, key, max_bytes
        )
        return answer

    def put_over(self, path: str, data: bytes, version: str) -> None:
        self._file_system.run_request(_put_over, self._file_system.key_of(path), data, version)

    def delete_version(self, path: str, version: str) -> None:
        self._file_system.run_request(_delete_version, self._file_system.key_of(path), version)


async def _get_description(file_system: Any, bucket: str, key: str) -> bytes:
    """Return the answer to a request for the description of an object.

    https://cloud.google.com/storage/docs/json_api/v1/objects/get

    Raises:
        FileNotFoundError: there is no such object, or no such bucket.
    """
    _, body = await file_system._call("GET", "b/{}/o/{}", bucket, key, fields=DESCRIPTION_FIELDS)
    answer: bytes = body
    return answer


async def _get_page(file_system: Any, bucket: str, parameters: dict[str, str]) -> bytes:
    """Return the answer to a request for a page of a listing.

    Raises:
        FileNotFoundError: there is no such bucket.
    """
    _, body = await file_system._call("GET", "b/{}/o", bucket, **parameters)
    answer: bytes = body
    return answer


async def _get_version(
    file_system: Any, bucket: str, key: str, max_bytes: int
) -> tuple[bytes, str | None]:
    """Read the beginning of a small object.

    Returns:
        Its bytes, and its generation; None if the server names none.
    """
    headers, data = await file_system._call("GET", file_system.url(f"{bucket}/{key}"))
    return data[:max_bytes], headers.get("x-goog-generation")


async def _put_over(file_system: Any, bucket: str, key: str, data: bytes, generation: str) -> None:
    """Replace an object that has this generation.

    https://cloud.google.com/storage/docs/json_api/v1/objects/insert

    Raises:
        FileExistsError: it has another one.
    """
    await file_system._call(
        "POST",
        f"{file_system._location}/upload/storage/v1/b/{{}}/o",
        bucket,
        uploadType="media",
        name=key,
        ifGenerationMatch=generation,
        headers={"Content-Type": "application/octet-stream"},
        data=data,
    )


async def _delete_version(file_system: Any, bucket: str, key: str, generation: str) -> None:
    """Remove an object that has this generation.

    Raises:
        FileExistsError: it has another one.
    """
    await file_system._call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=generation)
