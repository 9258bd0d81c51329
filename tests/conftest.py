"""Servers that tests share: each is started when the first test asks for it, and gone when the last one is done.

A test that failed while the machine stood still, by the watch of another process, says nothing: it is run again.
"""

from __future__ import annotations

import gc
import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

import hypothesis
import mongodb_commands  # noqa: F401  # hears only clients that are made after it
import pymongo
import pytest
from _pytest.runner import runtestprotocol
from mongodb_server import ExternalMongoDB, MongoDBServer, folder_in_memory
from pymongo.database import Database
from s3_server import S3Server
from sftp_server import SFTPServer
from standstills import Standstills

# A deadline for each example measures the neighbours of this machine.
hypothesis.settings.register_profile("data_stack", deadline=None)
hypothesis.settings.load_profile("data_stack")

# ------------------------------------------------------------------ garbage


def pytest_collection_finish(session: pytest.Session) -> None:
    """What has been imported and collected stays to the end: looking through it took each ``gc.collect()`` half a second."""
    gc.collect()
    gc.freeze()


# ------------------------------------------------------------------ a machine that stands still

_MOST_RUNS = 4
_standstills = pytest.StashKey[Standstills]()
_run_again = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_standstills] = Standstills()
    config.stash[_run_again] = []


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_standstills].close()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test; once more if it failed, and timeouts passed for no other reason than that nothing ran at all."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for n_runs in range(1, _MOST_RUNS + 1):
        began = time.monotonic()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if n_runs == _MOST_RUNS or not any(report.failed for report in reports):
            break
        seconds = item.config.stash[_standstills].seconds_since(began)
        if not seconds:
            break
        item.config.stash[_run_again].append(f"{item.nodeid}: {seconds:.1f} s")
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[_run_again]:
        terminalreporter.section("failed while the machine stood still, and run again")
        for line in config.stash[_run_again]:
            terminalreporter.line(line)


# ------------------------------------------------------------------ MongoDB servers


@pytest.fixture(scope="session")
def mongodb_server() -> Iterator[MongoDBServer | ExternalMongoDB]:
    """A standalone MongoDB; the server that DATA_STACK_TEST_MONGODB_URI names, where it does. Not to be killed or frozen."""
    if uri := os.environ.get("DATA_STACK_TEST_MONGODB_URI"):
        yield ExternalMongoDB(uri)
    else:
        with MongoDBServer(folder=folder_in_memory()) as server:
            yield server


@pytest.fixture(scope="session")
def mongodb_with_auth() -> Iterator[MongoDBServer]:
    """A MongoDB that is a replica set of one node and asks for user and password. Not to be killed or frozen."""
    # Dropping a database waits for the journal: 100 ms each time by default, 10 ms so.
    arguments = ["--journalCommitInterval", "2"]
    with MongoDBServer(replica_set=True, auth=True, folder=folder_in_memory(), arguments=arguments) as server:
        yield server


@pytest.fixture(scope="session")
def mongodb_with_tls() -> Iterator[MongoDBServer]:
    """A MongoDB that speaks TLS only. Not to be killed or frozen."""
    with MongoDBServer(tls=True, folder=folder_in_memory()) as server:
        yield server


# ------------------------------------------------------------------ object stores


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server with buckets in its memory (moto's). Not to be stopped."""
    with S3Server() as server, server.kept_connection():
        yield server


@pytest.fixture(scope="session")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SFTPServer]:
    """An SFTP server of an empty folder (paramiko's). Not to be stopped."""
    with SFTPServer(tmp_path_factory.mktemp("sftp")) as server:
        yield server


# ------------------------------------------------------------------ an empty database in each, for one test


@pytest.fixture
def mongodb_uri(mongodb_server: MongoDBServer | ExternalMongoDB) -> Iterator[str]:
    """The URI of an empty database in ``mongodb_server``; it is dropped after the test."""
    yield from _fresh_database(mongodb_server)


@pytest.fixture
def mongodb_auth_uri(mongodb_with_auth: MongoDBServer) -> Iterator[str]:
    """The URI, password included, of an empty database in ``mongodb_with_auth``; it is dropped after the test."""
    yield from _fresh_database(mongodb_with_auth)


@pytest.fixture
def mongodb_tls_uri(mongodb_with_tls: MongoDBServer) -> Iterator[str]:
    """The URI, CA included, of an empty database in ``mongodb_with_tls``; it is dropped after the test."""
    yield from _fresh_database(mongodb_with_tls)


@pytest.fixture
def mongodb(mongodb_uri: str) -> Iterator[Database[Any]]:
    """The database that ``mongodb_uri`` names, to look at it with pymongo."""
    with pymongo.MongoClient[Any](mongodb_uri) as client:
        yield client.get_default_database()


def _fresh_database(server: MongoDBServer | ExternalMongoDB) -> Iterator[str]:
    name = f"data_stack_test_{secrets.token_hex(6)}"
    yield server.uri(name)
    with server.client() as client:
        client.drop_database(name)
