"""Listings of S3 that our web client requests: pages, signatures, certificates, refusals.

What they share with those of other stores is in test_cloud_listings.py.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import object_server
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from s3_server import S3Server
from scripted_s3 import LOGIN, ScriptedS3, is_listing, listing_of, refusal
from web_server import Answer, Seen, WebServer

import data_stack
from data_stack.exception import LeftOutWarning, StorageError
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.io.storage_connectors.object_store.errors import AccessRefusedError
from data_stack.io.storage_connectors.object_store.s3 import WrongAnswerError
from data_stack.io.storage_connectors.object_store.s3_listing import parse_page

HEAD = "<IsTruncated>false</IsTruncated>"
ROW = "<Contents><Key>{}</Key><Size>{}</Size><ETag>&quot;1&quot;</ETag></Contents>"


@pytest.fixture
def s3() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


def page(*rows: str, root: str = "ListBucketResult") -> bytes:
    return f"<{root}>{HEAD}{''.join(rows)}</{root.split()[0]}>".encode()


# ---------------------------------------------------------------------- pages


def test_a_page_is_read_with_and_without_a_namespace() -> None:
    row = (
        "<Contents><Key>f/a</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"
        "<ETag>&quot;1&quot;</ETag><Size>7</Size></Contents>"
        "<CommonPrefixes><Prefix>f/b/</Prefix></CommonPrefixes>"
    )

    for root in ("ListBucketResult", 'ListBucketResult xmlns="http://s3.amazonaws.com/doc/"'):
        listing = parse_page(page(row, root=root))

        (entry,) = listing.objects
        assert (entry["Key"], entry["Size"], entry["ETag"]) == ("f/a", 7, '"1"')
        assert entry["LastModified"].isoformat() == "2026-01-02T03:04:05.678000+00:00"
        assert listing.folders == ["f/b/"]
        assert listing.next_token is None


def test_keys_are_decoded_only_where_the_answer_says_so() -> None:
    row = ROW.format("a+b%20c%0A", 1)

    encoded = parse_page(page("<EncodingType>url</EncodingType>", row))
    plain = parse_page(page(row))

    assert encoded.objects[0]["Key"] == "a b c\n"
    assert plain.objects[0]["Key"] == "a+b%20c%0A"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Log in</body></html>",
        b"not xml",
        page(root="ListAllMyBucketsResult"),
        b"<ListBucketResult/>",
        page(ROW.format("a", "many")),
        page(ROW.format("a", "")),
        page(ROW.format("", 1)),
        page("<Contents/>"),
        page("<Contents><Key>a</Key><Size>1</Size><LastModified>soon</LastModified></Contents>"),
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b'<!DOCTYPE a [<!ENTITY b "c">]>' + page(ROW.format("&b;", 1)),
        page(ROW.format("a", 1)).decode().encode("utf-16"),
        page("<a>" * 400_000),
        page("<a " + " ".join(f"a{number}=''" for number in range(400_001)) + "/>"),
        page("<Contents><Key>a<b/>c</Key><Size>1</Size></Contents>"),
        page(ROW.format("a", "9" * 19)),
        page("<EncodingType>url</EncodingType>", ROW.format("a%FF", 1)),
        b'<?xml version="1.0" encoding="latin-1"?>'
        + page(ROW.format("é", 1)).decode().encode("latin-1"),
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        parse_page(body)


# ---------------------------------------------------------------------- requests


class Endpoint(WebServer):
    """An endpoint of S3 that gives each request the same answer.

    Attributes:
        agents: which clients asked.
    """

    def __init__(self, answer: Answer, context: ssl.SSLContext) -> None:
        self._answer = answer
        self.agents = list[str]()
        super().__init__(context)

    def answer(self, seen: Seen) -> Answer:
        self.agents.append(seen.headers["user-agent"])
        return self._answer


def test_a_listing_is_signed_as_botocore_signs_it(s3: ScriptedS3) -> None:
    s3.store(token="token-canary")._files.beginning_with("größe a+b/")

    request = next(request for request in s3.requests if is_listing(request))
    assert request.headers["user-agent"] == "data_stack"
    assert request.query["prefix"] == "f/größe a+b/"
    query = "delimiter=&encoding-type=url&list-type=2&prefix=f%2Fgr%C3%B6%C3%9Fe%20a%2Bb%2F"
    expected = AWSRequest("GET", f"{s3.url}/data?{query}")
    signer = S3SigV4Auth(Credentials("k", "secret-canary", "token-canary"), "s3", "us-east-1")
    expected.context["timestamp"] = request.headers["x-amz-date"]
    expected.headers["X-Amz-Date"] = request.headers["x-amz-date"]
    expected.headers["X-Amz-Security-Token"] = "token-canary"
    expected.headers["X-Amz-Content-SHA256"] = signer.payload(expected)
    signed_text = signer.string_to_sign(expected, signer.canonical_request(expected))
    signature = signer.signature(signed_text, expected)
    assert request.headers["authorization"].endswith(signature)


def test_a_real_server_lists_all_keys_page_by_page(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    keys = [f"n{number:04}" for number in range(1200)] + ["a b", "a+b", "100%", "%41", "größe"]
    for key in keys:
        s3_server.client.put_object(Bucket=bucket, Key=f"f/{key}", Body=b"")
    store = FsspecStorageConnector(f"s3://{bucket}/f", **s3_server.options())

    assert store.list_keys() == sorted(keys)
    assert store.list_keys("n11") == [f"n{number}" for number in range(1100, 1200)]


def test_certificates_are_those_that_botocore_trusts(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``tls`` is a server's certificate, signed by ``ca.pem``."""
    bundle = os.fspath(tmp_path / "ca.pem")
    listing = listing_of(ROW.format("f/a", 1)).body
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
    with Endpoint(Answer(listing), tls) as endpoint:
        store = FsspecStorageConnector(
            "s3://data/f", endpoint_url=endpoint.origin, anon=True, client="obstore"
        )
        by_s3fs = store._files.files("")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
        by_web_client = store._files.files("")

        assert by_s3fs == by_web_client
        assert [agent.partition("/")[0] for agent in endpoint.agents] == [
            "aiobotocore",
            "data_stack",
        ]


