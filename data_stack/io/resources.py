"""Hands on the classes of resources, by the path of the original DataStack."""

from __future__ import annotations

from data_stack.io.byte_source import ByteSource as ByteSource
from data_stack.io.resource_factory import ResourceFactory as ResourceFactory
from data_stack.io.resource_factory import (
    SupportedStreamedResourceTypes as SupportedStreamedResourceTypes,
)
from data_stack.io.streamed_resource import GivesResources as GivesResources
from data_stack.io.streamed_resource import Storable as Storable
from data_stack.io.streamed_resource import StreamedResource as StreamedResource
from data_stack.io.streamed_text_resource import StreamedTextResource as StreamedTextResource

__all__ = [
    "GivesResources",
    "ResourceFactory",
    "StreamedResource",
    "StreamedTextResource",
    "SupportedStreamedResourceTypes",
]
