"""The fixtures and settings of all tests: those of ``tests`` and those of ``plugins/*/tests``.

This file stands at the root because pytest reads the ``conftest.py`` files between the root and a
test, so that a plugin's tests have the same servers, also when they run alone. What the fixtures
are made of lies in ``tests/support``, which ``pyproject.toml`` puts on the path of every test.

Each server is started when the first test of a process asks for it, and stops behind the last one.
With ``pytest -n 4`` there are four processes, and each has servers of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import secrets
import shutil
import signal
import ssl
import tempfile
from collections.abc import Generator, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import mongodb_commands  # noqa: F401  # hears only clients that are made after it
import pymongo
import pytest
from left_out import LEFT_OUT, missing_module, skip_report
from mongodb_server import MongoDBServer, folder_in_memory
from process_harness import Harness
from pymongo.database import Database
from s3_server import LOGIN, S3Server
from sizes import FULL, SEED
from web_server import ScriptedServer

import data_stack
from data_stack.io.storage_connectors import FileStorageConnector

if TYPE_CHECKING:
    from sftp_server import SFTPServer

# A deadline for each example would measure the neighbours of this machine.
_sizes: dict[str, Any] = {"max_examples": 100 if FULL else 10, "print_blob": FULL}
hypothesis.settings.register_profile(
    "ours", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], **_sizes
)
hypothesis.settings.load_profile("ours")

# ------------------------------------------------------------------ seeds


def pytest_report_header() -> str | None:
    """How to repeat what was drawn at random."""
    return (
        f"seed {SEED}; repeat with: make test-full SEED={SEED} AGAIN=1 PART=..." if FULL else None
    )


# ------------------------------------------------------------------ before all tests


def pytest_configure(config: pytest.Config) -> None:
    # In memory, nobody waits for a disk at each fsync. In full, all is tried on a disk. The
    # processes of pytest-xdist inherit the variable.
    if (
        not FULL
        and not config.option.basetemp
        and "TMPDIR" not in os.environ
        and (folder := folder_in_memory())
    ):
        os.environ["TMPDIR"] = tempfile.tempdir = folder
    # The indexes and texts that are kept of large text files go among the caches of the user
    # otherwise.
    if "DATA_STACK_ROW_INDEXES" not in os.environ:
        kept_folder = tempfile.mkdtemp(prefix="data_stack-kept-")
        os.environ["DATA_STACK_ROW_INDEXES"] = kept_folder
        config.add_cleanup(lambda: shutil.rmtree(kept_folder, ignore_errors=True))
    # A shell starts what runs in its background without Ctrl-C, which tests send to processes of
    # their own.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector, and leave to it only what the tests make.

    What has been imported and collected stays to the end: looking through it took each
    ``gc.collect()`` of a test half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # With the default, looking for garbage takes 4 % of the processor time of the tests.
        gc.set_threshold(20_000)
        gc.enable()


# ------------------------------------------------------ what `make test` leaves to `make test-full`


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are marked ``full``, unless all are asked for."""
    if FULL:
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


# ------------------------------------------------------ what `make test-pythons` leaves out


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Skip a file of tests that imports a package that was left out."""
    outcome: Any = yield
    report: pytest.CollectReport = outcome.get_result()
    call = getattr(report, "call", None)
    if LEFT_OUT and report.failed and call is not None and call.excinfo is not None:
        module = missing_module(call.excinfo.value)
        if module is not None:
            skip_report(report, collector.path, module)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Skip a test that needs a package that was left out."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if LEFT_OUT and report.failed and call.excinfo is not None:
        module = missing_module(call.excinfo.value)
        if module is not None:
            skip_report(report, item.path, module)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what was counted, for tests/README.md."""
    reports = terminalreporter.stats.get("", []) if FULL else []
    lines = [
        value
        for report in reports
        for name, value in report.user_properties
        if name == "figures" and report.when == "teardown"
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write("\n".join([*lines, ""]))


# ------------------------------------------------------------------ another process


@pytest.fixture(scope="session")
def spawned() -> Iterator[Pool]:
    """A process that was spawned, so it has nothing of this one but what is sent to it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="data_stack-faults-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def processes(open_folder: Path) -> Iterator[Harness]:
    """Processes to be killed and failed, with all that they import."""
    with Harness(open_folder, "fault_warm", **LOGIN, AWS_EC2_METADATA_DISABLED="true") as processes:
        yield processes


# ------------------------------------------------------------------ a folder, a web server


@pytest.fixture
def store(tmp_path: Path) -> FileStorageConnector:
    """An empty store on disk."""
    return FileStorageConnector(tmp_path / "store")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> FileStorageConnector:
    """A folder with digits and iris, prepared; nobody writes to it."""
    connector = FileStorageConnector(tmp_path_factory.mktemp("prepared"))
    for name in ("digits", "iris"):
        data_stack.load(name, storage=connector)
    return connector


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ``sharded_dataset`` notes which shards it prepares."""
    path = tmp_path / "attempts.log"
    path.touch()
    monkeypatch.setenv("SHARDED_LOG", str(path))
    return path


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """An HTTP server that answers as the test says."""
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A context with a certificate for localhost, which this process trusts."""
    import trustme  # not at the top: it has no wheel for some Pythons

    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    return context


# ------------------------------------------------------------------ MongoDB servers


@pytest.fixture(scope="session")
def mongodb_server() -> Iterator[MongoDBServer]:
    """A standalone MongoDB. Not to be killed, nor left frozen."""
    with MongoDBServer(folder=folder_in_memory()) as server:
        yield server


@pytest.fixture(scope="session")
def mongodb_with_auth() -> Iterator[MongoDBServer]:
    """A MongoDB that is a replica set of one node and asks for user and password. Not to be killed
    or frozen.
    """
    # Dropping a database waits for the journal: 100 ms each time by default. A shorter interval
    # keeps a processor busy.
    arguments = ["--journalCommitInterval", "20"]
    with MongoDBServer(
        replica_set=True, auth=True, folder=folder_in_memory(), arguments=arguments
    ) as server:
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
    from sftp_server import SFTPServer  # not at the top: paramiko has no wheel for some Pythons

    with SFTPServer(tmp_path_factory.mktemp("sftp")) as server:
        yield server


# ---------------------------------------------------------- an empty database in each, for one test


@pytest.fixture
def mongodb_uri(mongodb_server: MongoDBServer) -> Iterator[str]:
    """The URI of an empty database in ``mongodb_server``; it is dropped after the test."""
    yield from _fresh_database(mongodb_server)


@pytest.fixture
def mongodb_auth_uri(mongodb_with_auth: MongoDBServer) -> Iterator[str]:
    """The URI, password included, of an empty database in ``mongodb_with_auth``; it is dropped
    after the test.
    """
    yield from _fresh_database(mongodb_with_auth)


@pytest.fixture
def mongodb(mongodb_uri: str) -> Iterator[Database[Any]]:
    """The database that ``mongodb_uri`` names, to look at it with pymongo."""
    with pymongo.MongoClient[Any](mongodb_uri) as client:
        yield client.get_default_database()


def _fresh_database(server: MongoDBServer) -> Iterator[str]:
    name = f"data_stack_test_{secrets.token_hex(6)}"
    yield server.uri(name)
    with server.client() as client:
        client.drop_database(name)
