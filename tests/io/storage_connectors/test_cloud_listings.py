"""Listings of S3, Google and Azure by our web client: pages, hostile answers, pauses, forks.

The answers of real servers, of obstore and of fsspec's clients are those of test_s3_answers.py,
test_gcs_store.py and test_azure_store.py.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure_server import ACCOUNT, AzureServer
from clouds import S3, Azure, Cloud, Google, azure_page, azure_row
from gcs_server import GCSServer
from object_server import Answer, Request
from process_harness import in_fork, run_python, until
from scripted_s3 import ScriptedS3, listing_of

from data_stack.exception import StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.object_store.azure_listing import (
    parse_page as parse_azure_page,
)
from data_stack.io.storage_connectors.object_store.google_answers import (
    parse_page as parse_google_page,
)
from data_stack.io.storage_connectors.object_store.s3 import WrongAnswerError
from data_stack.io.storage_connectors.object_store.s3_listing import parse_page as parse_s3_page

KEYS = [
    "100%",
    "%41",
    "a b",
    "a+b",
    "a.",
    "a/b/c",
    "q?x=1&y=2",
    "größe",
    "日本",
    "😀",
    "&amp;",
    "'\"<",
]
#: URLs of stores and folders, some with signs that mean more in other URLs.
URLS = [
    "s3://data",
    "s3://data/",
    "s3a://data/f/g/",
    "s3://data/a?b#c",
    "s3://data//f",
    "s3://d/q?x#1",
    "az://data",
    "az://data/",
    "abfs://data/f/g/",
    "abfss://data@lab.dfs.core.windows.net/f",
    "abfss://data@lab.dfs.core.windows.net",
    "az://data//f",
    "az://data/a?b",
    "az://data/a#b",
    "az://$web/a b",
]
CLIENTS = ["obstore", "fsspec"]
#: What an error says of a redirect. That of adlfs names the status.
REDIRECTED = "redirects|Moved Permanently|Found|See Other|Temporary Redirect|Permanent Redirect"
#: Clients that pause for as long as the server asks. gcsfs pauses for times of its own.
PAUSING_CLIENTS = [
    ("s3", "obstore"),
    ("s3", "fsspec"),
    ("google", "obstore"),
    ("azure", "obstore"),
    ("azure", "fsspec"),
]
#: What takes longer to import than a small program to run.
CLIENT_PACKAGES = ("s3fs", "aiobotocore", "gcsfs", "adlfs", "azure", "aiohttp")
S3_PAGE = listing_of(
    "<Contents><Key>f/a</Key><Size>1</Size><ETag>&quot;1&quot;</ETag></Contents>",
    "<EncodingType>url</EncodingType>",
).body
#: A date in a time zone that no number holds.
_FAR_DATE = "Mon, 01 Jan 2026 00:00:00 +99999999999999"
#: What is no page of any store.
PAGES_OF_GATEWAYS = [b"", b"<html>Log in</html>", b"not a page", b"{}", b"[]", b"null", b"\xff"]


def google_page(**fields: Any) -> bytes:
    return json.dumps({"kind": "storage#objects", **fields}).encode()


@pytest.fixture(scope="module")
def clouds() -> Iterator[dict[str, Cloud]]:
    with ScriptedS3() as s3, GCSServer() as google, AzureServer() as azure:
        yield {"s3": S3(s3), "google": Google(google), "azure": Azure(azure)}


@pytest.fixture(params=["s3", "google", "azure"])
def cloud(
    request: pytest.FixtureRequest, clouds: dict[str, Cloud], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    """A server with nothing in it; nothing but a test says how to log in."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    cloud = clouds[request.param]
    cloud.server.reset()
    yield cloud
    cloud.server.rule = lambda request: None


# ---------------------------------------------------------------------- pages


