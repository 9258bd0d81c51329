"""A named stream of text over one of bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from data_stack.io.streamed_resource import DEFAULT_CHUNK_BYTES, GivesResources, StreamedResource


class StreamedTextResource(io.TextIOWrapper):
    """A named text stream over a binary one.

    Iterating yields lines. Unlike that of other text files, it always begins with the first line.

    Args:
        identifier: the resource's name.
        buffer: the binary stream to decode; closed together with the resource.
        chunk_size: bytes per chunk of the binary stream underneath.
        encoding: the name of any codec of Python.
        newline: as for :func:`open`. :mod:`csv` needs ``""`` if fields hold line breaks.

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
        self.identifier = identifier
        self.chunk_size = chunk_size
        self._newline = newline
        super().__init__(buffer, encoding=encoding, newline=newline)

    @staticmethod
    def from_streamed_resource(
        resource: StreamedResource, encoding: str = "utf-8", newline: str | None = None
    ) -> StreamedTextResource:
        """Return a stream of the text in ``resource``, which is closed together with it."""
        return StreamedTextResource(
            resource.identifier, resource, resource.chunk_size, encoding, newline
        )

    #: The name in the original DataStack, which is spelled so.
    from_streamed_resouce = from_streamed_resource

    def reopen_by(self, connector: GivesResources) -> StreamedTextResource:
        """Set the connector that opens the resource in another process, unless it has one.

        Returns:
            The resource itself.
        """
        binary: Any = self.buffer
        if isinstance(binary, StreamedResource):
            binary.reopen_by(connector)
            return self
        # The connector of a third party may decode a file of its own. The text then reads a
        # resource over that file, which can be reopened.
        encoding = self.encoding
        resource = StreamedResource(self.identifier, self.detach(), self.chunk_size)
        super().__init__(resource.reopen_by(connector), encoding=encoding, newline=self._newline)
        return self

    def __reduce__(self) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        buffer: Any = self.buffer
        arguments = (self.identifier, buffer, self.chunk_size, self.encoding, self._newline)
        return StreamedTextResource, arguments

    def __reduce_ex__(
        self, protocol: Any
    ) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        # TextIOWrapper defines this one, and refuses to be pickled.
        return self.__reduce__()

    @property
    def name(self) -> str:
        """The identifier; files have their name here."""
        return self.identifier

    # typeshed: what iterates is the file itself
    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        if self.seekable():
            self.seek(0)
        while line := self.readline():
            yield line

    def __next__(self) -> str:  # type: ignore[override]  # typeshed: IOBase returns bytes
        # Not the __next__ of a TextIOWrapper, after which tell() does not work.
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    # typeshed: list[bytes]
    def readlines(self, hint: int | None = -1, /) -> list[str]:  # type: ignore[override]
        """Return the lines from the current position on; ``hint`` is ignored."""
        return list(iter(self.readline, ""))
