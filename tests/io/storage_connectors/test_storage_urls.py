"""Stores are named by URL or path; what names none is refused, without showing what may be a password."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url


def root_of(url_or_path: Any) -> str:
    connector = storage_connector_from_url(url_or_path)
    assert isinstance(connector, FileStorageConnector)
    return connector.root_path


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("/data/sets", "/data/sets"),
        (Path("/data/sets"), "/data/sets"),
        (PurePosixPath("/data/sets"), "/data/sets"),
        (Path("file:/data"), os.path.abspath("file:/data")),
        ("relative", os.path.abspath("relative")),
        ("v1:data", os.path.abspath("v1:data")),
        ("~/sets", os.path.expanduser("~/sets")),
        ("file:///data/sets", "/data/sets"),
        ("file:///data/my%20sets%3F", "/data/my sets?"),
        ("FILE:///data", "/data"),
        ("file:/data", "/data"),
        ("file://localhost/data", "/data"),
        ("file:///data/~", "/data/~"),
    ],
)
def test_a_path_or_file_url_names_a_folder(given_url: Any, expected: str) -> None:
    assert root_of(given_url) == expected


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(lambda name: "/" + name))
def test_the_file_url_of_a_folder_leads_to_that_folder(path: str) -> None:
    assert root_of(PurePosixPath(path).as_uri()) == os.path.abspath(str(PurePosixPath(path)))


def test_naming_a_folder_does_not_make_it(tmp_path: Path) -> None:
    storage_connector_from_url(tmp_path / "new")

    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("url", ["memory://", "memory:", "MEMORY://"])
def test_each_memory_url_is_a_new_store(url: str) -> None:
    first, second = storage_connector_from_url(url), storage_connector_from_url(url)

    assert isinstance(first, InMemoryStorageConnector)
    assert first is not second


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a\0b",
        "file://data/sets",
        "file://",
        "file:",
        "file:data",
        "file:///data?x=1",
        "file:///data#x",
        "file:///data?",
        "file:///a%00b",
        "file://[/data",
        "memory://shared",
    ],
)
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        storage_connector_from_url(url)


def test_an_unknown_scheme_is_answered_with_the_nearest_and_shows_no_password() -> None:
    with pytest.raises(ConfigError, match=r"mongo:// \(did you mean mongodb://\?\).*file://, memory://, mongodb://") as caught:
        storage_connector_from_url(
            "mongo://user:secret@host/db?password=hidden",
            more_schemes=lambda: {"mongodb": lambda url: InMemoryStorageConnector()},
        )

    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_other_schemes_are_asked_for_only_when_one_is_needed() -> None:
    asked = []

    def more_schemes() -> dict[str, Any]:
        asked.append(True)
        return {"remote": lambda url: InMemoryStorageConnector(), "file": lambda url: None}

    storage_connector_from_url("memory://", more_schemes=more_schemes)
    storage_connector_from_url("/data", more_schemes=more_schemes)
    assert isinstance(storage_connector_from_url("file:///data", more_schemes=more_schemes), FileStorageConnector)
    assert not asked

    storage_connector_from_url("remote://host", more_schemes=more_schemes)
    assert asked == [True]