def test_a_page_of_azure_is_read_whole() -> None:
    properties = "<Etag>0x1</Etag><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified>"
    rows = azure_row("f/a", "7", properties) + "<BlobPrefix><Name>f/b/</Name></BlobPrefix>"

    page = parse_azure_page(azure_page(rows, "<NextMarker>next</NextMarker>"))

    (entry,) = page.objects
    assert (entry["Key"], entry["Size"], entry["ETag"]) == ("f/a", 7, '"0x1"')
    assert entry["LastModified"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert (page.folders, page.next_token) == (["f/b/"], "next")


def test_a_page_of_google_is_read_whole() -> None:
    item = {
        "name": "f/a",
        "size": "7",
        "etag": "CAE=",
        "generation": "1",
        "updated": "2026-01-02T03:04:05.678Z",
    }

    page = parse_google_page(google_page(items=[item], prefixes=["f/b/"], nextPageToken="next"))

    (entry,) = page.objects
    assert (entry["Key"], entry["Size"], entry["ETag"]) == ("f/a", 7, "CAE=")
    assert entry["generation"] == "1"
    assert entry["LastModified"].isoformat() == "2026-01-02T03:04:05.678000+00:00"
    assert (page.folders, page.next_token) == (["f/b/"], "next")


def test_names_that_xml_cannot_hold_are_decoded() -> None:
    rows = (
        '<Blob><Name Encoded="true">f/%EF%BF%BE%25</Name>'
        "<Properties><Content-Length>1</Content-Length></Properties></Blob>"
        '<BlobPrefix><Name Encoded="true">f/%0B/</Name></BlobPrefix>'
    )

    page = parse_azure_page(azure_page(rows + azure_row("f/%41")))

    assert [entry["Key"] for entry in page.objects] == ["f/\ufffe%", "f/%41"]
    assert page.folders == ["f/\v/"]


@pytest.mark.parametrize(
    "body",
    [
        *PAGES_OF_GATEWAYS,
        azure_page("", ""),
        b"<EnumerationResults><NextMarker /></EnumerationResults>",
        b"<ListBucketResult><Blobs /><NextMarker /></ListBucketResult>",
        azure_page(azure_row("", "1")),
        azure_page(azure_row("a", "")),
        azure_page(azure_row("a", "-1")),
        azure_page(azure_row("a", "many")),
        azure_page(azure_row("a", "1", "<Last-Modified>soon</Last-Modified>")),
        azure_page("<Blob><Name>a</Name></Blob>"),
        azure_page("<BlobPrefix><Name/></BlobPrefix>"),
        b'<!DOCTYPE a [<!ENTITY b "c">]>' + azure_page(azure_row("&b;")),
        azure_page(azure_row("a")).decode().encode("utf-16"),
        azure_page("<a>" * 400_000),
        azure_page("<Blob><Name>a<b/>c</Name></Blob>"),
        azure_page(azure_row("a", "9" * 19)),
        azure_page(azure_row("a", "1", f"<Last-Modified>{_FAR_DATE}</Last-Modified>")),
        azure_page('<BlobPrefix><Name Encoded="true">a%FF/</Name></BlobPrefix>'),
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_no_page_of_azure_is_refused(body: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        parse_azure_page(body)


@pytest.mark.parametrize(
    "body",
    [
        *PAGES_OF_GATEWAYS,
        b'{"kind": "storage#buckets"}',
        google_page(items={}),
        google_page(items=[{"name": "a"}]),
        google_page(items=[{"name": "", "size": "1"}]),
        google_page(items=[{"name": "a", "size": 1}]),
        google_page(items=[{"name": "a", "size": "-1"}]),
        google_page(items=[{"name": "a", "size": "1", "updated": "soon"}]),
        google_page(items=[{"name": "a", "size": "9" * 19}]),
        google_page(prefixes=[""]),
        google_page(prefixes=[1]),
        google_page(nextPageToken=1),
        b'{"kind":' * 1000,
        b"[" + b"{}," * 5_000_000 + b"{}]",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_no_page_of_google_is_refused(body: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        parse_google_page(body)


@pytest.mark.parametrize(
    ("parse_page", "whole"),
    [
        (parse_s3_page, S3_PAGE),
        (parse_google_page, google_page(items=[{"name": "f/a", "size": "1"}])),
        (parse_azure_page, azure_page(azure_row("f/a"))),
    ],
    ids=["s3", "google", "azure"],
)
def test_a_page_cut_at_any_byte_is_refused(
    parse_page: Callable[[bytes], object], whole: bytes
) -> None:
    parse_page(whole)

    for length in range(len(whole)):
        with pytest.raises(WrongAnswerError):
            parse_page(whole[:length])


# ---------------------------------------------------------------------- requests


def test_all_keys_are_listed_page_by_page_by_our_client(cloud: Cloud) -> None:
    for key in KEYS:
        cloud.server.put(f"f/{key}", b"x")
    cloud.server.page_size = 5

    assert cloud.store().list_keys() == sorted(KEYS)

    agents = {request.headers["user-agent"] for request in cloud.listings()}
    assert agents == {"data_stack"}
    assert len(cloud.listings()) > 2


@pytest.mark.parametrize("key", KEYS)
def test_a_prefix_reaches_the_server_as_it_is(cloud: Cloud, key: str) -> None:
    cloud.server.put(f"f/{key}/x", b"x")
    cloud.server.put("f/other", b"x")

    assert cloud.store().list_keys(f"{key}/") == [f"{key}/x"]


def test_both_clients_list_alike(cloud: Cloud) -> None:
    for name in ("a", "b/c", "b/d"):
        cloud.server.put(f"f/{name}", b"x")
    by_web_client = cloud.store()._files
    by_fsspec = cloud.store(client="fsspec")._files

    assert by_web_client.files("") == by_fsspec.files("")
    assert by_web_client.entries("") == by_fsspec.entries("")
    assert by_web_client.info("a") == by_fsspec.info("a") == by_web_client.files("")[0]


def test_anonymous_listings_have_no_login(cloud: Cloud) -> None:
    cloud.server.put("f/a", b"x")

    assert cloud.store(**cloud.anonymous()).list_keys() == ["a"]

    assert not any("authorization" in request.headers for request in cloud.listings())


@pytest.mark.parametrize("cloud", ["azure"], indirect=True)
def test_an_account_in_the_path_of_azure_is_signed(cloud: Cloud) -> None:
    cloud.server.put("f/a b", b"x")
    store = cloud.store(endpoint_url=f"{cloud.server.url}/{ACCOUNT}")

    assert store.list_keys("a ") == ["a b"]


def test_a_redirect_of_obstore_to_another_port_gets_no_login(cloud: Cloud) -> None:
    with type(cloud.server)() as other:
        other.put("f/a", b"x")

        def rule(request: Request) -> Answer | None:
            if request.path == "/token":
                return None
            return Answer(307, headers={"Location": f"{other.url}{request.path}"})

        cloud.server.rule = rule
        # obstore cannot be kept from following it: its proxies are chosen by host.
        with contextlib.suppress(StorageError):
            cloud.store()._files.read("a", 1)

        assert other.requests
        assert not any("authorization" in request.headers for request in other.requests)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_listing_is_not_redirected_to_another_server(
    cloud: Cloud, client: str, status: int
) -> None:
    with type(cloud.server)() as other:
        location = {"Location": f"{other.url}/data?list-type=2"}
        cloud.server.rule = lambda request: (
            Answer(status, headers=location) if cloud.is_listing(request) else None
        )

        with pytest.raises(StorageError, match=REDIRECTED):
            cloud.store(client=client, **cloud.login_with_secret())._files.files("")

        assert other.requests == []
        assert len(cloud.listings()) <= 2  # the second one would be sent to the region of a bucket


# gcsfs finds the login, so it is imported.
@pytest.mark.parametrize("cloud", ["s3", "azure"], indirect=True)
def test_small_programs_import_no_client_of_fsspec(cloud: Cloud) -> None:
    cloud.server.put("f/a", b"1")
    cloud.server.put("f/empty", b"")
    program = f"""
import sys
from data_stack.io.storage_connectors import FsspecStorageConnector
store = FsspecStorageConnector("{cloud.scheme}://data/f", **{cloud.arguments()!r})
assert store.list_resources() == ["a", "empty"]
assert store.get_resource("a").read() == b"1"
assert store.stat("empty").size == 0
store.set_resource("b", b"2")
print([name for name in {CLIENT_PACKAGES} if name in sys.modules])
"""

    output, _ = run_python("-c", program)

    assert output == "[]\n"


@pytest.mark.parametrize("url", URLS)
def test_a_url_means_the_same_before_fsspec_is_imported(url: str) -> None:
    program = f"""
import sys
from data_stack.io.storage_connectors.object_store.file_system import RemoteFileSystem
early = RemoteFileSystem({url!r}, 5.0, {{}})
assert not {{"s3fs", "gcsfs", "adlfs"}} & sys.modules.keys()
import fsspec
fsspec.get_filesystem_class({url.partition(":")[0]!r})
late = RemoteFileSystem({url!r}, 5.0, {{}})
names = ("root", "options", "place", "is_asynchronous", "is_atomic", "can_publish")
assert [getattr(early, name) for name in names] == [getattr(late, name) for name in names]
assert early.sharing_key == late.sharing_key
"""

    run_python("-c", program)


# ---------------------------------------------------------------------- faults


@pytest.mark.parametrize("body", PAGES_OF_GATEWAYS, ids=repr)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_page_of_a_gateway_is_no_empty_listing(cloud: Cloud, client: str, body: bytes) -> None:
    cloud.server.rule = lambda request: Answer(200, body) if cloud.is_listing(request) else None

    with pytest.raises(StorageError):
        cloud.store(client=client).list_resources()


@pytest.mark.parametrize("client", CLIENTS)
def test_keys_of_another_prefix_are_an_error(cloud: Cloud, client: str) -> None:
    cloud.server.rule = lambda request: (
        cloud.page("elsewhere/a") if cloud.is_listing(request) else None
    )

    with pytest.raises(StorageError, match="elsewhere/a"):
        cloud.store(client=client)._files.files("")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_repeated_token_is_an_error(cloud: Cloud, client: str) -> None:
    cloud.server.rule = lambda request: (
        cloud.page(token="again") if cloud.is_listing(request) else None
    )

    with pytest.raises(StorageError, match="how its listing goes on"):
        cloud.store(client=client)._files.files("")


def test_a_listing_with_ever_new_tokens_ends(cloud: Cloud) -> None:
    def rule(request: Request) -> Answer | None:
        if not cloud.is_listing(request):
            return None
        time.sleep(0.2)
        return cloud.page(token=str(random.random()))

    cloud.server.rule = rule
    store = cloud.store(timeout_seconds=1.0)

    def error_of_listing() -> str:
        with pytest.raises(StorageUnavailableError) as caught:
            store._files.files("")
        return str(caught.value)

    # On a busy machine, a page may take as long as the listing may.
    assert until(lambda: "the listing goes on after" in error_of_listing())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_bucket_is_not_an_empty_one(cloud: Cloud, client: str) -> None:
    store = cloud.store("misspelt/f", client=client)

    with pytest.raises(StorageError, match="does not exist"):
        store._files.files("")


@pytest.mark.parametrize(("cloud", "client"), PAUSING_CLIENTS, indirect=["cloud"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_that_the_server_asks_for_is_kept(cloud: Cloud, client: str, status: int) -> None:
    cloud.server.put("f/a", b"1")
    asked_at = list[float]()

    def rule(request: Request) -> Answer | None:
        if not cloud.is_listing(request):
            return None
        asked_at.append(time.monotonic())
        if len(asked_at) > 1:
            return None
        answer = cloud.refusal(status, "ServerBusy")
        answer.headers["Retry-After"] = "2"
        return answer

    cloud.server.rule = rule

    files = cloud.store(client=client)._files.files("")

    assert [file.path for file in files] == ["a"]
    assert asked_at[1] - asked_at[0] >= 2.0


@pytest.mark.parametrize(("cloud", "client"), PAUSING_CLIENTS, indirect=["cloud"])
def test_a_server_that_asks_for_too_much_time_is_abandoned(cloud: Cloud, client: str) -> None:
    def rule(request: Request) -> Answer | None:
        if not cloud.is_listing(request):
            return None
        answer = cloud.refusal(503, "ServerBusy")
        answer.headers["Retry-After"] = "3600"
        return answer

    cloud.server.rule = rule

    with pytest.raises(StorageUnavailableError, match=r"(503|ServerBusy).*it asks to wait 3,600 s"):
        cloud.store(client=client)._files.files("")

    assert len(cloud.listings()) == 1


def test_a_page_that_is_refused_once_is_asked_for_again(cloud: Cloud) -> None:
    names = [f"n{number}" for number in range(6)]
    for name in names:
        cloud.server.put(f"f/{name}", b"x")
    cloud.server.page_size = 2

    def rule(request: Request) -> Answer | None:
        is_third_page = cloud.is_listing(request) and len(cloud.listings()) == 3
        return Answer(500) if is_third_page else None

    cloud.server.rule = rule

    assert [file.path for file in cloud.store()._files.files("")] == names
    assert len(cloud.listings()) == 4


def test_a_server_that_hangs_in_a_listing_is_given_up(cloud: Cloud) -> None:
    cloud.store()._files.files("")  # logs in
    store = cloud.store(timeout_seconds=0.5)

    with cloud.server.hanging(), pytest.raises(StorageUnavailableError, match=r"within 0\.5 s"):
        store._files.files("")


@pytest.mark.parametrize("is_escaped", [False, True])
def test_nothing_shown_of_a_refused_listing_is_secret(
    cloud: Cloud, caplog: pytest.LogCaptureFixture, is_escaped: bool
) -> None:
    def rule(request: Request) -> Answer | None:
        if not cloud.is_listing(request):
            return None
        # A server that repeats what was sent.
        sent = cloud.sent_login(request)
        answer = cloud.refusal(403, "AccessDenied", f"denied to {sent}")
        if is_escaped:
            form = "\\u{:04x}" if isinstance(cloud, Google) else "&#{};"
            escaped = "".join(form.format(ord(character)) for character in sent)
            answer.body = answer.body.replace(sent.encode(), escaped.encode())
        return answer

    cloud.server.rule = rule

    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(StorageError, match="AccessDenied") as caught,
    ):
        cloud.store(**cloud.login_with_secret())._files.files("")

    secret = cloud.sent_login(cloud.listings()[0]).split()[-1]
    shown = f"{caught.value!r} {caplog.text}"
    assert secret not in shown
    assert "canary" not in shown


# ---------------------------------------------------------------------- forks


@pytest.mark.parametrize("is_used_before", [False, True])
def test_a_forked_child_lists(cloud: Cloud, is_used_before: bool) -> None:
    cloud.server.put("f/a", b"1")
    store = cloud.store(timeout_seconds=30.0)
    if is_used_before:
        store.list_resources()

    def list_in_child() -> None:
        assert store.list_resources() == ["a"]

    assert in_fork(list_in_child) == 0


# Those of S3 are in test_s3_answers.py.
@pytest.mark.full
@pytest.mark.parametrize("cloud", ["google", "azure"], indirect=True)
def test_a_hundred_thousand_keys_are_listed(cloud: Cloud) -> None:
    names = [f"k{number:06d}" for number in range(100_000)]
    for name in names:
        cloud.server.put(f"f/{name}", b"x")
    cloud.server.page_size = 5_000

    assert cloud.store(timeout_seconds=30.0).list_keys() == names