# ---------------------------------------------------------------------- faults


def as_it_is(text: str) -> str:
    return text


def as_references(text: str) -> str:
    """A text as XML may write it."""
    return "".join(f"&#{ord(character)};" for character in text)


@pytest.mark.parametrize("client", ["obstore", "fsspec"])
@pytest.mark.parametrize("write", [as_it_is, as_references])
@pytest.mark.parametrize("is_in_environment", [False, True])
def test_nothing_shown_of_a_refused_request_is_secret(
    s3: ScriptedS3,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    write: Callable[[str], str],
    is_in_environment: bool,
) -> None:
    def rule(request: object_server.Request) -> object_server.Answer:
        token = request.headers["x-amz-security-token"]
        return refusal(403, "AccessDenied", f"denied to {write(token)}")

    s3.rule = rule
    login: dict[str, Any] = {"key": "k", "secret": "secret-canary", "token": "token-canary"}
    if is_in_environment:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-canary")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token-canary")
        login = dict.fromkeys(login)
    store = s3.store(client=client, **login)

    for request in (store.list_resources, lambda: store.get_resource("a")):
        # At the level DEBUG, these log what a server says.
        caplog.set_level(logging.INFO, logger="s3fs")
        caplog.set_level(logging.INFO, logger="botocore.parsers")
        with caplog.at_level(logging.DEBUG), pytest.raises(StorageError, match="Denied") as caught:
            request()
        assert "canary" not in f"{caught.value!r} {caplog.text}"


def test_the_long_page_of_a_gateway_does_not_hide_the_refusal(s3: ScriptedS3) -> None:
    s3.rule = lambda request: object_server.Answer(403, b"<html>" + b"x" * 1_000_000)

    with pytest.raises(AccessRefusedError, match="403"):
        s3.store().list_resources()


def test_a_file_below_an_empty_name_is_left_out_with_a_warning(
    s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    s3.put("f/a.csv", b"x\n1\n")
    s3.put("f//b.csv", b"x\n2\n")

    with pytest.warns(LeftOutWarning, match="''"):
        datasets = data_stack.load(s3.place())

    assert list(datasets) == ["a"]
