"""Identities of Azure that azure-identity logs in, with a small server of tokens.

adlfs cannot be tested so: it sends tokens to Azure by https only, with the certificates of the
system.
"""

from __future__ import annotations

import http.server
import json
import os
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from azure_server import ACCOUNT, TOKEN, AzureServer
from object_server import Answer

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError
from data_stack.io.storage_connectors import FsspecStorageConnector
from data_stack.testing.storage_connector import content

DATA = b"0123456789" * 1000


class TokenServer:
    """Gives the token that :class:`AzureServer` takes.

    Args:
        context: a certificate for localhost, as azure-identity asks by https only.

    Attributes:
        url: where it listens.
        requests: the method, path and body of each request for a token.
        status: of all answers to them.
        lives_seconds: for how long a token is valid.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.requests = list[tuple[str, str, str]]()
        self.status = 200
        self.lives_seconds = 3600
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                if "openid-configuration" in self.path:
                    self._send(200, outer.configuration())
                    return
                outer.requests.append((self.command, self.path, body.decode()))
                if outer.status == 200:
                    self._send(200, outer.token())
                    return
                # A server that repeats what was sent.
                refusal = {"error": "invalid_client", "error_description": body.decode()}
                self._send(outer.status, refusal)

            def _send(self, status: int, document: Mapping[str, object]) -> None:
                answer = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def token(self) -> dict[str, object]:
        return {
            "access_token": TOKEN,
            "token_type": "Bearer",
            "expires_in": self.lives_seconds,
            "expires_on": str(int(time.time()) + self.lives_seconds),
            "resource": "https://storage.azure.com",
        }

    def configuration(self) -> dict[str, object]:
        return {
            "issuer": f"{self.url}/tenant",
            "authorization_endpoint": f"{self.url}/tenant/oauth2/v2.0/authorize",
            "token_endpoint": f"{self.url}/tenant/oauth2/v2.0/token",
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureServer]:
    """A server with one blob; nothing but a test says how to log in."""
    for name in list(os.environ):
        if name.startswith(("AZURE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    with AzureServer() as server:
        server.put("f/plain", DATA)
        yield server


@pytest.fixture
def tokens(tls: ssl.SSLContext) -> Iterator[TokenServer]:
    """``tls`` is a certificate that this process trusts."""
    server = TokenServer(tls)
    yield server
    server.close()


def variables_of(identity: str, tokens: TokenServer, folder: Path) -> dict[str, str]:
    """Return the variables that log in an identity."""
    if identity == "managed":
        return {"IDENTITY_ENDPOINT": f"{tokens.url}/msi", "IDENTITY_HEADER": "header"}
    service = {
        "AZURE_CLIENT_ID": "client",
        "AZURE_TENANT_ID": "tenant",
        "AZURE_AUTHORITY_HOST": tokens.url,
    }
    if identity == "secret":
        return {**service, "AZURE_CLIENT_SECRET": "secret-canary"}
    if identity == "storage":
        return {
            "AZURE_STORAGE_CLIENT_ID": "client",
            "AZURE_STORAGE_TENANT_ID": "tenant",
            "AZURE_STORAGE_CLIENT_SECRET": "secret-canary",
            "AZURE_AUTHORITY_HOST": tokens.url,
        }
    (folder / "token").write_text("assertion-canary")
    return {**service, "AZURE_FEDERATED_TOKEN_FILE": os.fspath(folder / "token")}


@pytest.fixture(params=["managed", "secret", "storage", "workload"])
def identity(
    request: pytest.FixtureRequest,
    azure: AzureServer,
    tokens: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The kind of identity that the environment logs in."""
    name = str(request.param)
    for variable, value in variables_of(name, tokens, tmp_path).items():
        monkeypatch.setenv(variable, value)
    return name


def store_in(azure: AzureServer, **options: Any) -> FsspecStorageConnector:
    return FsspecStorageConnector(
        "az://data/f", endpoint_url=azure.url, account_name=ACCOUNT, timeout_seconds=30.0, **options
    )


