"""File systems of URLs, for programs that ask for them; readers and writers take the URLs themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import ParseResult, unquote, urlparse

import pyarrow.fs as pafs

from data_stack.exception import ConfigError


class FilesystemResolver:
    """The file system of a URL: pyarrow's for ``file`` and ``hdfs``, fsspec's for all others.

    Args:
        dataset_url: with its scheme; parsed or not.
        hadoop_configuration: has no effect: Hadoop's client reads its own (``HADOOP_CONF_DIR``).
        connector: has no effect.
        hdfs_driver: has no effect: pyarrow has ``libhdfs`` alone.
        user: who connects to HDFS; None for who runs the program.
        storage_options: arguments of fsspec's file system.

    Raises:
        ValueError: the URL has no scheme, no bucket, or a scheme that fsspec does not know.
        ImportError: fsspec, or what it needs for the scheme, is not installed.
        OSError: HDFS cannot be reached.
    """

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
        self._factory: Callable[[], Any] = _factory(self._url, user, dict(storage_options or {}))
        self._filesystem = self._factory()

    def parsed_dataset_url(self) -> ParseResult:
        """The URL in parts."""
        return self._url

    def get_dataset_path(self) -> str:
        """The path in the file system."""
        return get_dataset_path(self._url)

    def filesystem(self) -> Any:
        """The file system."""
        return self._filesystem

    def filesystem_factory(self) -> Callable[[], Any]:
        """A function that pickles and makes the file system, for executors of Spark."""
        return self._factory


def get_dataset_path(parsed_url: ParseResult) -> str:
    """The path of a URL in its file system: of stores of objects the bucket is its beginning."""
    path = unquote(parsed_url.path)
    return path if parsed_url.scheme.lower() in ("file", "hdfs") else parsed_url.netloc + path


def get_filesystem_and_path_or_paths(
    url_or_urls: str | list[str],
    hdfs_driver: str = "libhdfs3",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> tuple[Any, Any]:
    """The file system of a URL, or of the URLs in a list, and the path, or the paths.

    Args:
        url_or_urls: of a dataset, or of files.
        hdfs_driver: has no effect.
        storage_options: as for :class:`FilesystemResolver`.
        filesystem: to return instead of the one of the URLs.

    Raises:
        ConfigError: the URLs are of several stores; or as :class:`FilesystemResolver`.
    """
    urls = [urlparse(url) for url in (url_or_urls if isinstance(url_or_urls, list) else [url_or_urls])]
    if len({(url.scheme, url.netloc) for url in urls}) != 1:
        raise ConfigError("The dataset url list must contain url with the same scheme and netloc.")
    found = filesystem or FilesystemResolver(urls[0], storage_options=storage_options).filesystem()
    paths = [get_dataset_path(url) for url in urls]
    return found, paths if isinstance(url_or_urls, list) else paths[0]


def normalize_dir_url(dataset_url: str) -> str:
    """A URL without the slash at its end.

    Raises:
        ConfigError: it is no text.
    """
    if not isinstance(dataset_url, str):
        raise ConfigError(f"directory url must be a string, not {dataset_url!r:.60}")
    return dataset_url.removesuffix("/")


def readable_source(dataset_url: Any) -> Any:
    """What data_stack opens for a URL that Spark writes to: Hadoop has names of its own for s3."""
    if isinstance(dataset_url, str) and dataset_url.startswith(("s3a://", "s3n://")):
        return f"s3://{dataset_url[6:]}"
    return dataset_url


def _factory(url: ParseResult, user: str | None, options: dict[str, Any]) -> Any:
    scheme = url.scheme.lower()
    if not scheme:
        raise ConfigError(f"a URL has a scheme: file://{url.path} for a local folder, not {url.path!r:.80}")
    if scheme == "file":
        return pafs.LocalFileSystem
    if scheme == "hdfs":
        port = {} if url.port is None else {"port": url.port}
        return functools.partial(pafs.HadoopFileSystem, url.hostname or "default", user=user, **port)
    if not url.netloc:
        raise ConfigError(f"URLs must be of the form {scheme}://bucket/path, not {url.geturl()!r:.80}")
    import fsspec

    return functools.partial(fsspec.filesystem, scheme, **options)
