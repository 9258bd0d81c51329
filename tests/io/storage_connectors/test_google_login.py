"""The logins to Google Cloud Storage: found, renewed, refused, and never shown."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gcs_server import GCSServer, make_private_key
from google.oauth2.credentials import Credentials
from object_server import Answer, Request
from process_harness import run_python

from data_stack.exception import ConfigError, StorageError, StorageUnavailableError
from data_stack.io.storage_connectors import FsspecStorageConnector
from data_stack.testing.storage_connector import content

CLIENTS = ["fsspec", "obstore"]
DATA = b"0123456789"


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GCSServer]:
    """A server of this test, as stores with equal options share a login; none in the environment."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", os.fspath(tmp_path / "gcloud"))
    with GCSServer() as server:
        server.is_public = False
        yield server


def user_credentials(gcs: GCSServer, **changes: str) -> Credentials:
    """Return the credentials of a user, without a token."""
    arguments = {**gcs.user_login(), **changes}
    return Credentials(None, **arguments)  # type: ignore[no-untyped-call]  # it has no types


# ---------------------------------------------------------------------- where logins are found

Login = Callable[[GCSServer, Path, pytest.MonkeyPatch], Any]


def key_file(gcs: GCSServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs.write_key_file(folder / "key.json")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(folder / "key.json"))


def workload_file(gcs: GCSServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs.write_workload_file(folder / "workload.json")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(folder / "workload.json"))


