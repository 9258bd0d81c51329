"""Makes resources from file-like objects, as the original DataStack did."""

from __future__ import annotations

from enum import Enum
from typing import IO, Any, Final, TypeAlias

from data_stack.io.streamed_resource import DEFAULT_CHUNK_BYTES, StreamedResource
from data_stack.io.streamed_text_resource import StreamedTextResource


class SupportedStreamedResourceTypes(Enum):
    """How a connector returns a resource: as bytes, or decoded as UTF-8 text."""

    STREAMED_BINARY_RESOURCE = "STREAMED_BINARY_RESOURCE"
    STREAMED_TEXT_RESOURCE = "STREAMED_TEXT_RESOURCE"


_BINARY: Final = SupportedStreamedResourceTypes.STREAMED_BINARY_RESOURCE


class ResourceFactory:
    """Makes resources from file-like objects."""

    SupportedStreamedResourceTypes: TypeAlias = SupportedStreamedResourceTypes

    @staticmethod
    def get_resource(
        identifier: str,
        file_like_object: IO[bytes] | Any,
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        resource_type: SupportedStreamedResourceTypes = _BINARY,
    ) -> Any:
        """Return a resource with a name over a file-like object.

        Args:
            identifier: the name.
            file_like_object: any binary file-like object; closed together with the resource.
            chunk_size: bytes per chunk when iterating.
            resource_type: whether to return a StreamedResource or a StreamedTextResource.
        """
        if resource_type is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            return StreamedTextResource(identifier, file_like_object, chunk_size)
        return StreamedResource(identifier, file_like_object, chunk_size)
