"""Stores are named by URL or path; what names none is refused, without showing what may be a
password.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_harness import run_python

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.storage_connectors import CachedStorageConnector, InMemoryStorageConnector
from data_stack.io.storage_connectors.url import parse_bytes, storage_connector_from_url
from data_stack.io.url import StorageURL, split_url


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        (Path("/data/sets"), "/data/sets"),
        (Path("file:/data"), os.path.abspath("file:/data")),
        ("v1:data", os.path.abspath("v1:data")),
        ("~/sets", os.path.expanduser("~/sets")),
        ("file:///data/sets", "/data/sets"),
        ("file:///data/my%20sets%3F", "/data/my sets?"),
        ("file:/data", "/data"),
        ("file://localhost/data", "/data"),
    ],
)
def test_a_path_or_file_url_names_a_folder(given_url: Any, expected: str) -> None:
    connector: Any = storage_connector_from_url(given_url)
    assert connector.root_path == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a\0b",
        "file://",
        "file:///data?x=1",
        "file:///a%00b",
        "memory://shared",
        "mongodb:/host/db",
    ],
)
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        storage_connector_from_url(url)


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"mongo://.*memory://, mine://, mongodb://, ") as caught:
        storage_connector_from_url(
            "mongo://user:secret@host/db?password=hidden",
            more_schemes=lambda: {"mine": lambda url: InMemoryStorageConnector()},
        )

    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


# ------------------------------------------------------------------ databases and clouds


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://",
        "mongodb://canary:canary@host:canary/db?canary=canary",
        "mongodb://user:canary@host/db?readOnly=canary",
        "mongodb://user:canary@host/db?bucket=canary$",
        "mongodb+srv://user:canary@[canary/db",
        "s3://",
        "s3://bucket/folder?canary=canary",
        "s3://bucket/folder?cacheBytes=canary&cache=/canary",
        "s3://bucket/folder?cache=file:///canary",
        "sftp://user:canary@[host/folder",
        "canary://canary",
        "mongodb:canary@host/db",
        "user:canary@host://db",
    ],
)
def test_an_error_shows_nothing_of_a_url_but_its_scheme(url: str) -> None:
    try:
        connector = storage_connector_from_url(url)
    except (ConfigError, MissingDependencyError) as error:
        chain = "".join(traceback.format_exception(error))
        assert "canary" not in chain.replace("canary://", "").replace("test_an_error_on", "")
    else:
        assert "canary:" not in repr(connector)  # a name of it shows where it is


def test_without_the_package_the_error_names_the_extra() -> None:
    program = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pymongo", "bson", "fsspec", "obstore"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from data_stack import storage_connector_from_url
for url in ("mongodb://user:canary@host/db", "s3://bucket", "gs://bucket"):
    try:
        storage_connector_from_url(url)
    except ImportError as error:
        print(type(error).__name__, error)
"""

    said, _ = run_python("-c", program)

    first, second, third = said.splitlines()
    assert first.startswith("MissingDependencyError")
    assert 'pip install "lazy-data-stack[mongodb]"' in first
    assert 's3:// needs fsspec: pip install "lazy-data-stack[s3]"' in second
    assert 'pip install "lazy-data-stack[cloud]"' in third
    assert "canary" not in said


# ------------------------------------------------------------------ caches


def test_a_url_with_a_cache_is_that_store_behind_one(tmp_path: Path) -> None:
    seen = []

    def connect(url: str) -> InMemoryStorageConnector:
        seen.append(url)
        return InMemoryStorageConnector()

    url = f"remote://u:p%3F%26@host/db?a=1&cache={tmp_path}/my%20cache&b=%20&cacheBytes=50GB&c"
    connector = storage_connector_from_url(url, more_schemes=lambda: {"remote": connect})

    assert isinstance(connector, CachedStorageConnector)
    assert isinstance(connector.remote, InMemoryStorageConnector)
    assert connector.local == str(tmp_path / "my cache")
    assert connector.__reduce__()[1] == (connector.remote, connector.local, 50_000_000_000)
    assert seen == ["remote://u:p%3F%26@host/db?a=1&b=%20&c"]
    assert not (tmp_path / "my cache").exists()


def test_a_number_of_bytes_has_a_unit_or_none() -> None:
    right = {
        "1000": 1000,
        "50GB": 50 * 10**9,
        "50 gb": 50 * 10**9,
        "1.5TiB": 3 << 39,
        "2k": 2000,
        "7B": 7,
    }
    assert {text: parse_bytes(text) for text in right} == right
    assert [parse_bytes(text) for text in ("0", "-1", "", "GB", "1iB", "1e9", "nan")] == [None] * 7


def test_a_number_of_bytes_is_exact() -> None:
    largest = (1 << 63) - 1

    assert parse_bytes(str(largest)) == largest


@pytest.mark.parametrize("text", ["9223372036854775808", "9" * 30 + "TiB", "9" * 400, "9" * 5000])
def test_a_number_of_bytes_beyond_any_file_is_refused(text: str) -> None:
    assert parse_bytes(text) is None

    with pytest.raises(ConfigError, match="cacheBytes"):
        storage_connector_from_url(f"memory://?cache=/folder&cacheBytes={text}")


# ------------------------------------------------------------------ the parser


def test_a_url_is_taken_apart_as_it_is_written() -> None:
    url: Any = StorageURL.parse(
        "S3://key:a%2Fb@Bucket/My%20Folder/x?region=eu&endpointUrl=http://h:1/?#there"
    )

    assert (url.scheme, url.authority, url.host) == ("s3", "key:a%2Fb@Bucket", "Bucket")
    assert (url.path, url.query, url.fragment) == (
        "/My%20Folder/x",
        "?region=eu&endpointUrl=http://h:1/?",
        "#there",
    )
    assert url.parameters() == [("region", "eu"), ("endpointUrl", "http://h:1/?")]


@given(st.text(), st.text(), st.text())
def test_no_text_breaks_the_parser(authority: str, path: str, query: str) -> None:
    url = StorageURL.parse(f"s3://{authority}/{path}?{query}")

    assert str(url) == f"s3://{authority}/{path}?{query}"
    assert repr(url) == "<StorageURL s3://…>"


@pytest.mark.parametrize(
    "text", ["file://host/a", "file:", "file:a", "file:///a?b", "file:///a#b", "file:///a%00b"]
)
def test_a_file_url_of_elsewhere_is_refused(text: str) -> None:
    url: Any = StorageURL.parse(text)

    with pytest.raises(ConfigError, match="file URL"):
        url.local_path()


def test_a_url_names_a_store_and_a_path() -> None:
    store, name = split_url("mongodb://u:p@a,b:1/db/sets/train?bucket=x")
    assert (str(store), name) == ("mongodb://u:p@a,b:1/db?bucket=x", "sets/train")
    bucket, key = split_url(StorageURL("s3", "bucket", "/a/b.tar", "?region=eu"))
    assert (str(bucket), key) == ("s3://bucket/a?region=eu", "b.tar")
    assert split_url("file:///a/b%20c.h5") == (None, "/a/b c.h5")


@pytest.mark.parametrize(
    "text", ["mongodb://u:canary@host/db", "s3://canary", "://canary", "canary"]
)
def test_a_url_of_nothing_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_url(text)

    assert "canary" not in str(caught.value)
