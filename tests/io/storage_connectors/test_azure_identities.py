"""Identities of Azure that obstore logs in, with a small server of tokens.

adlfs cannot be tested so: it sends tokens by https only, with the certificates of the system.
"""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

pytest.importorskip("adlfs")

from azure_server import ACCOUNT, TOKEN, AzureServer, key_of
from object_server import Answer, Request

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError
from data_stack.io.storage_connectors import FsspecStorageConnector
from data_stack.testing.storage_connector import content

DATA = b"0123456789" * 1000


class TokenServer:
    """Gives the token that :class:`AzureServer` takes; a context manager.

    Attributes:
        url: where it listens.
        requests: the method, path and body of each request.
        status: of all answers.
    """

    def __init__(self) -> None:
        self.requests = list[tuple[str, str, str]]()
        self.status = 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                outer.requests.append((self.command, self.path, body.decode()))
                token = {
                    "access_token": TOKEN,
                    "token_type": "Bearer",
                    "expires_in": 3600,
                    "expires_on": "4102444800",
                    "resource": "https://storage.azure.com",
                }
                # A server that repeats what was sent.
                refused = {"error": "invalid_client", "error_description": body.decode()}
                answer = json.dumps(token if outer.status == 200 else refused).encode()
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

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
def tokens() -> Iterator[TokenServer]:
    server = TokenServer()
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
    (folder / "token").write_text("assertion-canary")
    return {**service, "AZURE_FEDERATED_TOKEN_FILE": os.fspath(folder / "token")}


@pytest.fixture(params=["managed", "secret", "workload"])
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


def store_in(azure: AzureServer) -> FsspecStorageConnector:
    return FsspecStorageConnector(
        "az://data/f",
        endpoint_url=azure.url,
        account_name=ACCOUNT,
        client="obstore",
        timeout_seconds=5.0,
    )


def test_a_token_reaches_the_store(azure: AzureServer, tokens: TokenServer, identity: str) -> None:
    store = store_in(azure)

    for _ in range(3):
        assert content(store, "plain") == DATA
    store.set_resource("new", DATA)

    assert content(store, "new") == DATA
    logins = {request.headers.get("authorization") for request in azure.requests}
    assert logins == {f"Bearer {TOKEN}"}
    assert len(tokens.requests) == 1


def test_a_token_is_asked_for_as_azure_documents_it(
    azure: AzureServer, tokens: TokenServer, identity: str
) -> None:
    content(store_in(azure), "plain")

    ((method, path, body),) = tokens.requests
    if identity == "managed":
        assert (method, body) == ("GET", "")
        assert path.startswith("/msi?api-version=2019-08-01&resource=https%3A%2F%2Fstorage.azure")
        return
    fields = {name: values[0] for name, values in parse_qs(body).items()}
    assert (method, path) == ("POST", "/tenant/oauth2/v2.0/token")
    assert fields["client_id"] == "client"
    assert fields["scope"] == "https://storage.azure.com/.default"
    proof = "client_secret" if identity == "secret" else "client_assertion"
    assert fields[proof].endswith("-canary")


def test_a_token_is_not_sent_to_the_host_of_a_redirect(azure: AzureServer, identity: str) -> None:
    with AzureServer() as other:
        other.is_public = True
        other.put("f/plain", DATA)
        place = other.url.replace("127.0.0.1", "localhost")

        def rule(request: Request) -> Answer | None:
            if key_of(request) != "f/plain":
                return None
            return Answer(307, b"", {"Location": f"{place}{request.path}"})

        azure.rule = rule
        # The redirect is followed, as the login is at another host, too.
        store_in(azure)._files.read("plain", 10)

        assert other.requests
        assert not any("authorization" in request.headers for request in other.requests)


def test_a_refused_identity_is_an_error_without_secrets(
    azure: AzureServer, tokens: TokenServer, identity: str
) -> None:
    tokens.status = 400
    store = store_in(azure)

    for ask in (store.get_resource, store.has_resource, store.stat):
        with pytest.raises(StorageError) as caught:
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
        "az://data/f", endpoint_url="http://lab.example", account_name=ACCOUNT, client="obstore"
    )

    with pytest.raises(ConfigError, match="by https:// only"):
        store.get_resource("plain")
