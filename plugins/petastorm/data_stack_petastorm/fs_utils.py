"""File systems of URLs, for programs that ask for them.

Readers and writers take the URLs themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import ParseResult, unquote, urlparse

from data_stack.exception import ConfigError, MissingDependencyError

#: Schemes whose file systems take a path; others take the bucket before it.
_SCHEMES_OF_PATHS = ("file", "hdfs")


class FilesystemResolver:
    """The file system of a URL, by fsspec.

    Args:
        dataset_url: a URL with its scheme; parsed or not.
        hadoop_configuration: no effect; Hadoop's client reads its own (``HADOOP_CONF_DIR``).
        connector: no effect.
        hdfs_driver: no effect; pyarrow only has ``libhdfs``.
        user: user of HDFS; None: the user that runs the program.
        storage_options: arguments of fsspec's file system.

    Raises:
        ConfigError: the URL has no scheme.
        ValueError: fsspec does not know the scheme.
        ImportError: fsspec, or a package that it needs for the scheme, is not installed.
        OSError: HDFS cannot be reached.
    """

    _url: ParseResult
    #: Makes the file system; it pickles.
    _factory: Callable[[], Any]
    _filesystem: Any

    def __init__(
        self,
        dataset_url: str | ParseResult,
        hadoop_configuration: Any = None,
        connector: Any = None,
        hdfs_driver: str = "libhdfs3",
        user: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._url = urlparse(dataset_url) if isinstance(dataset_url, str) else dataset_url
        if not self._scheme:
            raise ConfigError(
                "expected a URL with a scheme, such as file:///data, "
                f"got {self._url.geturl()!r:.80}"
            )
        options: dict[str, Any] = {}
        if self._scheme == "hdfs":
            options["host"] = self._url.hostname or "default"
            options["port"] = self._url.port or 0
            options["user"] = user
        options.update(storage_options or {})
        try:
            import fsspec
        except ImportError as error:
            raise MissingDependencyError("FilesystemResolver", "fsspec", "cloud") from error
        self._factory = functools.partial(fsspec.filesystem, self._scheme, **options)
        self._filesystem = self._factory()

    def parsed_dataset_url(self) -> ParseResult:
        """Return the parsed URL."""
        return self._url

    def get_dataset_path(self) -> str:
        """Return the path in the file system; that of an object store begins with the bucket."""
        path = unquote(self._url.path)
        if self._scheme in _SCHEMES_OF_PATHS:
            return path
        return self._url.netloc + path

    def filesystem(self) -> Any:
        """Return the file system."""
        return self._filesystem

    def filesystem_factory(self) -> Callable[[], Any]:
        """Return a function that pickles and makes the file system, for Spark's executors."""
        return self._factory

    @property
    def _scheme(self) -> str:
        return self._url.scheme.lower()
