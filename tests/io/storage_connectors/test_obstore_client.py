"""What stays as it was where obstore sends the requests: forks, exits, logins, regions."""

from __future__ import annotations

import functools
import http.server
import json
import logging
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from object_server import Request
from process_harness import in_fork, run_python
from scripted_s3 import ScriptedS3, refusal

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, StorageError
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector, obstore_runtime
from data_stack.io.storage_connectors.object_store.azure_login import AzureLogin
from data_stack.io.storage_connectors.object_store.client_choice import choose_client
from data_stack.io.storage_connectors.object_store.obstore_stores import (
    make_az_store,
    make_s3_store,
)
from data_stack.io.storage_connectors.object_store.s3_place import find_s3_place
from data_stack.loader import Loader
from data_stack.testing.storage_connector import content

DATA = os.urandom(300_000)


@pytest.fixture
def s3() -> Iterator[ScriptedS3]:
    """A server with one object. Connectors share connections, but not to servers of other tests."""
    with ScriptedS3() as server:
        server.put("f/plain", DATA)
        yield server


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without variables and files of AWS."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.fspath(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.fspath(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def clients_of(s3: ScriptedS3) -> set[str]:
    """The clients whose requests arrived."""
    agents = [request.headers["user-agent"] for request in s3.requests]
    return {"obstore" if agent.startswith("object_store") else "fsspec" for agent in agents}


# ---------------------------------------------------------------------- which client


@pytest.mark.parametrize(
    ("client", "url", "options", "chosen"),
    [
        (None, "s3://b", {}, "obstore"),
        (None, "s3a://b", {"key": "k", "secret": "s", "anon": False}, "obstore"),
        (None, "s3://b", {"client_kwargs": {"region_name": "eu-1"}}, "obstore"),
        (None, "s3://b", {"client_kwargs": {"verify": False}}, "fsspec"),
        (None, "s3://b", {"requester_pays": True}, "fsspec"),
        (None, "s3://b--use1-az4--x-s3", {}, "fsspec"),
        (None, "gs://b", {}, "obstore"),
        (None, "gcs://b", {"token": "t", "project": "p", "access": "read_only"}, "obstore"),
        (None, "gs://b", {"requester_pays": True}, "fsspec"),
        (None, "sftp://b", {}, "fsspec"),
        ("fsspec", "s3://b", {}, "fsspec"),
        ("obstore", "gs://b", {"token": "anon"}, "obstore"),
        (None, "az://b", {"account_name": "a"}, "obstore"),
        (None, "abfss://b", {"client_id": "c", "tenant_id": "t", "client_secret": "s"}, "obstore"),
        ("obstore", "az://b", {"account_name": "a"}, "obstore"),
    ],
)
def test_the_client_follows_scheme_and_options(
    client: str | None, url: str, options: dict[str, Any], chosen: str
) -> None:
    scheme, _, bucket = url.partition("://")

    choose = functools.partial(choose_client, client, scheme, bucket, options)

    assert choose(is_installed=True) == chosen
    if client is None:
        assert choose(is_installed=False) == "fsspec"


@pytest.mark.parametrize(
    "url",
    [
        "s3://b?client=boto3",
        "s3://b?client=obstore&requesterPays=true",
        "memory://b?client=obstore",
    ],
)
def test_a_client_that_does_not_serve_the_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="client"):
        FsspecStorageConnector.from_url(url)


