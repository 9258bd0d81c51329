"""What users write to name a dataset is parsed once: a path or URL, or a name with a version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_stack.io.url import StorageURL
from data_stack.repository.dataset_names import DatasetName, PlaceName, is_place, parse_name

HOME_TEXT = "~/pictures"


@pytest.mark.parametrize("text", ["./a", "../a", "/a", HOME_TEXT, ".", "..", "a/", "hf/a/"])
def test_some_beginnings_and_ends_make_a_path(text: str) -> None:
    assert parse_name(text) == PlaceName(text, url=None)


def test_a_path_object_is_a_place_whatever_its_name() -> None:
    assert parse_name(Path("digits")) == PlaceName("digits", url=None)


def test_a_url_comes_with_its_parts() -> None:
    name = parse_name("s3://bucket/sets/train.h5?region=eu")

    assert isinstance(name, PlaceName)
    assert name.url == StorageURL("s3", "bucket", "/sets/train.h5", "?region=eu")


def test_a_malformed_url_is_a_place_without_parts() -> None:
    assert parse_name("://secret") == PlaceName("://secret", url=None)


@pytest.mark.parametrize(
    ("text", "plain", "version"),
    [
        ("digits", "digits", ""),
        ("digits@1.0.0", "digits", "1.0.0"),
        ("a@b@1", "a@b", "1"),
        ("digits@", "digits", ""),
        ("distribution:digits@1", "distribution:digits", "1"),
        ("hf:owner/name#part", "hf:owner/name#part", ""),
        ("train.csv", "train.csv", ""),
    ],
)
def test_other_texts_name_datasets(text: str, plain: str, version: str) -> None:
    assert parse_name(text) == DatasetName(text, plain, version)


@pytest.mark.parametrize("name", [None, 3, b"./a"])
def test_what_is_no_text_is_no_place(name: Any) -> None:
    assert not is_place(name)
