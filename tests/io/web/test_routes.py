"""Proxies and certificate authorities come from the environment as it is now."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from web_server import ScriptedServer

from data_stack.io.web import Exchange, WebError
from data_stack.io.web.routes import target_of

BODY = b"the body"
CA_VARIABLES = ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"]


def read(url: str, headers: dict[str, str] | None = None) -> bytes:
    with Exchange(url, headers=headers or {}) as exchange:
        return exchange.read(100)


@pytest.fixture
def proxy(other_server: ScriptedServer) -> ScriptedServer:
    """A proxy, which answers for all servers."""
    other_server.serve("/a", b"by proxy")
    return other_server


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_that_is_set_later_is_used(
    server: ScriptedServer, proxy: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    url = server.serve("/a", BODY)
    assert read(url) == BODY

    monkeypatch.setenv(name, proxy.origin)

    assert read(url) == b"by proxy"
    assert proxy.paths() == [url]


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_a_server_that_is_excepted_later_is_asked_directly(
    server: ScriptedServer, proxy: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    url = server.serve("/a", BODY)
    monkeypatch.setenv("http_proxy", proxy.origin)
    assert read(url) == b"by proxy"

    monkeypatch.setenv(name, "localhost")

    assert read(url) == BODY


def test_a_proxy_that_is_removed_is_not_asked_any_more(
    server: ScriptedServer, proxy: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve("/a", BODY)
    monkeypatch.setenv("http_proxy", proxy.origin)
    assert read(url) == b"by proxy"

    monkeypatch.delenv("http_proxy")

    assert read(url) == BODY


@pytest.mark.parametrize("name", CA_VARIABLES)
def test_authorities_that_are_set_later_are_trusted(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in CA_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with ScriptedServer(tls) as encrypted:
        url = encrypted.serve("/a", BODY)
        with pytest.raises(WebError, match="its TLS certificate is refused"):
            read(url)

        monkeypatch.setenv(name, str(tmp_path / "ca.pem"))

        assert read(url) == BODY
        (tmp_path / "others.pem").write_bytes(trustme.CA().cert_pem.bytes())
        monkeypatch.setenv(name, str(tmp_path / "others.pem"))
        with pytest.raises(WebError, match="its TLS certificate is refused"):
            read(url)


def test_a_file_of_authorities_that_is_missing_is_an_error(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))

    with ScriptedServer(tls) as encrypted:
        with pytest.raises(WebError, match=r"missing\.pem"):
            read(encrypted.serve("/a", BODY))

        assert encrypted.requests == []


def test_a_header_of_the_caller_replaces_ours_in_any_case(server: ScriptedServer) -> None:
    url = server.serve("/a", BODY)

    read(url)
    read(url, {"user-agent": "mine", "ACCEPT": "text/plain"})

    assert server.requests[0].headers["user-agent"] == "data_stack"
    assert server.requests[1].headers["user-agent"] == "mine"
    assert server.requests[1].headers["accept"] == "text/plain"


@pytest.mark.parametrize(
    ("url", "server", "path"),
    [
        ("https://a.example/b c?d=e f", "https://a.example/", "/b%20c?d=e%20f"),
        ("http://a.example:81", "http://a.example:81/", "/"),
        ("http://größe.example/ü", "http://xn--gre-6ka8i.example/", "/%C3%BC"),
        ("http://[::1]:81/%2F", "http://[::1]:81/", "/%2F"),
    ],
)
def test_a_target_is_encoded(url: str, server: str, path: str) -> None:
    target = target_of(url)

    assert target.server == server
    assert target.path == path
    assert target.url == server + path.removeprefix("/")
