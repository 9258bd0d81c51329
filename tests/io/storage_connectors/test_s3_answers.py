"""What a bucket answers is what was asked for, or an error: ranges, versions, listings,
refusals.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from object_server import Answer, Request
from scripted_s3 import LOGIN, ScriptedS3, is_listing, key_of, listing_of, refusal

import data_stack
from data_stack.cli.main import main
from data_stack.exception import (
    ResourceChangedError,
    ResourceNotFoundError,
    RetrievalError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.testing.storage_connector import content

DATA = random.Random(0).randbytes(600_000)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


@pytest.fixture(params=["obstore", "fsspec"])
def s3(server: ScriptedS3, request: pytest.FixtureRequest) -> ScriptedS3:
    """The server, with nothing in it and without faults, for each client."""
    server.client = request.param
    server.reset()
    return server


def read_at(s3: ScriptedS3, offset: int, size: int = 8, name: str = "plain") -> bytes:
    with s3.store().get_resource(name) as resource:
        resource.seek(offset)
        return bytes(resource.read(size))


def is_read_of_plain(request: Request) -> bool:
    return request.method == "GET" and key_of(request) == "f/plain"


# ---------------------------------------------------------------------- ranges


def changed(s3: ScriptedS3, request: Request, **headers: str | None) -> Answer:
    """The right answer with other headers; None removes one."""
    answer = s3.right_answer(request)
    for name, value in headers.items():
        answer.headers.pop(name.replace("_", "-"), None)
        if value is not None:
            answer.headers[name.replace("_", "-")] = value
    return answer


def without_range(s3: ScriptedS3, request: Request) -> Answer:
    return Answer(200, DATA, s3.facts(key_of(request)))


def other_part(s3: ScriptedS3, request: Request) -> Answer:
    return s3.part(key_of(request), 1, 262_145)


def short_part(s3: ScriptedS3, request: Request) -> Answer:
    return s3.part(key_of(request), 262_144, 300_000)


def without_content_range(s3: ScriptedS3, request: Request) -> Answer:
    return changed(s3, request, Content_Range=None)


def several_parts(s3: ScriptedS3, request: Request) -> Answer:
    return changed(s3, request, Content_Type="multipart/byteranges; boundary=x")


def too_long(s3: ScriptedS3, request: Request) -> Answer:
    answer = s3.right_answer(request)
    answer.body += b"more"
    return answer


@pytest.mark.parametrize(
    "fault",
    [without_range, other_part, short_part, without_content_range, several_parts, too_long],
)
def test_another_range_than_the_requested_one_is_refused(
    s3: ScriptedS3, fault: Callable[[ScriptedS3, Request], Answer]
) -> None:
    s3.put("f/plain", DATA)

    def rule(request: Request) -> Answer | None:
        return fault(s3, request) if is_read_of_plain(request) else None

    assert read_at(s3, 300_000) == DATA[300_000:300_008]
    s3.rule = rule
    with pytest.raises(StorageError, match="could not read 'plain'") as caught:
        read_at(s3, 300_000)

    assert not isinstance(caught.value, StorageUnavailableError)


def test_a_part_that_is_cut_is_requested_again(s3: ScriptedS3) -> None:
    s3.put("f/plain", DATA)
    cut = s3.cut_first(is_read_of_plain)

    assert read_at(s3, 0) == DATA[:8]
    assert len(cut) == 1


def test_a_whole_object_answers_a_request_for_all_of_it(s3: ScriptedS3) -> None:
    """Some servers send it with status 200, and an empty object has no range at all."""
    s3.put("f/plain", b"small")
    s3.put("f/empty", b"")
    s3.rule = lambda request: (
        Answer(200, b"small", s3.facts("f/plain")) if is_read_of_plain(request) else None
    )

    assert content(s3.store(), "plain") == b"small"
    assert content(s3.store(), "empty") == b""


# ---------------------------------------------------------------------- versions


@pytest.mark.parametrize("tag", ['"other"', None], ids=["another", "missing"])
def test_a_part_of_another_version_is_refused(s3: ScriptedS3, tag: str | None) -> None:
    s3.put("f/plain", DATA)
    s3.rule = lambda request: changed(s3, request, ETag=tag) if is_read_of_plain(request) else None

    with pytest.raises(ResourceChangedError):
        read_at(s3, 300_000)


def test_parts_of_a_plain_object_are_requested_by_etag(s3: ScriptedS3) -> None:
    s3.put("f/plain", DATA)
    tag = s3.etag("f/plain")

    with s3.store().get_resource("plain") as resource:
        assert resource.read(10) == DATA[:10]
        asked = [request for request in s3.requests if request.headers.get("if-match") == tag]
        s3.put("f/plain", bytes(reversed(DATA)))
        resource.seek(590_000)
        with pytest.raises(ResourceChangedError):
            resource.read()

    assert asked
    heads = [request for request in s3.requests if request.method == "HEAD"]
    assert len(heads) == 2  # when it is opened, and for the message


def test_a_bucket_without_tags_is_compared_by_time_and_size(s3: ScriptedS3) -> None:
    s3.put("f/plain", DATA)
    s3.rule = lambda request: (
        changed(s3, request, ETag=None)
        if request.method in ("GET", "HEAD") and key_of(request) == "f/plain"
        else None
    )

    with s3.store().get_resource("plain") as resource:
        assert resource.read(10) == DATA[:10]
        s3.put("f/plain", DATA, age_seconds=5000.0)
        resource.seek(590_000)
        with pytest.raises(ResourceChangedError):
            resource.read()


# ---------------------------------------------------------------------- listings


@pytest.mark.parametrize(
    "command",
    [
        ["verify", "--storage", "PLACE"],
        ["gc", "--storage", "PLACE"],
        ["gc", "--dry-run", "--storage", "PLACE"],
        ["du", "--storage", "PLACE"],
        ["list", "--storage", "PLACE"],
        ["copy", "PLACE", "TARGET"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_bucket_that_does_not_exist_is_not_empty(
    s3: ScriptedS3,
    command: list[str],
    tmp_path: os.PathLike[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    places = {"PLACE": s3.place("misspelt"), "TARGET": os.fspath(tmp_path)}

    code = main([places.get(word, word) for word in command])

    assert code != 0
    assert "the bucket does not exist" in capsys.readouterr().err


def test_nothing_is_read_from_a_bucket_that_does_not_exist(s3: ScriptedS3) -> None:
    store = s3.store("misspelt/f")

    for ask in (store.has_resource, store.get_resource, store.stat, store.delete_resource):
        with pytest.raises(StorageError, match="the bucket does not exist"):
            ask("a")
    for prefix in ("", "a"):
        with pytest.raises(StorageError, match="the bucket does not exist"):
            store.list_resources(prefix)


def is_listing_of_pointers(request: Request) -> bool:
    return is_listing(request) and request.query["prefix"].endswith("/resources/")


OTHER_KEY = "<Contents><Key>{}</Key><Size>1</Size></Contents>"
DOUBTFUL_LISTINGS = {
    "a gateway's 404": (is_listing_of_pointers, Answer(404, b"default backend - 404")),
    "an empty 404": (is_listing_of_pointers, Answer(404)),
    "a page": (is_listing_of_pointers, Answer(200, b"<html><body>Please log in</body></html>")),
    "an empty answer": (is_listing_of_pointers, Answer(200)),
    "an empty listing": (is_listing_of_pointers, listing_of()),
    "no end": (is_listing_of_pointers, listing_of(end="<IsTruncated>true</IsTruncated>")),
    "the same page again": (is_listing, listing_of(token="t")),
    "another folder": (is_listing, listing_of(OTHER_KEY.format("elsewhere/a"))),
    "the whole bucket": (is_listing, listing_of(OTHER_KEY.format("f/other.csv"))),
    "no right": (is_listing, refusal(403, "AccessDenied", "Access Denied")),
}


@pytest.mark.parametrize("fault", DOUBTFUL_LISTINGS)
def test_garbage_is_not_collected_by_a_doubtful_listing(s3: ScriptedS3, fault: str) -> None:
    store = s3.store()
    store.set_resource("mine", DATA)
    s3.put("f/other.csv", b"a,b")
    s3.put("elsewhere/a", b"a")
    s3.make_old()
    before = set(s3.objects)
    is_doubtful, answer = DOUBTFUL_LISTINGS[fault]
    s3.rule = lambda request: answer if is_doubtful(request) else None

    with pytest.raises(StorageError):
        store.collect_garbage()

    assert before <= set(s3.objects)
    s3.rule = lambda request: None
    assert content(store, "mine") == DATA


@pytest.mark.parametrize("status", [404, 403])
def test_garbage_is_not_collected_if_a_pointer_cannot_be_read(s3: ScriptedS3, status: int) -> None:
    store = s3.store()
    store.set_resource("mine", DATA)
    s3.make_old()
    code = "NoSuchKey" if status == 404 else "AccessDenied"
    s3.rule = lambda request: (
        refusal(status, code)
        if key_of(request).endswith("mine~") and request.method == "GET"
        else None
    )

    with pytest.raises(StorageError):
        store.collect_garbage()

    s3.rule = lambda request: None
    assert content(store, "mine") == DATA


def test_garbage_is_what_no_pointer_needs_and_nothing_else(s3: ScriptedS3) -> None:
    store = s3.store()
    store.set_resource("mine", DATA)
    kept = set(s3.objects)
    store.set_resource("gone", DATA)
    store.delete_resource("gone")
    others = {"f/.data_stack/objects/notes.txt", "f/other.csv", "f/.data_stack/objects/x/1"}
    for key in others:
        s3.put(key, b"of another tool")
    s3.make_old()

    collected = {item.name for item in store.collect_garbage()}

    assert len(collected) == 1
    assert set(s3.objects) == kept | others


def test_listings_of_many_pages_are_put_together(s3: ScriptedS3) -> None:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        s3.put(f"f/{name}", b"x")
    s3.put("f/folder/", b"")  # as consoles mark a folder

    s3.page_size = 3

    assert s3.store().list_resources() == names


def test_a_hundred_thousand_keys_are_listed(s3: ScriptedS3) -> None:
    n_keys = 100_000

    def rule(request: Request) -> Answer | None:
        if request.query.get("prefix") != "f/":
            return None
        start = int(request.query.get("continuation-token", "0"))
        stop = start + 1000
        rows = [OTHER_KEY.format(f"f/n{number:06}") for number in range(start, stop)]
        return listing_of(*rows, token=None if stop == n_keys else str(stop))

    s3.rule = rule

    names = s3.store().list_resources()

    assert len(names) == n_keys
    assert (names[0], names[-1]) == ("n000000", "n099999")


@pytest.mark.parametrize(
    "key",
    [
        "a b",
        "a+b",
        "a%20b",
        "100%",
        "größe",
        "数据",
        "a&b=c?d#e",
        "a//b",
        "a;b:c@d",
        "~a",
        "e\u0301",
    ],
)
def test_keys_of_other_tools_are_read_by_their_exact_names(s3: ScriptedS3, key: str) -> None:
    s3.put(f"f/{key}", DATA[:1000])
    s3.put("f/a", b"not this")
    store = s3.store()

    assert key in store.list_keys()
    assert store.has_key(key)
    with store.open_key(key) as resource:
        assert resource.read() == DATA[:1000]
    store.delete_key(key)

    assert list(s3.objects) == ["f/a"]


# ---------------------------------------------------------------------- refusals


REFUSALS = {
    "ExpiredToken": (400, "The provided token has expired.", "log in again"),
    "RequestTimeTooSkewed": (403, "The difference is too large.", "Set the clock of this machine"),
    "SignatureDoesNotMatch": (403, "The signature does not match.", "Check the secret key"),
    "AccessDenied": (403, "Access Denied", "s3:ListBucket"),
    "InvalidAccessKeyId": (403, "The access key does not exist.", "log in again"),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_says_why_and_what_to_do(s3: ScriptedS3, code: str) -> None:
    status, message, advice = REFUSALS[code]
    s3.rule = lambda request: refusal(status, code, message)
    store = s3.store()

    for ask in (store.has_resource, store.get_resource, store.stat):
        with pytest.raises(StorageError) as caught:
            ask("mine")
        assert [text for text in (code, message, advice) if text not in str(caught.value)] == []
        assert "canary" not in str(caught.value)
    for call in (store.list_resources, lambda: store.set_resource("a", b"a")):
        with pytest.raises(StorageError, match=code):
            call()


def test_a_server_that_is_overloaded_is_asked_again(s3: ScriptedS3) -> None:
    s3.put("f/plain", DATA)
    n_refused = 0

    def rule(request: Request) -> Answer | None:
        nonlocal n_refused
        if n_refused == 2:
            return None
        n_refused += 1
        return refusal(503, "SlowDown", "Please reduce your request rate.")

    s3.rule = rule

    assert content(s3.store(), "plain") == DATA
    assert n_refused == 2


def test_a_server_that_stays_overloaded_is_unavailable(s3: ScriptedS3) -> None:
    s3.rule = lambda request: refusal(503, "SlowDown", "Please reduce your request rate.")

    with pytest.raises(StorageUnavailableError, match=r"SlowDown: .*Please reduce"):
        s3.store().has_resource("a")


def test_an_upload_that_is_refused_in_the_middle_publishes_nothing(s3: ScriptedS3) -> None:
    store = s3.store()
    store.set_resource("a", b"old")
    n_parts = 0

    def rule(request: Request) -> Answer | None:
        nonlocal n_parts
        if request.method == "PUT" and "/objects/" in key_of(request):
            n_parts += 1
            if n_parts == 2:
                return refusal(403, "AccessDenied", "Access Denied")
        return None

    s3.rule = rule

    with pytest.raises(StorageError, match="Access"):
        store.set_resource("a", DATA * 15)
    with pytest.raises(StorageError, match="Access"):
        n_parts = 0
        store.set_resource("b", DATA * 15)

    assert content(store, "a") == b"old"
    assert not store.has_resource("b")


def test_a_refused_plain_file_gives_the_reason_of_get(s3: ScriptedS3) -> None:
    s3.put("f/plain", b"x")
    s3.rule = lambda request: (
        refusal(400, "ExpiredToken", "The provided token has expired.")
        if key_of(request) == "f/plain"
        else None
    )

    with pytest.raises(StorageError, match="The provided token has expired"):
        s3.store().get_resource("plain").read()


def test_a_404_of_a_gateway_is_no_missing_resource(s3: ScriptedS3) -> None:
    s3.rule = lambda request: Answer(404, b"default backend - 404")

    with pytest.raises(StorageError, match="404 without a reason of the store"):
        s3.store().has_resource("mine")


def test_a_plain_object_is_read_without_the_right_to_list(
    s3: ScriptedS3, caplog: pytest.LogCaptureFixture
) -> None:
    s3.put("f/plain.csv", b"a,b\n")
    s3.rule = lambda request: (
        None if key_of(request) in s3.objects else refusal(403, "AccessDenied", "Access Denied")
    )
    store = s3.store(read_only=True)

    with caplog.at_level(logging.WARNING):
        assert content(store, "plain.csv") == b"a,b\n"
        assert store.has_resource("plain.csv")

    assert caplog.text.count("s3:ListBucket") == 1
    for ask in (store.has_resource, store.get_resource):
        with pytest.raises(StorageError, match="s3:ListBucket"):
            ask("missing.csv")


def test_a_file_is_loaded_without_the_right_to_list(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    s3.put("f/plain.csv", b"a,b\n1,2\n")
    s3.rule = lambda request: (
        None if key_of(request) in s3.objects else refusal(403, "AccessDenied", "Access Denied")
    )

    table: Any = data_stack.load(s3.place().replace("/f?", "/f/plain.csv?"))

    assert table[0] == {"a": 1, "b": 2}


def test_a_missing_resource_is_still_missing(s3: ScriptedS3) -> None:
    store = s3.store()

    assert not store.has_resource("a")
    assert store.list_resources() == []
    assert store.collect_garbage() == []
    with pytest.raises(ResourceNotFoundError):
        store.get_resource("a").read()


# ---------------------------------------------------------------------- how often a store is asked


def test_a_store_is_asked_once_whether_it_has_a_resource(s3: ScriptedS3) -> None:
    store = s3.store()
    store.set_resource("there", DATA[:100])
    definitions = [
        ResourceDefinition(name, "https://localhost:1/") for name in ("there", "missing")
    ]
    s3.requests.clear()

    with pytest.raises(RetrievalError, match="missing"):
        retrieve(definitions, store, offline=True, progress=False)

    asked = [(request.method, key_of(request).rpartition("/")[2]) for request in s3.requests]
    assert sorted(asked) == [
        ("GET", "missing~"),
        ("GET", "there~"),
        ("HEAD", "missing"),
        ("HEAD", "there~"),
    ]
