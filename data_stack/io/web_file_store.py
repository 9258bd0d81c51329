"""A file of a web server, read as if a store held it."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from data_stack.exception import (
    ConfigError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.io.redaction import hide_credentials, printable
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.url import split_cache
from data_stack.io.url import StorageURL
from data_stack.io.web.files import WebFile

#: Parts of this size are requested where a file is read at random.
_BLOCK_BYTES: Final = 1 << 16

#: The size of the largest request where a file is read from its start to its end: at 20 ms and
#: 1 Gbit/s, the line is busy for three quarters of the time.
_AHEAD_BYTES: Final = 8 << 20


class WebFileStore:
    """A store that holds one file of a web server, which is read by ranges.

    A resource keeps to the version of the file that was there when it was opened: after a change,
    reading raises a ResourceChangedError. Its ``tag`` is the ETag of the file. It is None if the
    server sends none, or a weak one, which does not promise equal bytes.

    Threads may share the store. It is pickled as the URL.

    Args:
        url: the URL of the file. A user and password in it are sent to its own host only, and never
            shown.

    Attributes:
        folder: the URL of the folder of the file, without query and credentials.
        file: the name of the file in the folder, decoded.

    Raises:
        ConfigError: the URL names no file, or has a pin or a cache, which are for published
            datasets.
    """

    folder: str
    file: str

    #: The URL of the file, perhaps with a password.
    _url: StorageURL

    def __init__(self, url: StorageURL) -> None:
        _, put_cache = split_cache(url)
        if url.fragment or put_cache is not None:
            raise ConfigError(
                "a cache and a pin (#sha256=…) are for published datasets; leave them out of the "
                "URL of a single file"
            )
        folder, _, name = url.path.rpartition("/")
        if not name:
            raise ConfigError("the URL names a folder of a web server; name a file in it")
        self.folder = hide_credentials(f"{url.scheme}://{url.authority}{folder}")
        self.file = printable(unquote(name))
        self._url = url

    def __repr__(self) -> str:
        # With its query, as one path may have several files: the repr tells stores apart.
        return f"<file of a web server at {hide_credentials(str(self._url))!r}>"

    @property
    def _identifier(self) -> str:
        """The identifier of the only resource."""
        return f"{self.folder}/{self.file}"

    def get_resource(self, identifier: str) -> StreamedResource:
        """Open the file, which takes one request. The caller closes it.

        Raises:
            ResourceNotFoundError: there is no such file.
            StorageUnavailableError: the server does not answer.
            StorageError: the server does not serve ranges, or answers something else.
        """
        if identifier != self._identifier:
            raise ResourceNotFoundError(identifier, repr(self))
        file = WebFile(str(self._url), self._identifier, repr(self))
        return StreamedResource.from_source(identifier, BlockedSource(_WebBlocks(file)), self)

    def has_resource(self, identifier: str) -> bool:
        """Return whether the server has the file.

        Raises:
            StorageError: as for :meth:`get_resource`.
        """
        try:
            self.get_resource(identifier).close()
        except ResourceNotFoundError:
            return False
        return True

    def list_resources(self, prefix: str) -> list[str]:
        """Return the identifier of the file in a list, if it begins with ``prefix``.

        Raises:
            StorageError: as for :meth:`get_resource`.
        """
        if self._identifier.startswith(prefix) and self.has_resource(self._identifier):
            return [self._identifier]
        return []


class _WebBlocks(Blocks):
    """The blocks of a file of a web server.

    Args:
        file: the file.

    Raises:
        ResourceNotFoundError, StorageError: as for :meth:`WebFileStore.get_resource`.
    """

    ahead_bytes = _AHEAD_BYTES
    block_bytes = _BLOCK_BYTES
    sha256 = None

    #: The file.
    _file: WebFile

    def __init__(self, file: WebFile) -> None:
        self._file = file
        # The answer to the smallest request says what the file is.
        first_byte = file.read(0, 1)
        self.size = 0
        if not first_byte:
            return
        version = file.version
        if version is None or version.size is None:
            raise StorageError(f"{file.name!r} cannot be read: the server does not say its size")
        self.size = version.size
        if version.strong_etag is not None:
            self.tag = str(version)

    def fetch_run(self, first: int, n_blocks: int) -> memoryview:
        start, stop = self.range_of(first, n_blocks)
        data = self._file.read_view(start, stop)
        if len(data) != stop - start:
            raise ResourceChangedError(
                self._file.name, f"{self.size:,} bytes", f"{start + len(data):,} bytes"
            )
        return data
