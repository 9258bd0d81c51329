"""Helpers for the step from raw to prepared resources."""

from __future__ import annotations

import gzip

from data_stack.io.resources import ResourceFactory, StreamedResource


class PreprocessingHelpers:
    """Transformations of resources as streams."""

    @staticmethod
    def get_gzip_stream(resource: StreamedResource) -> StreamedResource:
        """The decompressed content of a gzip resource, under the same identifier; nothing is read yet.

        It reads from ``resource`` as it is read, so ``resource`` must stay open, and remains the caller's to close.
        Damaged content raises what :mod:`gzip` raises (EOFError, gzip.BadGzipFile, zlib.error) when it is reached.
        """
        decompressed: StreamedResource = ResourceFactory.get_resource(
            resource.identifier, gzip.GzipFile(fileobj=resource, mode="rb")
        )
        return decompressed
