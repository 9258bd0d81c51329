"""Stores are named by URL or path; what names none is refused, without showing what may be a password."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.storage_connectors import CachedStorageConnector, InMemoryStorageConnector
from data_stack.io.storage_connectors.url import parse_bytes, storage_connector_from_url


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


def test_an_unknown_scheme_is_answered_with_those_there_are_and_shows_no_password() -> None:
    with pytest.raises(ConfigError, match=r"mongo://.*memory://, mine://, mongodb://, ") as caught:
        storage_connector_from_url(
            "mongo://user:secret@host/db?password=hidden", more_schemes=lambda: {"mine": lambda url: InMemoryStorageConnector()}
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
def test_an_error_on_a_url_shows_no_part_of_it_but_its_scheme(url: str) -> None:
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
for url in ("mongodb://user:canary@host/db", "s3://bucket"):
    try:
        storage_connector_from_url(url)
    except ImportError as error:
        print(type(error).__name__, error)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    first, second = done.stdout.splitlines()
    assert first.startswith("MissingDependencyError")
    assert 'pip install "lazy-data-stack[mongodb]"' in first
    assert 'pip install "lazy-data-stack[cloud]"' in second
    assert "canary" not in done.stdout


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
    right = {"1000": 1000, "50GB": 50 * 10**9, "50 gb": 50 * 10**9, "1.5TiB": 3 << 39, "2k": 2000, "7B": 7}
    assert {text: parse_bytes(text) for text in right} == right
    assert [parse_bytes(text) for text in ("0", "-1", "", "GB", "1iB", "1e9", "nan")] == [None] * 7