def test_a_token_logs_in_all_requests(
    azure: AzureServer, tokens: TokenServer, identity: str
) -> None:
    store = store_in(azure)

    for _ in range(3):
        assert content(store, "plain") == DATA
    store.set_resource("new", DATA)

    assert content(store, "new") == DATA
    assert store.list_resources() == ["new", "plain"]
    logins = {request.headers.get("authorization") for request in azure.requests}
    assert logins == {f"Bearer {TOKEN}"}
    agents = {request.headers["user-agent"].partition("/")[0] for request in azure.requests}
    assert agents == {"data_stack", "object_store"}
    assert len(tokens.requests) == 1


def test_options_log_in_a_service(
    azure: AzureServer, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", tokens.url)
    store = store_in(azure, client_id="c", client_secret="secret-canary", tenant_id="tenant")

    assert store.list_resources() == ["plain"]
    assert "canary" not in repr(store)


def test_a_token_is_renewed_minutes_before_it_expires(
    azure: AzureServer, tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables_of("managed", tokens, tmp_path).items():
        monkeypatch.setenv(variable, value)
    tokens.lives_seconds = 301
    store = store_in(azure)
    store.list_resources()
    n_before = len(tokens.requests)

    time.sleep(1.1)
    tokens.lives_seconds = 3600
    store.list_resources()
    content(store, "plain")

    assert len(tokens.requests) == n_before + 1


def test_a_token_is_asked_for_as_azure_documents_it(
    azure: AzureServer, tokens: TokenServer, identity: str
) -> None:
    content(store_in(azure), "plain")

    ((method, path, body),) = tokens.requests
    if identity == "managed":
        assert (method, body) == ("GET", "")
        assert path.startswith("/msi?api-version=2019-08-01&resource=https://storage.azure.com")
        return
    fields = {name: values[0] for name, values in parse_qs(body).items()}
    assert (method, path) == ("POST", "/tenant/oauth2/v2.0/token")
    assert fields["client_id"] == "client"
    assert fields["scope"] == "https://storage.azure.com/.default"
    proof = "client_assertion" if identity == "workload" else "client_secret"
    assert fields[proof].endswith("-canary")


def test_a_redirect_to_another_host_is_not_followed(azure: AzureServer, identity: str) -> None:
    with AzureServer() as other:
        other.is_public = True
        other.put("f/plain", DATA)
        place = other.url.replace("127.0.0.1", "localhost")
        azure.rule = lambda request: Answer(307, b"", {"Location": f"{place}{request.path}"})
        store = store_in(azure)

        for ask in (store.get_resource, store.list_resources):
            with pytest.raises(StorageError, match="redirects"):
                ask("plain")

        assert other.requests == []


def test_a_refused_identity_is_an_error_without_secrets(
    azure: AzureServer, tokens: TokenServer, identity: str
) -> None:
    tokens.status = 400
    store = store_in(azure)

    for ask in (store.get_resource, store.has_resource, store.stat, store.list_resources):
        with pytest.raises(StorageError, match="no identity of Azure logs in") as caught:
            ask("plain")
        assert not isinstance(caught.value, ResourceNotFoundError)
        assert "canary" not in f"{caught.value!r} {store!r}"
    assert azure.requests == []


def test_a_missing_token_of_a_workload_is_an_error(
    azure: AzureServer, tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables_of("workload", tokens, tmp_path).items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "token").unlink()
    store = store_in(azure)

    for ask in (store.get_resource, store.has_resource, store.stat):
        with pytest.raises(StorageError) as caught:
            ask("plain")
        assert not isinstance(caught.value, ResourceNotFoundError)
    assert tokens.requests == []
    assert azure.requests == []


def test_a_token_is_sent_without_encryption_on_this_machine_only(azure: AzureServer) -> None:
    store = FsspecStorageConnector(
        "az://data/f", endpoint_url="http://lab.example", account_name=ACCOUNT
    )

    with pytest.raises(ConfigError, match="by https:// only"):
        store.get_resource("plain")
