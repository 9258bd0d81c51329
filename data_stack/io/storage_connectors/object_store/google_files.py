"""The files of a bucket of Google Cloud Storage, read by their generations."""

from __future__ import annotations

from data_stack.io.storage_connectors.object_store.bucket_files import BucketFiles
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile


class GoogleFiles(BucketFiles):
    """The files below a folder of a bucket.

    A generation is a version of an object: https://cloud.google.com/storage/docs/metadata. A
    request for one that was replaced finds nothing, or the old bytes in a bucket that keeps them.
    """

    def checks_version(self, file: RemoteFile) -> bool:
        return file.generation != "" and self._objects.reads_generations(file.path)

    def _version_name(self, file: RemoteFile) -> str:
        return file.generation
