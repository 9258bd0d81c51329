"""A password in a URI appears in no repr, log, error, traceback, manifest, journal, recipe, lease, nor output of the command."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fault_dataset
import pymongo
import pytest
from fault_size import Figures
from fault_stores import MongoDBStores
from faulty_tcp_proxy import FaultyTCPProxy
from mongodb_server import MongoDBServer, free_port
from sizes import sized

from data_stack.io.storage_connectors.url import storage_connector_from_url

SECRET = "cAnArY/9:s3cr@t"
FORMS = {SECRET, quote(SECRET), quote(SECRET, safe="")}


@pytest.fixture
def server(mongodb_with_auth: MongoDBServer) -> Iterator[MongoDBServer]:
    """A server on which the canary is a password."""
    with mongodb_with_auth.client() as client, contextlib.suppress(pymongo.errors.OperationFailure):
        client.admin.command("createUser", "reader", pwd=SECRET, roles=["readWriteAnyDatabase"])
    yield mongodb_with_auth
    with mongodb_with_auth.client() as client:
        client.admin.command("dropUser", "reader")


def uri(server: MongoDBServer, port: int | None = None, secret: str = SECRET, **options: Any) -> str:
    """A URI with the canary in it."""
    login = f"reader:{quote(secret, safe='')}"
    more = "".join(f"&{name}={value}" for name, value in {"timeoutSeconds": 0.3, **options}.items())
    return f"mongodb://{login}@127.0.0.1:{port or server.port}/secrets?authSource=admin&directConnection=true{more}"


class Ears:
    """Everything that was said, by whatever way."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.n_failures = 0

    def listen(self, *said: object) -> None:
        self.heard += [f"{each!s}\n{each!r}" for each in said]

    def attempt(self, work: Any) -> None:
        """Do what fails, and listen to everything that its error says."""
        try:
            self.listen(work())
        except Exception as error:
            self.n_failures += 1
            self.listen(error, error.args, error.__dict__, error.__cause__, error.__context__)
            out = io.StringIO()
            traceback.print_exception(error, file=out)
            self.listen(out.getvalue())

    def leaks(self) -> list[str]:
        return [text[:500] for text in self.heard if any(form in text for form in FORMS)]


def try_everything(url: str, sources: Path, ears: Ears, *, every: int = 1) -> None:
    """Every public operation (or one of so many), on a store that may fail at each."""

    def connected() -> Any:
        return storage_connector_from_url(url)

    ears.attempt(connected)
    with contextlib.suppress(Exception):
        connector = connected()
        factory = fault_dataset.factory_for(connector, str(sources))
        ears.listen(connector, vars(connector).keys())
        operations: list[Callable[[], Any]] = [
            lambda: connector.has_resource("a"),
            lambda: connector.stat("a"),
            lambda: connector.get_resource("a"),
            lambda: connector.get_resource("numbers/1/manifest.json").read(),
            lambda: connector.set_resource("a", b"x" * 200_000),
            lambda: connector.list_resources(),
            lambda: connector.collect_garbage(0),
            lambda: connector.delete_resource("missing"),
            lambda: connector.verify_resource("missing"),
            lambda: connector.lease("x"),
            lambda: factory.prepare(progress=False),
            lambda: factory.get_dataset_iterator(),
            lambda: factory.get_dataset_iterator()[0].recipe(),
            lambda: factory.manifest(),
            lambda: factory.verify(),
        ]
        for work in operations[::every]:
            ears.attempt(work)
        for identifier in connector.list_resources():
            with connector.get_resource(identifier) as resource:
                ears.listen(resource, resource.read().decode("latin-1"))
        fault_dataset.close(connector)


@pytest.fixture
def ears(caplog: pytest.LogCaptureFixture) -> Iterator[Ears]:
    """Everything is logged in full, that of the drivers as well, as when somebody looks for a fault."""
    caplog.set_level(logging.DEBUG)
    ears = Ears()
    yield ears
    ears.listen(caplog.text, [vars(record) for record in caplog.records])
    assert ears.leaks() == []


def test_a_password_of_mongodb_is_told_by_nothing(
    server: MongoDBServer, sources: str, ears: Ears, capfd: pytest.CaptureFixture[str], figures: Figures
) -> None:
    folder = Path(sources)
    try_everything(uri(server, timeoutSeconds=10), folder, ears)
    # As wrong a password, a server that is not there, a TLS that is none, an option that is none, an address that is none.
    urls = [
        uri(server).replace("reader:", "nobody:"),
        uri(server, maxPoolSize="many"),
        uri(server, bucket="a/b"),
        uri(server).replace(quote(SECRET, safe=""), SECRET),
        uri(server).replace("mongodb://", "mongo://"),
        uri(server, port=free_port()),
        uri(server, tls="true"),
        uri(server, noSuchOption=1),
        uri(server, readConcernLevel="utter"),
        uri(server, chunkBytes="-1"),
        uri(server).replace("127.0.0.1", "no host"),
        uri(server).replace("mongodb://", "mongodb+srv://"),
        uri(server).replace("mongodb://", "mongodb:/"),
    ]
    for url in urls[: sized(6, 13)]:
        try_everything(url, folder, ears, every=sized(6, 1))
    with FaultyTCPProxy("127.0.0.1", server.port) as proxy:
        for fault in [{"cut_down": 3_000}, {"flip_down": 5_000}, {"cut_up": 100_000}, {"swallow_down": 2_000}][: sized(1, 4)]:
            proxy.set(**fault)
            try_everything(uri(server, port=proxy.port), folder, ears, every=sized(4, 1))
            proxy.clear()
            proxy.cut_all()
    ears.listen(*capfd.readouterr())
    figures.counts["failures"] += ears.n_failures
    figures.counts["texts searched"] += len(ears.heard)


def test_nothing_that_is_stored_in_mongodb_holds_the_password(server: MongoDBServer, sources: str, ears: Ears) -> None:
    connector = storage_connector_from_url(uri(server, timeoutSeconds=10))
    with connector.lease("numbers/1/manifest.json") as lease:
        lease.acquire()
        fault_dataset.factory_for(connector, sources).prepare(progress=False, lease_timeout_seconds=0)
        with server.client() as client:
            names = client.secrets.list_collection_names()
            for name in names:
                ears.listen(*(document for document in client.secrets[name].find()))
    fault_dataset.close(connector)
    MongoDBStores(server.uri()).discard({"database": "secrets"})

    assert {"data_stack.resources", "data_stack.leases"} <= set(names)


COMMANDS = [["list"], ["prepare", "digits"], ["gc"], ["doctor"], ["verify", "digits"], ["du"]]


@pytest.mark.parametrize("command", COMMANDS[: sized(1, len(COMMANDS))])
def test_the_command_does_not_tell_it(server: MongoDBServer, ears: Ears, tmp_path: Path, command: list[str]) -> None:
    for url in (uri(server, timeoutSeconds=10), uri(server, noSuchOption=1)):
        ended = subprocess.run(
            [sys.executable, "-m", "data_stack.cli", "--debug", "--storage", url, *command],
            capture_output=True,
            text=True,
            timeout=60,
        )
        ears.listen(ended.stdout, ended.stderr)