def test_a_url_names_the_client(s3: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-canary")
    for client in ("obstore", "fsspec"):
        s3.requests.clear()
        connector = FsspecStorageConnector.from_url(f"{s3.place()}&client={client}")

        assert content(connector, "plain") == DATA
        assert content(pickle.loads(pickle.dumps(connector)), "plain") == DATA

        assert clients_of(s3) == {client}


def test_both_clients_describe_a_file_alike(s3: ScriptedS3) -> None:
    by_obstore = s3.store(client="obstore")
    by_fsspec = s3.store(client="fsspec")

    assert by_obstore._files.info("plain") == by_fsspec._files.info("plain")
    assert by_obstore.stat("plain") == by_fsspec.stat("plain")


# ---------------------------------------------------------------------- processes


def test_a_fork_before_the_first_request_uses_obstore(s3: ScriptedS3) -> None:
    program = f"""
import os
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
store = FsspecStorageConnector({s3.place()!r}.partition("?")[0], endpoint_url={s3.url!r},
    key="k", secret="s", client_kwargs={{"region_name": "us-east-1"}})
pid = os.fork()
assert len(store.get_resource("plain").read()) == {len(DATA)}
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""

    run_python("-c", program)

    assert clients_of(s3) == {"obstore"}


def test_a_fork_after_the_first_request_uses_another_client(s3: ScriptedS3) -> None:
    store = s3.store()
    assert content(store, "plain") == DATA
    with store.get_resource("plain") as resource:
        beginning = resource.read(10)
        s3.requests.clear()

        def read_on() -> bool:
            store.set_resource("new", b"new")
            rest = bytes(resource.read())
            return (
                obstore_runtime.is_lost()
                and beginning + rest == DATA
                and content(store, "plain") == DATA
                and content(store, "new") == b"new"
            )

        assert in_fork(read_on) == 0

    assert clients_of(s3) == {"fsspec"}
    s3.requests.clear()
    assert content(store, "new") == b"new"
    assert clients_of(s3) == {"obstore"}


def test_a_fork_after_foreign_use_of_obstore_uses_fsspec(
    s3: ScriptedS3,
) -> None:
    program = f"""
import os, obstore
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
options = dict(endpoint={s3.url!r}, access_key_id="k", secret_access_key="s", region="us-east-1")
theirs = obstore.store.S3Store("data", **options, client_options=dict(allow_http=True))
ours = FsspecStorageConnector("s3://data/f", endpoint_url={s3.url!r}, key="k", secret="s")
obstore.get(theirs, "f/plain").bytes()
pid = os.fork()
if pid == 0:
    os._exit(int(len(ours.get_resource("plain").read()) != {len(DATA)}))
assert os.waitpid(pid, 0)[1] == 0
"""

    run_python("-c", program)

    assert clients_of(s3) == {"obstore", "fsspec"}


def test_a_lost_runtime_is_lost_in_grandchildren(s3: ScriptedS3) -> None:
    store = s3.store()
    assert content(store, "plain") == DATA

    def fork_again() -> int:
        return in_fork(lambda: obstore_runtime.is_lost() and content(store, "plain") == DATA)

    assert in_fork(fork_again) == 0


class _StoredSamples(SequenceDatasetIterator):
    """Samples that say whether the process that reads them can use obstore."""

    def __init__(self, store: FsspecStorageConnector) -> None:
        super().__init__([list(range(64))])
        self._store = store

    def __getitem__(self, index: Any) -> Any:
        n_bytes = len(content(self._store, "plain"))
        return os.getpid(), n_bytes, int(obstore_runtime.is_lost())


def test_workers_of_a_loader_use_obstore(s3: ScriptedS3) -> None:
    store = s3.store()
    assert content(store, "plain") == DATA
    s3.requests.clear()

    with Loader(
        _StoredSamples(store),
        batch_size=8,
        workers=2,
        worker_kind="processes",
        compare_workers=False,
    ) as loader:
        batches = list(loader)

    pids = {int(pid) for batch in batches for pid in batch[0]}
    assert os.getpid() not in pids
    assert {int(size) for batch in batches for size in batch[1]} == {len(DATA)}
    assert {int(is_lost) for batch in batches for is_lost in batch[2]} == {0}
    assert clients_of(s3) == {"obstore"}


@pytest.mark.parametrize("n_threads", [0, 4])
def test_python_ends_well_while_threads_read(s3: ScriptedS3, n_threads: int) -> None:
    program = f"""
import threading
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
store = FsspecStorageConnector("s3://data/f", endpoint_url={s3.url!r}, key="k", secret="s")
def read_on():
    while True:
        store.get_resource("plain").read()
for _ in range({n_threads}):
    threading.Thread(target=read_on, daemon=True).start()
store.get_resource("plain").read()
"""
    for _ in range(5):
        output, errors = run_python("-c", program)

        assert (output, errors) == ("", "")


def test_the_main_thread_may_read_while_python_exits(s3: ScriptedS3) -> None:
    program = f"""
import atexit
def read_at_exit():
    print(len(store.get_resource("plain").read()))
atexit.register(read_at_exit)
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
store = FsspecStorageConnector("s3://data/f", endpoint_url={s3.url!r}, key="k", secret="s")
store.get_resource("plain").read()
"""

    output, _ = run_python("-c", program)

    assert output == f"{len(DATA)}\n"


def test_ctrl_c_interrupts_a_request_to_a_silent_server() -> None:
    program = """
import os, signal, socket, threading
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
listener = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listener.getsockname()[1]}"
store = FsspecStorageConnector("s3://data/f", endpoint_url=url, anon=True, client="obstore",
                               timeout_seconds=3600.0)
def interrupt():
    listener.accept()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    store.get_resource("a")
except KeyboardInterrupt:
    print("interrupted")