def default_of_gcloud(gcs: GCSServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gcloud").mkdir()
    gcs.write_key_file(folder / "gcloud" / "application_default_credentials.json")


def path_as_token(gcs: GCSServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    gcs.write_key_file(folder / "key.json")
    return os.fspath(folder / "key.json")


def account_as_token(
    gcs: GCSServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    return gcs.service_account()


def user_as_token(gcs: GCSServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Credentials:
    return user_credentials(gcs)


LOGINS = [
    key_file,
    workload_file,
    default_of_gcloud,
    path_as_token,
    account_as_token,
    user_as_token,
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("login", LOGINS)
def test_a_login_is_found(
    gcs: GCSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, login: Login
) -> None:
    token = login(gcs, tmp_path, monkeypatch)
    store = gcs.store(client=client, token=token)

    store.set_resource("a", DATA)

    assert content(store, "a") == DATA
    assert gcs.n_tokens == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_corrected_environment_logs_in(
    gcs: GCSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    gcs.put("f/a", DATA)
    gcs.write_key_file(tmp_path / "wrong.json", make_private_key())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(tmp_path / "wrong.json"))
    refused_store = gcs.store(client=client, token=None)
    with pytest.raises(StorageError):
        refused_store.get_resource("a")

    key_file(gcs, tmp_path, monkeypatch)

    assert content(gcs.store(client=client, token=None), "a") == DATA


@pytest.mark.parametrize("client", CLIENTS)
def test_a_machine_of_google_logs_in_by_its_role(gcs: GCSServer, client: str) -> None:
    program = f"""
from data_stack.io.storage_connectors import FsspecStorageConnector
store = FsspecStorageConnector("gs://data/f", endpoint_url={gcs.url!r}, client={client!r})
store.set_resource("a", b"0123456789")
print(store.get_resource("a").read())
"""
    host = gcs.url.removeprefix("http://")

    output, _ = run_python("-c", program, GCE_METADATA_HOST=host, GCE_METADATA_IP=host)

    assert output.strip() == repr(DATA)
    assert gcs.n_tokens >= 1


def test_obstore_is_the_default_client(gcs: GCSServer) -> None:
    store = gcs.store(token=gcs.service_account())

    store.set_resource("a", DATA)

    agents = {
        request.headers["user-agent"].partition("/")[0]
        for request in gcs.requests
        if request.method == "PUT"
    }
    assert agents == {"object_store"}


def test_variables_that_only_obstore_knows_change_nothing(
    gcs: GCSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "another")
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    store = gcs.store(client="obstore", token=gcs.service_account())

    store.set_resource("a", DATA)

    assert content(store, "a") == DATA


def test_a_project_that_pays_is_named_by_both_clients(gcs: GCSServer) -> None:
    payer = user_credentials(gcs, quota_project_id="payer")
    store = gcs.store(client="obstore", token=payer)

    store.set_resource("a", DATA)
    store.list_resources()
    store.delete_resource("a")

    requests = [request for request in gcs.requests if "authorization" in request.headers]
    assert {request.headers["user-agent"].partition("/")[0] for request in requests} >= {
        "object_store"
    }
    assert {request.headers.get("x-goog-user-project") for request in requests} == {"payer"}


# ---------------------------------------------------------------------- files that are no login


def missing_file(path: Path) -> None:
    """Make nothing."""


def folder(path: Path) -> None:
    path.mkdir()


def empty_file(path: Path) -> None:
    path.touch()


def file_without_a_login(path: Path) -> None:
    path.write_text('{"type": "canary"}')


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("make", [missing_file, folder, empty_file, file_without_a_login])
def test_a_variable_that_names_no_login_is_an_error(
    gcs: GCSServer,
    client: str,
    make: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    gcs.is_public = True
    gcs.put("f/plain", DATA)
    path = tmp_path / "login.json"
    make(path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    store = gcs.store(client=client, token=None)

    for ask in (store.get_resource, store.has_resource, store.stat):
        with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS") as caught:
            ask("plain")
        assert os.fspath(path) in str(caught.value)
        assert "canary" not in str(caught.value)

    assert gcs.requests == []


@pytest.mark.parametrize("client", CLIENTS)
def test_an_anonymous_store_needs_no_file(
    gcs: GCSServer, client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gcs.is_public = True
    gcs.put("f/plain", DATA)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.fspath(tmp_path / "missing.json"))

    assert content(gcs.store(client=client, token="anon"), "plain") == DATA


# ---------------------------------------------------------------------- renewal


@pytest.mark.parametrize("client", CLIENTS)
def test_one_token_serves_many_requests(gcs: GCSServer, client: str) -> None:
    store = gcs.store(client=client, token=gcs.service_account())

    for number in range(10):
        store.set_resource(f"a{number}", DATA)
        assert content(store, f"a{number}") == DATA

    assert gcs.n_tokens == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_that_expires_is_renewed(gcs: GCSServer, client: str) -> None:
    gcs.token_seconds = 100  # clients renew a token minutes before it expires
    store = gcs.store(client=client, token=gcs.service_account())
    store.set_resource("a", DATA)

    gcs.expire_tokens()
    time.sleep(0.5)  # obstore keeps a token for a moment, whenever it expires
    store.set_resource("b", DATA)

    assert content(store, "b") == DATA
    assert gcs.n_tokens > 1


def test_a_token_is_renewed_minutes_before_it_expires(gcs: GCSServer) -> None:
    gcs.token_seconds = 301
    store = gcs.store(client="obstore", token=gcs.service_account())
    store.set_resource("a", DATA)
    n_before = gcs.n_tokens

    time.sleep(1.1)
    gcs.token_seconds = 3600
    store.set_resource("b", DATA)

    assert gcs.n_tokens == n_before + 1


def test_threads_renew_a_token_once(gcs: GCSServer) -> None:
    store = gcs.store(client="obstore", token=gcs.service_account())
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        barrier.wait(60)
        store.set_resource(f"a{number}", DATA)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert len(store.list_resources()) == 8
    assert gcs.n_tokens == 1


# ---------------------------------------------------------------------- refusals


def is_token_request(request: Request) -> bool:
    return request.path == "/token"


def test_a_refusal_has_a_reason_and_no_secret(
    gcs: GCSServer, caplog: pytest.LogCaptureFixture
) -> None:
    def rule(request: Request) -> Answer | None:
        if not is_token_request(request):
            return None
        # A server that repeats what was sent.
        description = f"Token has been revoked. {request.body.decode()}"
        body = json.dumps({"error": "invalid_grant", "error_description": description})
        return Answer(400, body.encode(), {"Content-Type": "application/json"})

    gcs.rule = rule
    account = gcs.service_account()
    store = gcs.store(client="obstore", token=account)

    with pytest.raises(StorageError, match=r"invalid_grant: Token has been revoked\.") as caught:
        store.get_resource("a")

    shown = f"{caught.value!r} {store!r} {caplog.text}"
    assertion = next(filter(is_token_request, gcs.requests)).body.decode()
    for secret in (account["private_key"][40:80], assertion[-80:], "PRIVATE KEY", "canary"):
        assert secret not in shown


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_is_sent_without_encryption_on_this_machine_only(
    gcs: GCSServer, client: str
) -> None:
    options: dict[str, Any] = {"token": gcs.service_account(), "client": client}
    store = FsspecStorageConnector(
        "gs://data/f", endpoint_url="http://storage.example.org", **options
    )

    with pytest.raises(ConfigError, match="https://"):
        store.list_resources()

    assert gcs.requests == []


def test_a_wrong_login_is_refused_and_not_shown(gcs: GCSServer) -> None:
    user = user_credentials(gcs, client_secret="another-canary")
    store = gcs.store(client="obstore", token=user)

    with pytest.raises(StorageError, match="Check the credentials") as caught:
        store.set_resource("a", DATA)

    assert "canary" not in f"{caught.value!r} {store!r}"


@pytest.mark.parametrize("status", [500, 503])
def test_a_busy_server_of_logins_is_asked_again(gcs: GCSServer, status: int) -> None:
    n_refusals = 0

    def rule(request: Request) -> Answer | None:
        nonlocal n_refusals
        if not is_token_request(request) or n_refusals == 1:
            return None
        n_refusals += 1
        return Answer(status, b"{}")

    gcs.rule = rule
    store = gcs.store(client="obstore", token=gcs.service_account(), timeout_seconds=60.0)

    store.set_resource("a", DATA)

    assert n_refusals == 1


def test_a_hanging_login_server_is_an_error_in_time(gcs: GCSServer) -> None:
    may_go_on = threading.Event()

    def rule(request: Request) -> Answer | None:
        if is_token_request(request):
            may_go_on.wait(120)
        return None

    gcs.rule = rule
    store = gcs.store(client="obstore", token=gcs.service_account(), timeout_seconds=1.0)

    try:
        with pytest.raises(StorageUnavailableError, match="login"):
            store.get_resource("a")
    finally:
        may_go_on.set()


def test_a_server_of_logins_that_is_away_is_an_error(gcs: GCSServer) -> None:
    account = {**gcs.service_account(), "token_uri": "http://127.0.0.1:9/token"}
    store = gcs.store(client="obstore", token=account, timeout_seconds=1.0)

    with pytest.raises(StorageUnavailableError, match="login"):
        store.get_resource("a")


# ---------------------------------------------------------------------- other processes


def test_a_pickled_store_logs_in_by_itself(gcs: GCSServer) -> None:
    store = gcs.store(client="obstore", token=gcs.service_account())
    store.set_resource("a", DATA)

    copy = pickle.loads(pickle.dumps(store))

    assert content(copy, "a") == DATA


def test_a_fork_before_the_first_request_logs_in_by_itself(gcs: GCSServer, tmp_path: Path) -> None:
    gcs.write_key_file(tmp_path / "key.json")
    program = f"""
import os
from data_stack.io.storage_connectors import FsspecStorageConnector
store = FsspecStorageConnector("gs://data/f", endpoint_url={gcs.url!r}, client="obstore",
    token={os.fspath(tmp_path / "key.json")!r})
pid = os.fork()
store.set_resource(f"a{{pid > 0}}", b"0123456789")
assert store.get_resource(f"a{{pid > 0}}").read() == b"0123456789"
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""

    run_python("-c", program)

    assert gcs.n_tokens == 2
