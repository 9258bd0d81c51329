"""Named text streams over binary ones."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from data_stack.exception import UnpicklableResourceError
from data_stack.io.streamed_resource import DEFAULT_CHUNK_BYTES, GivesResources, StreamedResource

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["StreamedTextResource"]


def _reopened_text(
    buffer: StreamedResource, identifier: str, chunk_size: int, encoding: str, newline: str | None
) -> StreamedTextResource:
    return StreamedTextResource(identifier, buffer, chunk_size, encoding, newline)


class StreamedTextResource(io.TextIOBase):
    """A named text stream over a binary one. Iterating gives lines, as of any text file.

    Args:
        identifier: the resource's name.
        buffer: the binary stream to decode; closed together with the resource.
        chunk_size: bytes per chunk of the binary stream underneath.
        encoding: any codec of Python's.
        newline: as for :func:`open`; ``""`` for :mod:`csv` with line breaks inside of fields.
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
        self._identifier = identifier
        self._chunk_size = chunk_size
        self._encoding, self._newline = encoding, newline
        self._text = io.TextIOWrapper(buffer, encoding=encoding, newline=newline)

    def reopened_by(self, connector: GivesResources) -> Self:
        """Let another process open it by ``connector``, as :meth:`StreamedResource.reopened_by`, and return itself."""
        if isinstance(self.buffer, StreamedResource):
            self.buffer.reopened_by(connector)
        else:
            binary = StreamedResource(self._identifier, self._text.detach(), self._chunk_size).reopened_by(connector)
            self._text = io.TextIOWrapper(binary, encoding=self._encoding, newline=self._newline)
        return self

    def __reduce__(self) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        buffer = self.buffer
        if not isinstance(buffer, StreamedResource):
            raise UnpicklableResourceError(
                f"text resource {self._identifier!r} wraps a {type(buffer).__name__} and cannot be sent to another process; "
                f"store it with set_resource() and send what get_resource() returns"
            )
        return _reopened_text, (buffer, self._identifier, self._chunk_size, self._encoding, self._newline)

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
    def identifier(self) -> str:
        """The resource's name."""
        return self._identifier

    @property
    def chunk_size(self) -> int:
        """Bytes per chunk of the binary stream underneath."""
        return self._chunk_size

    @property
    def name(self) -> str:
        """The identifier, under the name that files have it."""
        return self._identifier

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has a plain attribute
        return self._text.encoding

    @property
    def buffer(self) -> Any:
        """The binary stream underneath."""
        return self._text.buffer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._identifier!r}, {self._text.encoding}>"

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # typeshed: IOBase gives bytes
        if self._text.seekable():
            self._text.seek(0)
        while line := self._text.readline():
            yield line

    def __next__(self) -> str:  # type: ignore[override]  # typeshed: IOBase gives bytes
        if line := self._text.readline():
            return line
        raise StopIteration

    def read(self, size: int | None = -1, /) -> str:
        return self._text.read(size)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # typeshed's TextIOBase names no default
        return self._text.readline(size)

    def readlines(self, hint: int | None = -1, /) -> list[str]:  # type: ignore[override]  # typeshed: list[bytes]
        lines, n_characters = [], 0
        while line := self._text.readline():
            lines.append(line)
            n_characters += len(line)
            if hint is not None and 0 < hint <= n_characters:
                break
        return lines

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._text.seek(offset, whence)

    def tell(self) -> int:
        return self._text.tell()

    def readable(self) -> bool:
        return self._text.readable()

    def seekable(self) -> bool:
        return self._text.seekable()

    def writable(self) -> bool:
        return self._text.writable()

    def write(self, text: str, /) -> int:
        return self._text.write(text)

    def flush(self) -> None:
        if not self.closed:
            self._text.flush()

    def close(self) -> None:
        if "_text" in self.__dict__:
            self._text.close()

    @property
    def closed(self) -> bool:
        return "_text" not in self.__dict__ or self._text.closed
