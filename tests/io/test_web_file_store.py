"""A file of a web server as a resource: ranges, versions, and servers that answer wrongly."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import pytest
from web_server import Answer, ScriptedServer

import data_stack
from data_stack.exception import (
    ConfigError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.location import as_resource, location_of
from data_stack.io.resources import StreamedResource

_BODY = os.urandom(300_000)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def serve(server: ScriptedServer, body: bytes = _BODY, etag: str | None = '"1"') -> str:
    """Serve a file by ranges, and return its URL."""
    headers = {} if etag is None else {"ETag": etag}
    return server.serve("/sets/my%20data.bin", body, ranges=True, headers=headers)


def opened(url: str) -> StreamedResource:
    return as_resource(url)


def test_a_file_is_read_by_ranges(server: ScriptedServer) -> None:
    with opened(serve(server)) as resource:
        assert resource.size == len(_BODY)
        assert resource.read_at(100_000, 50) == _BODY[100_000:100_050]
        assert resource.read() == _BODY
    ranges = [request.headers["range"] for request in server.requests]
    assert ranges[:2] == ["bytes=0-0", "bytes=65536-131071"]


def test_its_location_has_the_name_and_no_credentials(server: ScriptedServer) -> None:
    url = serve(server).replace("http://", "http://user:secret-canary@")

    location = location_of(f"{url}?token=secret-canary&x=1")

    assert location.name == "my data.bin"
    assert location.full_name == f"http://***@{url.partition('@')[2]}".replace("%20", " ")
    assert location.is_file()
    assert server.requests[-1].path == "/sets/my%20data.bin?token=secret-canary&x=1"
    assert "secret-canary" not in repr((location, location.open()))


def test_another_process_reads_the_same_version(server: ScriptedServer) -> None:
    url = serve(server)
    copy = pickle.dumps(opened(url))

    assert pickle.loads(copy).read() == _BODY


def test_a_strong_etag_is_the_tag(server: ScriptedServer) -> None:
    tag = opened(serve(server)).tag

    assert tag is not None
    assert '"1"' in tag
    assert opened(serve(server, etag='W/"1"')).tag is None
    assert opened(serve(server, etag=None)).tag is None


@pytest.mark.parametrize("etag", ['"2"', 'W/"1"', None])
def test_a_file_that_changes_is_an_error(server: ScriptedServer, etag: str | None) -> None:
    resource = opened(serve(server))
    serve(server, etag=etag)

    with pytest.raises(ResourceChangedError, match=r"my.+data\.bin"):
        resource.read_at(0, 10)


def test_a_file_that_shrinks_is_an_error(server: ScriptedServer) -> None:
    shrunk = Answer(b"", 416, {"Content-Range": "bytes */10"})
    resource = opened(server.url("/a.bin", Answer(_BODY, ranges=True), shrunk))

    with pytest.raises(ResourceChangedError, match="300,000 bytes"):
        resource.read_at(200_000, 10)


def test_a_missing_file_is_an_error(server: ScriptedServer) -> None:
    location = location_of(f"{server.origin}/a.csv")

    assert not location.is_file()
    with pytest.raises(ResourceNotFoundError, match=r"a\.csv"):
        location.open()
    with pytest.raises(ConfigError, match=r"there is nothing at .*a\.csv"):
        data_stack.load(f"{server.origin}/a.csv")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(_BODY), "does not support ranges"),
        (Answer(status=403), "answers 403"),
        (Answer(_BODY[:1], 206, {"Content-Range": "bytes 0-0/*"}), "does not say its size"),
        (Answer(_BODY[:1], 206, {"Content-Range": "bytes 7-7/9"}), "sends bytes 7 to 8"),
    ],
)
def test_a_wrong_answer_is_an_error(server: ScriptedServer, answer: Answer, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        opened(server.url("/a.bin", answer))


def test_a_body_that_is_cut_short_is_requested_again(server: ScriptedServer) -> None:
    first = Answer(_BODY, ranges=True)
    cut = Answer(_BODY, ranges=True, cut_at=1000)

    resource = opened(server.url("/a.bin", first, cut, first))

    assert resource.read_at(0, 2000) == _BODY[:2000]


def test_a_body_that_stays_short_is_an_error(server: ScriptedServer) -> None:
    first = Answer(_BODY, ranges=True)
    resource = opened(server.url("/a.bin", first, Answer(_BODY, ranges=True, cut_at=1000)))

    with pytest.raises(StorageUnavailableError, match="the connection was cut"):
        resource.read_at(0, 2000)


@pytest.mark.parametrize(
    "answer", [Answer(b""), Answer(b"", 416, {"Content-Range": "bytes */0"})], ids=["200", "416"]
)
def test_an_empty_file_is_empty(server: ScriptedServer, answer: Answer) -> None:
    resource = opened(server.url("/a.bin", answer))

    assert resource.size == 0
    assert resource.read() == b""


@pytest.mark.parametrize("end", ["#sha256=00", "?cache=/tmp/c", "?x=1&cache=/tmp/c&cacheBytes=5"])
def test_options_of_published_datasets_are_refused(server: ScriptedServer, end: str) -> None:
    with pytest.raises(ConfigError, match="for published datasets"):
        opened(serve(server) + end)


def test_a_folder_is_no_file(server: ScriptedServer) -> None:
    with pytest.raises(ConfigError, match="names a folder"):
        opened(f"{server.origin}/sets/")
