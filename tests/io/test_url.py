"""The one parser of URLs: what it takes apart it puts together again, and it shows no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.io.url import StorageURL, scheme_of, split_url


def parsed(text: str) -> StorageURL:
    url = StorageURL.parse(text)
    assert url is not None
    return url


def test_a_url_is_taken_apart_as_it_is_written() -> None:
    url = parsed("S3://key:a%2Fb@Bucket/My%20Folder/x?region=eu&endpointUrl=http://h:1/?#there")

    assert (url.scheme, url.authority, url.host) == ("s3", "key:a%2Fb@Bucket", "Bucket")
    assert (url.path, url.query, url.fragment) == ("/My%20Folder/x", "?region=eu&endpointUrl=http://h:1/?", "#there")
    assert url.parameters() == [("region", "eu"), ("endpointUrl", "http://h:1/?")]


@pytest.mark.parametrize(
    "path", ["", "data", "/data", "~/x", "v1:data", "C:\\data", "a b://c", "://x", Path("s3://bucket"), None, 3]
)
def test_what_is_a_path_is_no_url(path: Any) -> None:
    assert StorageURL.parse(path) is None
    assert scheme_of(path) is None


@pytest.mark.parametrize("text", ["s3://b/p?x=1&y=%20#f", "mongodb://u:p@a,b:1/db", "memory://", "hdfs:///x", "file:///a%3Fb"])
def test_a_url_is_put_together_as_it_was(text: str) -> None:
    assert str(parsed(text)) == text


@given(st.text(), st.text(), st.text())
def test_no_text_breaks_the_parser(authority: str, path: str, query: str) -> None:
    url = StorageURL.parse(f"s3://{authority}/{path}?{query}")

    assert url is not None
    assert str(url) == f"s3://{authority}/{path}?{query}"
    assert repr(url) == "<StorageURL s3://…>"


def test_parameters_are_left_out_whatever_their_case() -> None:
    url = parsed("s3://b?a=1&Cache=/x&b=%26&c")

    assert str(url.without_parameters({"cache"})) == "s3://b?a=1&b=%26&c"
    assert str(parsed("s3://b?cache=/x").without_parameters({"cache"})) == "s3://b"


@pytest.mark.parametrize("text", ["file:///a/b%20c", "file:/a/b%20c", "FILE://localhost/a/b%20c"])
def test_a_file_url_names_a_path(text: str) -> None:
    assert parsed(text).local_path() == "/a/b c"


@pytest.mark.parametrize("text", ["file://host/a", "file:", "file:a", "file:///a?b", "file:///a#b", "file:///a%00b"])
def test_a_file_url_of_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="file URL"):
        parsed(text).local_path()


def test_a_url_names_a_store_and_what_in_it_is_meant() -> None:
    assert split_url("mongodb://u:p@a,b:1/db/sets/train?bucket=x") == ("mongodb://u:p@a,b:1/db?bucket=x", "sets/train")
    assert split_url("s3://bucket/a/b.tar?region=eu") == ("s3://bucket/a?region=eu", "b.tar")
    assert split_url("file:///a/b%20c.h5") == (None, "/a/b c.h5")


@pytest.mark.parametrize("text", ["mongodb://u:canary@host/db", "s3://canary", "://canary", "canary"])
def test_a_url_that_names_nothing_in_a_store_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_url(text)

    assert "canary" not in str(caught.value)
