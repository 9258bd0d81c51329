"""A password in a URI appears in no repr, log, error, traceback, manifest, journal, recipe, lease,
nor output of the command.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import fault_dataset
import pymongo
import pytest
from fault_dataset import opened
from faulty_tcp_proxy import FaultyTCPProxy
from free_ports import free_port
from mongodb_server import MongoDBServer
from sizes import sized

SECRET = "cAnArY/9:s3cr@t"
FORMS = {SECRET, quote(SECRET), quote(SECRET, safe="")}


@pytest.fixture
def server(mongodb_with_auth: MongoDBServer) -> Iterator[MongoDBServer]:
    """A server on which the canary is a password."""
    with mongodb_with_auth.client() as client, contextlib.suppress(pymongo.errors.OperationFailure):
        client.admin.command("createUser", "reader", pwd=SECRET, roles=["readWriteAnyDatabase"])
    yield mongodb_with_auth
    with mongodb_with_auth.client() as client:
        client.drop_database("secrets")
        client.admin.command("dropUser", "reader")


def uri(server: MongoDBServer, port: int | None = None, **options: Any) -> str:
    """A URI with the canary in it."""
    more = "".join(f"&{name}={value}" for name, value in {"timeoutSeconds": 0.3, **options}.items())
    place = f"127.0.0.1:{port or server.port}/secrets?authSource=admin&directConnection=true{more}"
    return f"mongodb://reader:{quote(SECRET, safe='')}@{place}"


class Ears:
    """Everything that was said, by whatever way."""

    def __init__(self, figures: collections.Counter[str]) -> None:
        self.heard, self.figures = list[str](), figures

    def listen(self, *said: object) -> None:
        self.heard += [f"{each!s}\n{each!r}" for each in said]
        self.figures["texts"] += len(said)

    def attempt(self, work: Any) -> None:
        """Do what fails, and listen to everything that its error says."""
        try:
            self.listen(work())
        except Exception as error:
            self.figures["failures"] += 1
            self.listen(error, error.args, error.__dict__, error.__cause__, error.__context__)
            self.listen("".join(traceback.format_exception(error)))

    def try_everything(self, url: str, sources: str, *, every: int = 1) -> None:
        """Every public operation (or one of so many), on a store that may fail at each."""
        with contextlib.suppress(Exception), opened({"url": url}) as connector:
            factory = fault_dataset.factory_for(connector, sources)
            self.listen(connector, vars(connector).keys())
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
                self.attempt(work)
            for identifier in connector.list_resources():
                with connector.get_resource(identifier) as resource:
                    self.listen(resource, resource.read().decode("latin-1"))
            return
        self.attempt(lambda: opened({"url": url}).__enter__())


@pytest.fixture
def ears(caplog: pytest.LogCaptureFixture, figures: collections.Counter[str]) -> Iterator[Ears]:
    """Everything is logged in full, that of the drivers as well, as when somebody looks for a
    fault.
    """
    caplog.set_level(logging.DEBUG)
    ears = Ears(figures)
    yield ears
    ears.listen(caplog.text, [vars(record) for record in caplog.records])
    assert [text[:500] for text in ears.heard if any(form in text for form in FORMS)] == []


def test_a_password_of_mongodb_is_told_by_nothing(
    server: MongoDBServer, sources: str, ears: Ears, capfd: pytest.CaptureFixture[str]
) -> None:
    ears.try_everything(uri(server, timeoutSeconds=10), sources)
    wrong = [
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
    for url in wrong[: sized(6, 13)]:
        ears.try_everything(url, sources, every=sized(6, 1))
    with FaultyTCPProxy("127.0.0.1", server.port) as proxy:
        for fault in [
            {"cut_down": 3_000},
            {"flip_down": 5_000},
            {"cut_up": 100_000},
            {"swallow_down": 2_000},
        ][: sized(1, 4)]:
            proxy.set(**fault)
            ears.try_everything(uri(server, port=proxy.port), sources, every=sized(4, 1))
            proxy.clear()
            proxy.cut_all()
    ears.listen(*capfd.readouterr())


def test_nothing_that_is_stored_in_mongodb_holds_the_password(
    server: MongoDBServer, sources: str, ears: Ears
) -> None:
    with (
        opened({"url": uri(server, timeoutSeconds=10)}) as connector,
        connector.lease("numbers/1/manifest.json") as lease,
    ):
        lease.acquire()
        fault_dataset.factory_for(connector, sources).prepare(
            progress=False, lease_timeout_seconds=0
        )
        with server.client() as client:
            names = client.secrets.list_collection_names()
            for name in names:
                ears.listen(*client.secrets[name].find())

    assert {"data_stack.resources", "data_stack.leases"} <= set(names)