"""

    output, _ = run_python("-c", program)  # it may take a tenth of the limit of the request

    assert output == "interrupted\n"


# ---------------------------------------------------------------------- logins


def last_login(s3: ScriptedS3) -> str:
    """The login of the last request."""
    assert clients_of(s3) == {"obstore"}
    return s3.requests[-1].headers.get("authorization", "")


def test_the_endpoint_of_a_url_precedes_those_of_variables(
    s3: ScriptedS3, no_login: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")

    assert content(FsspecStorageConnector.from_url(s3.place()), "plain") == DATA


def test_missing_credentials_are_an_error_that_says_so(s3: ScriptedS3, no_login: None) -> None:
    store = FsspecStorageConnector.from_url(f"{s3.place()}&client=obstore")

    with pytest.raises(StorageError, match=r"Unable to locate credentials.*Check the credentials"):
        store.has_resource("plain")

    assert s3.requests == []


def test_an_unknown_profile_is_a_configuration_error(s3: ScriptedS3, no_login: None) -> None:
    store = FsspecStorageConnector.from_url(f"{s3.place()}&profile=nobody")

    with pytest.raises(ConfigError, match="nobody"):
        store.has_resource("plain")


def test_credentials_are_renewed_by_their_provider(
    s3: ScriptedS3, no_login: None, tmp_path: Path
) -> None:
    """A program gives credentials that expire, as logins of companies do."""
    answer = {
        "Version": 1,
        "AccessKeyId": "key-of-program",
        "SecretAccessKey": "s",
        "SessionToken": "t",
        "Expiration": "2099-01-01T00:00:00Z",
    }
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = cat {tmp_path / 'answer.json'}\n"
    )

    assert content(FsspecStorageConnector.from_url(s3.place()), "plain") == DATA

    assert "key-of-program/" in last_login(s3)


def test_a_bucket_may_be_a_part_of_the_host(no_login: None, tmp_path: Path) -> None:
    aws = make_s3_store(find_s3_place("data", {"client_kwargs": {"region_name": "eu-west-1"}}), 5.0)
    dotted = make_s3_store(
        find_s3_place("my.data", {"client_kwargs": {"region_name": "eu-west-1"}}), 5.0
    )
    other = make_s3_store(find_s3_place("data", {"endpoint_url": "https://minio.lab:9000"}), 5.0)
    (tmp_path / "config").write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    virtual = make_s3_store(find_s3_place("data", {"endpoint_url": "https://minio.lab:9000"}), 5.0)

    stores = [store for store in (aws, dotted, other, virtual) if store is not None]
    endpoints = [store.config["endpoint_url_s3"] for store in stores]

    assert endpoints == [
        "https://data.s3.eu-west-1.amazonaws.com",
        "https://s3.eu-west-1.amazonaws.com",
        "https://minio.lab:9000",
        "https://data.minio.lab:9000",
    ]
    has_virtual_host = [store.config["virtual_hosted_style_request"] for store in stores]
    assert [str(value).lower() for value in has_virtual_host] == ["true", "false", "false", "true"]


# ---------------------------------------------------------------------- regions


def test_a_bucket_in_another_region_is_read_by_fsspec(
    s3: ScriptedS3, caplog: pytest.LogCaptureFixture
) -> None:
    def rule(request: Request) -> Any:
        is_obstore = request.headers["user-agent"].startswith("object_store")
        return refusal(301, "PermanentRedirect", "elsewhere") if is_obstore else None

    s3.rule = rule
    store = s3.store()

    with caplog.at_level(logging.WARNING):
        assert content(store, "plain") == DATA
        store.set_resource("a", b"a")
        assert content(store, "a") == b"a"

    assert caplog.text.count("another region") == 1


# ---------------------------------------------------------------------- Azure


class _Request:
    """A request to Azure: its line and its headers."""

    def __init__(self, method: str, path: str, headers: dict[str, str]) -> None:
        self.line = f"{method} {path}"
        self.headers = headers


@pytest.fixture
def requests_elsewhere() -> Iterator[tuple[str, list[_Request]]]:
    """The URL of a server that takes everything, and the requests that arrived."""
    arrived = list[_Request]()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            arrived.append(_Request(self.command, self.path, headers))
            self.send_response(201)
            for name, value in {
                "Content-Length": "0",
                "ETag": '"1"',
                "x-goog-generation": "1",
            }.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", arrived
        server.shutdown()
        thread.join()


def test_azure_creates_a_blob_only_if_it_has_no_tag(
    requests_elsewhere: tuple[str, list[_Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, arrived = requests_elsewhere
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", url)
    login = AzureLogin({"account_name": "lab", "account_key": "a2V5"}, 5.0)
    store = make_az_store("data", login, 5.0)
    assert store is not None

    obstore.put(store, "f/a b", b"1", mode="create", use_multipart=False)
    obstore.put(store, "f/a b", b"1", mode="overwrite", use_multipart=False)

    assert {request.line for request in arrived} == {"PUT /data/f/a%20b"}
    assert arrived[0].headers["if-none-match"] == "*"
    assert arrived[0].headers["authorization"].startswith("SharedKey lab:")
    assert "if-none-match" not in arrived[1].headers
