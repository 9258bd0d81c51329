"""Named text streams over binary ones; all classes of resources have their public place here."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from enum import Enum
from typing import IO, Any, TypeAlias

from data_stack.io.byte_source import ByteSource
from data_stack.io.streamed_resource import DEFAULT_CHUNK_BYTES, GivesResources, Storable, StreamedResource


class StreamedTextResource(io.TextIOWrapper):
    """A named text stream over a binary one. Iterating yields lines, as of any text file, but always from the first one on.

    Args:
        identifier: the resource's name.
        buffer: the binary stream to decode; closed together with the resource.
        chunk_size: bytes per chunk of the binary stream underneath.
        encoding: any codec of Python's.
        newline: as for :func:`open`; ``""`` for :mod:`csv` with line breaks inside of fields.

    Attributes:
        identifier: the resource's name.
        chunk_size: bytes per chunk of the binary stream underneath.
    """

    mode = "r"

    def __init__(
        self,
        identifier: str,
        buffer: Any,
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        encoding: str = "utf-8",
        newline: str | None = None,
    ) -> None:
        self.identifier, self.chunk_size = identifier, chunk_size
        self._newline = newline
        super().__init__(buffer, encoding=encoding, newline=newline)

    def reopen_by(self, connector: GivesResources) -> StreamedTextResource:
        """Let another process open it by ``connector``, as :meth:`StreamedResource.reopen_by`, and return itself."""
        binary: Any = self.buffer
        if isinstance(binary, StreamedResource):
            binary.reopen_by(connector)
        else:
            encoding = self.encoding
            binary = StreamedResource(self.identifier, self.detach(), self.chunk_size).reopen_by(connector)
            super().__init__(binary, encoding=encoding, newline=self._newline)
        return self

    def __reduce__(self) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        buffer: Any = self.buffer
        return StreamedTextResource, (self.identifier, buffer, self.chunk_size, self.encoding, self._newline)

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        return self.__reduce__()

    @staticmethod
    def from_streamed_resource(
        resource: StreamedResource, encoding: str = "utf-8", newline: str | None = None
    ) -> StreamedTextResource:
        """Read ``resource`` as text; closing the text closes it."""
        return StreamedTextResource(resource.identifier, resource, resource.chunk_size, encoding, newline)

    #: The original's spelling.
    from_streamed_resouce = from_streamed_resource

    @property
    def name(self) -> str:
        """The identifier, under the name that files have it."""
        return self.identifier

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identifier!r}, {self.encoding}>"

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # typeshed: what iterates is the file itself
        if self.seekable():
            self.seek(0)
        while line := self.readline():
            yield line

    def __next__(self) -> str:  # type: ignore[override]  # typeshed: IOBase returns bytes
        if line := self.readline():  # not the line of a TextIOWrapper, after which tell() does not work
            return line
        raise StopIteration

    def readlines(self, hint: int | None = -1, /) -> list[str]:  # type: ignore[override]  # typeshed: list[bytes]
        """The lines from the current position on; ``hint`` is ignored."""
        return list(iter(self.readline, ""))


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
