"""Makes named streams; all classes of resources have their public place here."""

from __future__ import annotations

from enum import Enum
from typing import IO, Any, TypeAlias

from data_stack.io.byte_source import ByteSource
from data_stack.io.streamed_resource import DEFAULT_CHUNK_BYTES, Storable, StreamedResource
from data_stack.io.streamed_text_resource import StreamedTextResource

__all__ = [
    "ByteSource",
    "ResourceFactory",
    "Storable",
    "StreamedResource",
    "StreamedTextResource",
    "SupportedStreamedResourceTypes",
]


class SupportedStreamedResourceTypes(Enum):
    """How a connector returns a resource: as bytes, or decoded as UTF-8 text."""

    STREAMED_BINARY_RESOURCE = "STREAMED_BINARY_RESOURCE"
    STREAMED_TEXT_RESOURCE = "STREAMED_TEXT_RESOURCE"


class ResourceFactory:
    """Makes resources from file-like objects."""

    SupportedStreamedResourceTypes: TypeAlias = SupportedStreamedResourceTypes

    @staticmethod
    def get_resource(
        identifier: str,
        file_like_object: IO[bytes] | Any,
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        resource_type: SupportedStreamedResourceTypes = SupportedStreamedResourceTypes.STREAMED_BINARY_RESOURCE,
    ) -> Any:
        """Name ``file_like_object``: a StreamedResource, or a StreamedTextResource where ``resource_type`` says text.

        The result owns the object: closing the one closes the other.
        """
        if resource_type is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            return StreamedTextResource(identifier, file_like_object, chunk_size)
        return StreamedResource(identifier, file_like_object, chunk_size)
