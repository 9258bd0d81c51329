"""The one parser of URLs: what it takes apart it puts together again, and it shows no secret."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.io.url import StorageURL, split_url


def parsed(text: str) -> StorageURL:
    url = StorageURL.parse(text)
    assert url is not None
    return url


def test_a_url_is_taken_apart_as_it_is_written() -> None:
    url = parsed("S3://key:a%2Fb@Bucket/My%20Folder/x?region=eu&endpointUrl=http://h:1/?#there")

    assert (url.scheme, url.authority, url.host) == ("s3", "key:a%2Fb@Bucket", "Bucket")
    assert (url.path, url.query, url.fragment) == ("/My%20Folder/x", "?region=eu&endpointUrl=http://h:1/?", "#there")
    assert url.parameters() == [("region", "eu"), ("endpointUrl", "http://h:1/?")]


@settings(max_examples=25)
@given(st.text(), st.text(), st.text())
def test_no_text_breaks_the_parser(authority: str, path: str, query: str) -> None:
    url = StorageURL.parse(f"s3://{authority}/{path}?{query}")

    assert url is not None
    assert str(url) == f"s3://{authority}/{path}?{query}"
    assert repr(url) == "<StorageURL s3://…>"


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
