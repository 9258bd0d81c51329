"""An answer that is read as http.client receives it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol


class Answer(Protocol):
    """What is used of an answer: of urllib3's, where a session of the user asks, or of ours.

    Attributes:
        status: the HTTP status.
        reason: the reason of the server, such as "Not Found".
        headers: the headers, found by their names in any case.
    """

    @property
    def status(self) -> int: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def read(self, amt: int, *, decode_content: bool) -> bytes:
        """Return the next bytes of the body, fewer than ``amt`` only at its end."""
        ...

    def read1(self, amt: int, *, decode_content: bool) -> bytes:
        """Return the next bytes of the body as they come, at most ``amt``; empty at its end."""
        ...

    def readinto(self, buffer: memoryview) -> int:
        """Receive the next bytes of the body; return how many came, 0 only at its end."""
        ...

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        ...


class HeaderFields(Mapping[str, str]):
    """The headers of an answer, found by their names in any case.

    Args:
        fields: names and values. The values of one name are joined with commas.
    """

    #: By the name in lower case.
    _values: dict[str, str]

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._values = {}
        for name, value in fields:
            key = name.lower()
            if key in self._values:
                value = f"{self._values[key]}, {value}"
            self._values[key] = value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a header, or ``default``."""
        # That of the base class raises and catches an error for each header that is missing.
        return self._values.get(name.lower(), default)


class DirectAnswer:
    """An answer as http.client received it, for the pools of urllib3.

    It stands in for urllib3's own answer, which decodes bodies, counts them and notes a history:
    that took 0.1 ms of processor time for each request. The exchange checks the length.

    Args:
        response: the answer, with its body unread.
        headers: its headers.

    Attributes:
        status: the HTTP status.
        reason: the reason of the server.
        headers: the headers.
        retries: the pool assigns it, and nothing reads it.
    """

    status: int
    reason: str | None
    headers: Mapping[str, str]
    retries: Any
    _response: http.client.HTTPResponse
    #: The connection, until it is returned to its pool; None if nobody returns it. The pool of
    #: urllib3 assigns it, and itself.
    _connection: Any
    _pool: Any

    def __init__(self, response: http.client.HTTPResponse, headers: Mapping[str, str]) -> None:
        self.status = response.status
        self.reason = response.reason
        self.headers = headers
        self.retries = None
        self._response = response
        self._connection = None
        self._pool = None

    @property
    def version_string(self) -> str:
        """The version of HTTP, for the log of urllib3."""
        return f"HTTP/{self._response.version / 10}"

    @property
    def length_remaining(self) -> int | None:
        """The announced length of the body in bytes, for the log of urllib3."""
        return self._response.length

    def read(self, amt: int, *, decode_content: bool = False) -> bytes:
        """Return the next bytes of the body, fewer than ``amt`` only at its end; see Answer."""
        data = self._response.read(amt)
        self._release_at_end()
        return data

    def read1(self, amt: int, *, decode_content: bool = False) -> bytes:
        """Return the next bytes of the body as they come; see :class:`Answer`."""
        if self._response.isclosed():
            return b""
        data = self._response.read1(amt)
        if self._response.length == 0:
            # Up to Python 3.12, read1() does not close the response at the end of the body.
            self._response.close()
        self._release_at_end()
        return data

    def readinto(self, buffer: memoryview) -> int:
        """Receive the next bytes of the body; see :class:`Answer`."""
        n_bytes = self._response.readinto(buffer)
        self._release_at_end()
        return n_bytes

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._response.close()
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close()

    def _release_at_end(self) -> None:
        """Give the connection back to its pool if the body was read to its end."""
        # After a cut, http.client closes the response as well, but bytes are missing.
        is_at_end = self._response.isclosed() and not self._response.length
        if not is_at_end:
            return
        connection = self._connection
        self._connection = None
        if connection is not None:
            self._pool.take_back(connection)
