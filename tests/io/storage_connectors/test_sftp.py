"""What FsspecStorageConnector promises of SFTP beyond the contract: whom it trusts, lost connections, silence, secrets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import paramiko
import pytest
from process_harness import frozen
from sftp_server import PASSWORD, USER, SFTPServer

from data_stack.exception import StorageError, StorageUnavailableError
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector
from data_stack.testing.storage import content

BIG = os.urandom(1 << 20) * 5


@pytest.fixture
def url(sftp_server: SFTPServer) -> str:
    return f"sftp://127.0.0.1/{os.urandom(6).hex()}"


@pytest.fixture
def connector(sftp_server: SFTPServer, url: str) -> FsspecStorageConnector:
    return FsspecStorageConnector(url, **sftp_server.options())


# ---------------------------------------------------------------------- whom it trusts


def test_a_server_that_is_not_known_is_refused_with_advice(
    sftp_server: SFTPServer, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    connector = FsspecStorageConnector(url, **{**sftp_server.options(), "known_hosts": None})

    with pytest.raises(StorageError, match="ssh-keyscan") as caught:
        connector.set_resource("a", b"a")

    assert not isinstance(caught.value, StorageUnavailableError)  # trying again does not help
    assert PASSWORD not in str(caught.value)


def test_a_server_with_another_key_than_the_known_one_is_refused(sftp_server: SFTPServer, url: str, tmp_path: Path) -> None:
    key = paramiko.ECDSAKey.generate()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{sftp_server.port} {key.get_name()} {key.get_base64()}\n")

    with pytest.raises(StorageError, match="does not match"):
        FsspecStorageConnector(url, **{**sftp_server.options(), "known_hosts": tmp_path / "known_hosts"}).has_resource("a")


# ---------------------------------------------------------------------- secrets


def test_a_login_in_the_url_is_decoded_and_shown_nowhere(sftp_server: SFTPServer, url: str) -> None:
    place = f"sftp://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{sftp_server.port}/{url.rpartition('/')[2]}"
    options = f"?knownHosts={sftp_server.known_hosts}"
    wrong = FsspecStorageConnector.from_url(place.replace("canary", "wrong-canary") + options)

    connector = FsspecStorageConnector.from_url(place + options)
    connector.set_resource("a", b"a")
    with pytest.raises(StorageError, match="Check the credentials") as caught:
        wrong.has_resource("a")

    assert content(connector, "a") == b"a"
    assert "canary" not in f"{connector!r} {wrong!r} {caught.value!r} {caught.value}"
    assert not isinstance(caught.value, StorageUnavailableError)


# ---------------------------------------------------------------------- files


def test_what_a_killed_writer_left_is_removed_by_the_next_sweep(
    connector: FsspecStorageConnector, sftp_server: SFTPServer, url: str
) -> None:
    program = (
        "import os, sys; from data_stack.io.storage_connectors.owners import this_process;"
        "open(os.path.join(sys.argv[1], this_process() + '.1'), 'x')"
    )
    connector.set_resource("a", b"a")
    folder = sftp_server.folder / url.rpartition("/")[2] / ".data_stack/temporaries"
    (folder / "elsewhere-1-1.1").write_bytes(b"of a process that may live")

    subprocess.run([sys.executable, "-c", program, folder], check=True)
    removed = connector.collect_garbage()

    assert len(removed) == 1
    assert [file.name for file in folder.iterdir()] == ["elsewhere-1-1.1"]


# ---------------------------------------------------------------------- connections


def test_a_lost_connection_is_made_anew(connector: FsspecStorageConnector) -> None:
    connector.set_resource("a", BIG)
    with connector.get_resource("a") as resource:
        beginning = resource.read(10)
        connector._files._handle().file_system.client.close()

        assert beginning + resource.read() == BIG
    connector.set_resource("b", b"b")
    assert content(connector, "b") == b"b"


def test_every_call_ends_in_time_whether_the_server_is_silent_from_the_start_or_falls_silent(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    with SFTPServer(tmp_path / "served") as server, socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        options = server.options()
        blind = FsspecStorageConnector(
            "sftp://127.0.0.1/a", timeout_seconds=0.15, **{**options, "port": listener.getsockname()[1]}
        )
        connector = FsspecStorageConnector("sftp://127.0.0.1/a", timeout_seconds=0.3, **options)
        FsspecStorageConnector("sftp://127.0.0.1/a", **options).set_resource("a", BIG)
        with connector.get_resource("a") as resource, frozen(server.pid):
            calls: list[Callable[[], object]] = [resource.read]
            for each in (blind, connector):
                calls += [partial(each.has_resource, "a"), partial(each.set_resource, "a", BIG), each.list_resources]
            for call in calls:
                start = time.monotonic()
                with pytest.raises(StorageUnavailableError, match="sftp://"):
                    call()
                assert time.monotonic() - start < 25
