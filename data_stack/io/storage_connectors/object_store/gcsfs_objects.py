"""Requests for single objects of Google Cloud Storage by gcsfs."""

from __future__ import annotations

from typing import Any

from data_stack.io.storage_connectors.object_store.fsspec_objects import FsspecObjects


class GcsfsObjects(FsspecObjects):
    """The objects of a bucket. Their versions are named by their generations."""

    def read_version(self, path: str, max_bytes: int) -> tuple[bytes, str | None]:
        key = self._file_system.key_of(path)
        answer: tuple[bytes, str | None] = self._file_system.run_request(
            _get_version, key, max_bytes
        )
        return answer

    def put_over(self, path: str, data: bytes, version: str) -> None:
        self._file_system.run_request(_put_over, self._file_system.key_of(path), data, version)


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
